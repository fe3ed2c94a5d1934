/*
 * cmd_finetune.c - `frugrad finetune`: options of a run that updates a few tensors of a pretrained model, with an
 * optimizer that keeps little state. Everything else is in cmd_train.c.
 */
#include "program/args/commands.h"
#include "program/args/job_args.h"
#include "program/args/train_options.h"

static const fgp_opt options[] = {
    {"model", 'm', "MODEL", NULL, "what to fine-tune; listed below"},
    {"weights", 0, "FILE", NULL, "safetensors file to start from; layers of its head that it lacks begin at random"},
    FGP_OPTIONS_DATA,
    {"method", 0, "KIND", "table", "how the targets are updated; listed below"},
    {"states", 0, "COUNT", NULL, "optimizer states of all targets together; sets s, or the rank [by the method]"},
    {"targets", 0, "WHICH", "qv", "tensors to update: qv, attention, linear, all, or a pattern of names with * and ?"},
    {"head", 0, "WHICH", "auto",
     "tensors that AdamW updates besides the targets: none, or a pattern; auto: pooler and classifier of a model that "
     "judges"},
    {"kappa", 0, "COUNT", NULL, "measurements for every entry [by the method]"},
    {"chunks", 0, "COUNT", NULL, "chunks of a tensor [by the method]"},
    {"rank", 0, "COUNT", NULL, "of the projection or of the factors [by the method]"},
    {"refresh", 0, "STEPS", NULL, "how often bases and shares are refreshed [by the method]"},
    {"scale", 0, "NUMBER", NULL, "steps of the targets are multiplied by it [by the method]"},
    {"optimizer-options", 0, "TEXT", NULL, "further options of the method, as beta2=0.95,decay=0.01"},
    {"rate", 'r', "NUMBER", NULL, "learning rate [5e-5 for full, 2e-4 for the others]"},
    FGP_OPTIONS_RUN,
    FGP_OPTIONS_RATE,
    {"record", 0, "FILE", NULL, "write gradients of the first steps as a safetensors file"},
    {"record-tensor", 0, "PATTERN", NULL, "which tensors' gradients [the first target's]"},
    {"record-steps", 0, "COUNT", "64", "of how many steps"},
    FGP_OPTIONS_OUTPUT,
    {NULL, 0, NULL, NULL, NULL},
};

const fgp_command fgp_command_finetune = {
    .name = "finetune",
    .summary = "fine-tune a few tensors of a model with few optimizer states",
    .operands = "",
    .about =
        "Updates the targets by the method and a classifier's head by AdamW; all else is frozen: no gradient of it\n"
        "is computed, kept or sent. Several workers exchange what the method needs to know of a gradient, which\n"
        "for sgc, mesgc and cesgc is 2 kappa s numbers a tensor. Progress, summary, checkpoints and Ctrl-C are\n"
        "those of `frugrad train`.\n"
        "\n"
        "  frugrad finetune --model bert-base --weights bert.safetensors --data glue/SST-2/ --tokens vocab.txt\n"
        "  frugrad finetune --model gpt2-small --weights gpt2.safetensors --data wikitext-2/ --tokens gpt2/ \\\n"
        "      --method cesgc --states 150000 --steps 500\n"
        "  frugrad finetune --config run.conf --method lora --rank 4 --save runs/c --resume",
    .options = options,
    .more = fgp_help_tuning,
    .run = fgp_train_run,
};

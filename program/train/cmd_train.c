/*
 * cmd_train.c - `frugrad train`: the options of a run, its progress, its summary, and the command that resumes it after
 * an interrupt. cmd_finetune.c uses the same.
 */
#include "program/args/commands.h"
#include "program/args/job_args.h"
#include "program/system/interrupt.h"
#include "program/args/train_options.h"
#include "program/train/train_summary.h"
#include "trainer/pipeline/pipeline.h"
#include "program/train/train_progress.h"

#include <inttypes.h>
#include <stdio.h>

static const fgp_opt options[] = {
    {"model", 'm', "MODEL", NULL, "what to train; listed below"},
    FGP_OPTIONS_DATA,
    {"method", 0, "CONFIG", "frugrad",
     "how gradients are compressed: a config string of the library; frugrad: frugrad-sgd, frugrad-adam or "
     "frugrad-muon, as the "
     "optimizer is; dense: not at all, ring all-reduce"},
    FGP_OPTIONS_RUN,
    {"optimizer", 'o', "TEXT", NULL, "optimizer; listed below [by the model and the method]"},
    {"rate", 'r', "NUMBER", NULL, "learning rate [by the model]"},
    FGP_OPTIONS_RATE,
    {"weights", 0, "FILE", NULL, "safetensors file to start from [random weights]"},
    {"quantize", 0, "BITS", NULL,
     "train weights that are rounded to int8 or int4, one scale for each output; with :activations=int8 or "
     ":activations=int4 also the inputs of layers [not rounded]"},
    {"stages", 0, "COUNT", NULL,
     "divide the model over so many workers, each with some of its layers, instead of copying it; under mpirun the "
     "number of its processes [each worker has the whole model]"},
    {"stage-config", 0, "CONFIG", NULL,
     "how stages send activations and their gradients: a config string of the library, or two with a slash between "
     "them; dense: as floats, for the bits of a run without stages [" FGT_STAGE_CONFIG_DEFAULT "]"},
    {"stage-feedback", 0, "WORD", NULL,
     "sample: send how the activations of each sample have changed since the last epoch, where samples repeat; takes "
     "memory for those of all samples [the activations themselves]"},
    {"sparse", 0, "TEXT", NULL, "prune weights while training; listed below [all weights are trained]"},
    FGP_OPTIONS_OUTPUT,
    {"metrics-layers", 0, NULL, NULL, "metrics: also the density of each tensor, at some 16 of the steps"},
    {NULL, 0, NULL, NULL, NULL},
};

static void print_resume_command(const fgp_request *request, const fgt_report *report) {
    char again[4096];
    if (report->checkpoint[0] == '\0') {
        fgio_error(
            "interrupted after step %" PRIu64 " of %" PRIu64 "; nothing was saved%s", report->step, report->steps,
            fgp_arg_given(&request->args, "save") ? ": with reduce=gossip a checkpoint is written only at the end"
                                                  : ", because --save DIR was not given");
        return;
    }
    fgio_error("interrupted after step %" PRIu64 " of %" PRIu64 "; to resume:", report->step, report->steps);
    fprintf(stderr, "  %s\n", fgp_request_resume_command(request, again, sizeof again));
}

static int finish_run(const fgp_request *request, const fgt_report *report) {
    int status = FGIO_EXIT_OK;
    if (fgp_arg_given(&request->args, "json"))
        status = fgp_summary_json(request, report);
    else
        fgp_summary_print(request, report);
    if (report->interrupted) {
        print_resume_command(request, report);
        return FGP_EXIT_STOPPED;
    }
    return status;
}

static int train(const fgp_request *request) {
    const fgp_args *args = &request->args;
    if (args->command == &fgp_command_train && fgp_arg_given(args, "metrics-layers") && !fgp_arg(args, "metrics"))
        return fgio_usage_error("train: --metrics-layers needs --metrics FILE");
    fgp_train_progress *view = NULL;
    fgt_report report = {0};
    int status = fgp_train_progress_open(request, fgp_arg_given(args, "quiet"), fgp_arg(args, "metrics"),
                                         fgp_arg(args, "tensorboard"), &view);
    if (status != FGIO_EXIT_OK)
        return status;
    fgt_job_callbacks watch = fgp_train_progress_watch(view);
    fgp_interrupt_catch();
    status = fgt_job_train(&request->job, &watch, &report);
    fgp_interrupt_restore();
    int written = fgp_train_progress_close(view);
    if (status == FGIO_EXIT_OK)
        status = finish_run(request, &report);
    return status != FGIO_EXIT_OK ? status : written;
}

int fgp_train_run(const fgp_args *args) {
    fgp_request request;
    int status = fgp_request_open(args, &request);
    if (status == FGIO_EXIT_OK)
        status = train(&request);
    fgp_request_close(&request);
    return status;
}

const fgp_command fgp_command_train = {
    .name = "train",
    .summary = "train a model, data-parallel, with compressed gradients",
    .operands = "",
    .about = "Trains on one machine with threads, or as the processes of an MPI job. Progress goes to stderr, the\n"
             "summary to stdout: quality of the model, bytes sent, times, memory.\n"
             "Ctrl-C stops after the step, writes a checkpoint if there is a --save, and prints how to resume.\n"
             "\n"
             "  frugrad train --model lenet --data fashion-mnist --workers 4 --epochs 3\n"
             "  frugrad train --model resnet20 --data cifar-10/ --method dense --save runs/a\n"
             "  frugrad train --model gpt2-nano --data wikitext-2/ --tokens bytes --steps 1000 --metrics log.jsonl\n"
             "  mpirun -n 8 frugrad train --config run.conf --save runs/b --resume",
    .options = options,
    .more = fgp_help_training,
    .run = fgp_train_run,
};

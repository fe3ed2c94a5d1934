/* cmd_eval.c - `frugrad eval`: quality of a model's weights on a data set. */
#include "program/args/commands.h"
#include "program/args/job_args.h"
#include "program/train/train_summary.h"
#include "trainer/checkpoint/checkpoint.h"

static const fgp_opt options[] = {
    {"model", 'm', "MODEL", NULL, "what the weights are of; listed below"},
    {"weights", 0, "FILE", NULL,
     "safetensors or compact file with the names of Hugging Face, torchvision or the trainer"},
    {"resume", 0, "PATH", NULL, "a checkpoint of the trainer or a directory of them, instead of --weights"},
    {"data", 'd', "DIR", NULL, "directory of the data set, fashion-mnist or builtin"},
    {"tokens", 0, "WHAT", NULL,
     "text: bytes, a directory with GPT-2's encoder.json and vocab.bpe, or a WordPiece vocabulary"},
    {"subset", 0, "TASK", NULL, "sentences: which of " FGT_SENTENCE_TASKS " [by the directory's name]"},
    {"split", 0, "WORD", NULL, "train, valid or test [test, or valid where there is no test]"},
    {"activations", 0, "SHARE", NULL,
     "share of the inputs of linear layers that count as zero, by a threshold for each layer from training samples"},
    {"batch", 'b', "COUNT", NULL, "samples at a time [by the model]"},
    {"eval-batches", 0, "COUNT", NULL, "batches of each worker at most [all]"},
    {"workers", 'w', "COUNT", "1", "workers, as threads, that share the samples"},
    {"threads", 't', "COUNT", NULL, "threads of each worker [the cores, shared out]"},
    {"memory", 0, "BYTES", NULL, "limit of all workers on this machine, as 8G [what is free]"},
    {"seed", 0, "NUMBER", "1", "of builtin data, and of the masks of a masked language model"},
    {"samples", 0, "COUNT", NULL, "builtin data: how many there were to train on [some thousand]"},
    {"json", 'j', NULL, NULL, "print the result as one JSON object"},
    {NULL, 0, NULL, NULL, NULL},
};

static int check(const fgp_request *request) {
    if (request->job.weights == NULL && request->job.resume == NULL) {
        fgio_usage_error("eval: --weights FILE or --resume PATH missing");
        fgio_hint("frugrad train --model %s ... --save DIR writes checkpoints; then --resume DIR", request->job.model);
        return FGIO_EXIT_USAGE;
    }
    if (fgp_arg(&request->args, "data") == NULL) {
        fgio_usage_error("eval: --data DIR missing");
        fgio_hint("a directory, fashion-mnist, or builtin, which needs no files");
        return FGIO_EXIT_USAGE;
    }
    return FGIO_EXIT_OK;
}

static int evaluate(const fgp_request *request, fgt_eval_result *quality, fgt_report *report) {
    static const char *const words[] = {"train", "valid", "test", NULL};
    int split = FGT_SPLITS; /* default: the split of the final evaluation */
    int status = FGIO_EXIT_OK;
    if (fgp_arg_given(&request->args, "split"))
        status = fgp_arg_word(&request->args, "split", words, &split);
    return status == FGIO_EXIT_OK ? fgt_job_eval(&request->job, (fgt_split)split, quality, report) : status;
}

static int run(const fgp_args *args) {
    fgp_request request;
    fgt_eval_result quality = {0};
    fgt_report report = {0};
    int status = fgp_request_open(args, &request);
    if (status == FGIO_EXIT_OK)
        status = check(&request);
    if (status == FGIO_EXIT_OK)
        status = evaluate(&request, &quality, &report);
    if (status == FGIO_EXIT_OK && request.job.weights != NULL)
        fgt_weights_compare_model(request.job.weights, request.model.text);
    if (status == FGIO_EXIT_OK && fgp_arg_given(args, "json"))
        status = fgp_verdict_json(&request, &quality, &report);
    else if (status == FGIO_EXIT_OK)
        fgp_verdict_print(&request, &quality, &report);
    fgp_request_close(&request);
    return status;
}

const fgp_command fgp_command_eval = {
    .name = "eval",
    .summary = "evaluate a model's weights on a data set",
    .operands = "",
    .about = "Prints accuracy and error, perplexity or correlation, as the model's task has it.\n"
             "\n"
             "  frugrad eval --model resnet20 --weights resnet20.safetensors --data cifar-10/\n"
             "  frugrad eval --model gpt2 --weights gpt2.safetensors --data wikitext-2/ --tokens gpt2/ --json",
    .options = options,
    .more = fgp_help_models,
    .run = run,
};

/*
 * train.c - `frugrad train`: the options of a run, its progress, its summary, and how to go on when it was interrupted.
 */
#include "commands.h"
#include "job_args.h"
#include "stop.h"
#include "train_summary.h"
#include "train_watch.h"

#include <inttypes.h>
#include <stdio.h>

static const frugi_opt options[] = {
    {"model", 'm', "MODEL", NULL, "what to train; listed below"},
    {"data", 'd', "DIR", "builtin",
     "directory of the data set; what is in it is found out. fashion-mnist: where Debian puts it; builtin: made up, as "
     "the model wants it"},
    {"tokens", 0, "WHAT", NULL,
     "text: bytes, a directory with GPT-2's encoder.json and vocab.bpe, or a WordPiece vocabulary"},
    {"subset", 0, "TASK", NULL, "task of GLUE: sst-2, cola, mrpc, sts-b"},
    {"method", 0, "CONFIG", "frugrad",
     "how gradients are compressed: a config string of the library; dense: not at all, added up in a "
     "ring"},
    {"config", 'c', "FILE", NULL, "more options, one a line as `option = value`; the command line wins"},
    {"workers", 'w', "COUNT", "1", "workers, as threads; mpirun says how many where it starts them"},
    {"threads", 't', "COUNT", NULL, "threads of each worker [the cores, shared out]"},
    {"batch", 'b', "COUNT", NULL, "samples of each worker in a step [by the model]"},
    {"epochs", 'e', "NUMBER", "1", "how often to go through the data"},
    {"steps", 's', "COUNT", NULL, "how many steps to take, instead of --epochs"},
    {"optimizer", 'o', "TEXT", NULL, "what becomes of the gradients; listed below [by the model and the method]"},
    {"rate", 'r', "NUMBER", NULL, "learning rate [by the model]"},
    {"schedule", 0, "TEXT", "cosine",
     "of the learning rate: constant, cosine, linear or step:0.5,0.75:0.1, each with ,warmup=STEPS"},
    {"clip", 0, "NORM", NULL, "cut gradients to this norm [no limit]"},
    {"seed", 0, "NUMBER", "1", "of everything random: the same seed, the same weights"},
    {"weights", 0, "FILE", NULL, "safetensors file to start from [random weights]"},
    {"save", 0, "DIR", NULL, "directory for checkpoints [none are written]"},
    {"save-every", 0, "STEPS", NULL, "how often [at the end of every epoch]"},
    {"keep", 0, "COUNT", "3", "how many checkpoints stay"},
    {"resume", 0, "[PATH]", NULL,
     "go on from a checkpoint, or from the newest one in a directory [that of --save]; the other options must be those "
     "of the first run"},
    {"eval-every", 0, "STEPS", NULL, "how often to evaluate [at the end of every epoch]"},
    {"eval-batches", 0, "COUNT", NULL, "batches of each worker to evaluate on at most [all]"},
    {"no-eval", 0, NULL, NULL, "do not evaluate at all"},
    {"metrics", 0, "FILE", NULL, "write every step and evaluation as a line of JSON"},
    {"tensorboard", 0, "DIR", NULL, "write the same as event files of TensorBoard"},
    {"bucket", 0, "BYTES", NULL, "gradients are handed over in buckets of so much, as 1M or 25M [by the model]"},
    {"samples", 0, "COUNT", NULL, "builtin data: how many to train on [some thousand]"},
    {"hold-out", 0, "COUNT", NULL,
     "judge by the last so many training samples, which are not trained on, instead of the test split: for choosing a "
     "rate"},
    {"no-augment", 0, NULL, NULL, "images: neither crop nor flip them"},
    {"no-overlap", 0, NULL, NULL, "exchange after backward, not while it goes on"},
    {"alone", 0, NULL, NULL, "exchange nothing: what a step takes without it"},
    {"json", 'j', NULL, NULL, "print the summary as one JSON object"},
    {"quiet", 'q', NULL, NULL, "show no progress"},
    {NULL, 0, NULL, NULL, NULL},
};

static void say_how_to_go_on(const frugi_request *request, const frugi_report *report) {
    char again[4096];
    if (report->checkpoint[0] == '\0') {
        frugi_error("interrupted after step %" PRIu64 " of %" PRIu64 "; nothing was saved, for want of --save DIR",
                    report->step, report->steps);
        return;
    }
    frugi_error("interrupted after step %" PRIu64 " of %" PRIu64 "; to go on:", report->step, report->steps);
    fprintf(stderr, "  %s\n", frugi_request_again(request, again, sizeof again));
}

static int conclude(const frugi_request *request, const frugi_report *report) {
    int status = FRUGI_EXIT_OK;
    if (frugi_arg_given(&request->args, "json"))
        status = frugi_summary_json(request, report);
    else
        frugi_summary_print(request, report);
    if (report->interrupted) {
        say_how_to_go_on(request, report);
        return FRUGI_EXIT_STOPPED;
    }
    return status;
}

static int train(const frugi_request *request) {
    const frugi_args *args = &request->args;
    frugi_view *view = NULL;
    frugi_report report = {0};
    int status = frugi_view_open(request, frugi_arg_given(args, "quiet"), frugi_arg(args, "metrics"),
                                 frugi_arg(args, "tensorboard"), &view);
    if (status != FRUGI_EXIT_OK)
        return status;
    frugi_watch watch = frugi_view_watch(view);
    frugi_stop_begin();
    status = frugi_job_train(&request->job, &watch, &report);
    frugi_stop_end();
    int written = frugi_view_close(view);
    if (status == FRUGI_EXIT_OK)
        status = conclude(request, &report);
    return status != FRUGI_EXIT_OK ? status : written;
}

static int run(const frugi_args *args) {
    frugi_request request;
    int status = frugi_request_open(args, &request);
    if (status == FRUGI_EXIT_OK)
        status = train(&request);
    frugi_request_close(&request);
    return status;
}

const frugi_command frugi_command_train = {
    .name = "train",
    .summary = "train a model, data-parallel, with compressed gradients",
    .operands = "",
    .about = "Trains on one machine with threads, or as the processes of an MPI job. Progress goes to stderr, the\n"
             "summary to stdout: how good the model is, what was sent, where the time went, what memory it took.\n"
             "Ctrl-C stops after the step, writes a checkpoint if there is a --save, and says how to go on.\n"
             "\n"
             "  frugrad train --model lenet --data fashion-mnist --workers 4 --epochs 3\n"
             "  frugrad train --model resnet20 --data cifar-10/ --method dense --save runs/a\n"
             "  frugrad train --model gpt2-nano --data wikitext-2/ --tokens bytes --steps 1000 --metrics log.jsonl\n"
             "  mpirun -n 8 frugrad train --config run.conf --save runs/b --resume",
    .options = options,
    .more = frugi_help_training,
    .run = run,
};

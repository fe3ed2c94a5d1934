/*
 * finetune_args.c - the options of finetune that no other command has: from words and numbers to what the trainer is asked.
 */
#include "program/args/job_args.h"

#include <string.h>

enum { KINDS_MOST = 32 };

static int read_kind(frugi_request *r) {
    const char *words[KINDS_MOST + 1] = {NULL};
    int which = 0;
    for (size_t i = 0; i < KINDS_MOST; i++)
        words[i] = frugi_tune_kind_at(i);
    int code = frugi_arg_word(&r->args, "method", words, &which);
    if (code == FRUGI_EXIT_OK)
        r->tune.kind = words[which];
    return code;
}

static int read_numbers(frugi_request *r) {
    const struct {
        const char *name;
        uint64_t max, *to;
    } counts[] = {
        {"states", (uint64_t)1 << 48, &r->tune.states}, {"kappa", 64, &r->tune.kappa},
        {"chunks", 1 << 24, &r->tune.chunks},           {"rank", 4096, &r->tune.rank},
        {"refresh", 1000000000, &r->tune.refresh},      {"record-steps", 1 << 20, &r->tune.record_steps},
    };
    int code = FRUGI_EXIT_OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && code == FRUGI_EXIT_OK; i++)
        if (frugi_arg(&r->args, counts[i].name) != NULL)
            code = frugi_arg_u64(&r->args, counts[i].name, 1, counts[i].max, counts[i].to);
    if (code == FRUGI_EXIT_OK && frugi_arg(&r->args, "scale") != NULL)
        code = frugi_arg_double(&r->args, "scale", 1e-6, 1e6, &r->tune.scale);
    return code;
}

/* Gradients are exchanged as they are: what compresses them here is that few numbers are asked for. */
int frugi_request_tune(frugi_request *r) {
    const frugi_args *args = &r->args;
    r->tune = (frugi_tune){.targets = frugi_arg(args, "targets"),
                           .head = frugi_arg(args, "head"),
                           .options = frugi_arg(args, "optimizer-options"),
                           .record = frugi_arg(args, "record"),
                           .record_tensor = frugi_arg(args, "record-tensor")};
    r->job.method = "dense";
    r->job.tune = &r->tune;
    int code = read_kind(r);
    if (code == FRUGI_EXIT_OK)
        code = read_numbers(r);
    if (code == FRUGI_EXIT_OK && r->tune.record == NULL &&
        (frugi_arg_given(args, "record-tensor") || frugi_arg_given(args, "record-steps")))
        code = frugi_usage_error("%s: --record-tensor and --record-steps need --record FILE", r->line->command->name);
    return code;
}

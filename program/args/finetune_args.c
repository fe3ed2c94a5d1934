/* finetune_args.c - the options that only finetune has, parsed into fgt_finetune_options. */
#include "program/args/job_args.h"

#include <string.h>

enum { MAX_KINDS = 32 };

static int read_kind(fgp_request *r) {
    const char *words[MAX_KINDS + 1] = {NULL};
    int which = 0;
    for (size_t i = 0; i < MAX_KINDS; i++)
        words[i] = fgt_finetune_kind_at(i);
    int code = fgp_arg_word(&r->args, "method", words, &which);
    if (code == FGIO_EXIT_OK)
        r->tune.kind = words[which];
    return code;
}

static int read_numbers(fgp_request *r) {
    const struct {
        const char *name;
        uint64_t max, *to;
    } counts[] = {
        {"states", (uint64_t)1 << 48, &r->tune.states}, {"kappa", 64, &r->tune.kappa},
        {"chunks", 1 << 24, &r->tune.chunks},           {"rank", 4096, &r->tune.rank},
        {"refresh", 1000000000, &r->tune.refresh},      {"record-steps", 1 << 20, &r->tune.record_steps},
    };
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && code == FGIO_EXIT_OK; i++)
        if (fgp_arg(&r->args, counts[i].name) != NULL)
            code = fgp_arg_u64(&r->args, counts[i].name, 1, counts[i].max, counts[i].to);
    if (code == FGIO_EXIT_OK && fgp_arg(&r->args, "scale") != NULL)
        code = fgp_arg_double(&r->args, "scale", 1e-6, 1e6, &r->tune.scale);
    return code;
}

/* Gradients are exchanged dense: fine-tuning methods exchange few numbers in the first place. */
int fgp_request_tune(fgp_request *r) {
    const fgp_args *args = &r->args;
    r->tune = (fgt_finetune_options){.targets = fgp_arg(args, "targets"),
                                     .head = fgp_arg(args, "head"),
                                     .options = fgp_arg(args, "optimizer-options"),
                                     .record = fgp_arg(args, "record"),
                                     .record_tensor = fgp_arg(args, "record-tensor")};
    r->job.method = "dense";
    r->job.tune = &r->tune;
    int code = read_kind(r);
    if (code == FGIO_EXIT_OK)
        code = read_numbers(r);
    if (code == FGIO_EXIT_OK && r->tune.record == NULL &&
        (fgp_arg_given(args, "record-tensor") || fgp_arg_given(args, "record-steps")))
        code = fgio_usage_error("%s: --record-tensor and --record-steps need --record FILE", r->line->command->name);
    return code;
}

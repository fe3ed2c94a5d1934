/*
 * job_args.h - what train, finetune, eval and sample share: from options (and a file of them) to a job. Each command's
 * table has the options that make sense for it; the others keep what holds unless given.
 */
#ifndef FGP_JOB_ARGS_H
#define FGP_JOB_ARGS_H

#include "program/args/args.h"
#include "trainer/run/job.h"
#include "trainer/model/model.h"

/** A command line, understood. */
typedef struct fgp_request {
    const fgp_args *line; /* as typed */
    fgp_args args;        /* with what --config adds */
    char *text;           /* of that file; args points into it */
    fgt_job job;          /* points into args */
    fgt_model model;      /* what job.model says */
    fgt_tune tune;        /* finetune; job.tune points to it */
} fgp_request;

/**
 * Understand a command line. Model and method are checked here, before any data is read. Returns an exit status, after
 * one line on stderr; close it in either case.
 */
int fgp_request_open(const fgp_args *args, fgp_request *request);
void fgp_request_close(fgp_request *request);

/** Write the command that goes on where this one stopped, for a shell. Returns dst. */
const char *fgp_request_again(const fgp_request *request, char *dst, size_t cap);

/** What --method said. */
const char *fgp_request_method(const fgp_request *request);

/** What samples are called in "1,234 img/s". */
const char *fgp_request_unit(const fgp_request *request);

/** From a command line to the end: what train and finetune do. Returns an exit status. */
int fgp_train_run(const fgp_args *args);

/** What finetune asks beside the others' options: into request->tune. Returns an exit status. */
int fgp_request_tune(fgp_request *request);

/** Print models, methods and optimisers: the end of the help. */
void fgp_help_models(void);
void fgp_help_training(void);
void fgp_help_tuning(void);

#endif

/*
 * job_args.h - options of train, finetune, eval and sample (and a file of options) to a training job.
 *
 * Each command's table has the options that apply to it; the other fields keep their defaults.
 */
#ifndef FGP_JOB_ARGS_H
#define FGP_JOB_ARGS_H

#include "program/args/args.h"
#include "trainer/run/job.h"
#include "trainer/model/model.h"

/** A parsed command line. */
typedef struct fgp_request {
    const fgp_args *line;      /* as typed */
    fgp_args args;             /* with the options of --config */
    char *text;                /* contents of that file; args points into it */
    fgt_job job;               /* points into args */
    fgt_model model;           /* parsed from job.model */
    fgt_finetune_options tune; /* finetune; job.tune points to it */
} fgp_request;

/**
 * Parse a command line. Model and method are checked here, before any data is read. Returns an exit code, after an
 * error message; close it in either case.
 */
int fgp_request_open(const fgp_args *args, fgp_request *request);
void fgp_request_close(fgp_request *request);

/** Write the shell command that resumes this run. Returns dst. */
const char *fgp_request_resume_command(const fgp_request *request, char *dst, size_t cap);

/** The value of --method. */
const char *fgp_request_method(const fgp_request *request);

/** The unit of samples in "1,234 img/s". */
const char *fgp_request_unit(const fgp_request *request);

/** Run `frugrad train` or `frugrad finetune`. Returns an exit code. */
int fgp_train_run(const fgp_args *args);

/** Parse the options that only finetune has into request->tune. Returns an exit code. */
int fgp_request_tune(fgp_request *request);

/** Print models, methods and optimizers, at the end of the help. */
void fgp_help_models(void);
void fgp_help_training(void);
void fgp_help_tuning(void);

#endif

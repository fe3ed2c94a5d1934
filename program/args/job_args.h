/*
 * job_args.h - what train, finetune, eval and sample share: from options (and a file of them) to a job. Each command's
 * table has the options that make sense for it; the others keep what holds unless given.
 */
#ifndef FRUGI_JOB_ARGS_H
#define FRUGI_JOB_ARGS_H

#include "program/args/args.h"
#include "trainer/run/job.h"
#include "trainer/model/model.h"

/** A command line, understood. */
typedef struct frugi_request {
    const frugi_args *line; /* as typed */
    frugi_args args;        /* with what --config adds */
    char *text;             /* of that file; args points into it */
    frugi_job job;          /* points into args */
    frugi_model model;      /* what job.model says */
    frugi_tune tune;        /* finetune; job.tune points to it */
} frugi_request;

/**
 * Understand a command line. Model and method are checked here, before any data is read. Returns an exit status, after
 * one line on stderr; close it in either case.
 */
int frugi_request_open(const frugi_args *args, frugi_request *request);
void frugi_request_close(frugi_request *request);

/** Write the command that goes on where this one stopped, for a shell. Returns dst. */
const char *frugi_request_again(const frugi_request *request, char *dst, size_t cap);

/** What --method said. */
const char *frugi_request_method(const frugi_request *request);

/** What samples are called in "1,234 img/s". */
const char *frugi_request_unit(const frugi_request *request);

/** From a command line to the end: what train and finetune do. Returns an exit status. */
int frugi_train_run(const frugi_args *args);

/** What finetune asks beside the others' options: into request->tune. Returns an exit status. */
int frugi_request_tune(frugi_request *request);

/** Print models, methods and optimisers: the end of the help. */
void frugi_help_models(void);
void frugi_help_training(void);
void frugi_help_tuning(void);

#endif

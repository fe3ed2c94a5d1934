/* federated_job.h - what the server of a federated run asks its clients to do, as JSON and as options of training. */
#ifndef FGP_FEDERATED_JOB_H
#define FGP_FEDERATED_JOB_H

#include "trainer/run/solo_training.h"

#include <jansson.h>

/** The job as JSON text, for the caller to free; NULL without memory. */
char *fgp_federated_job_text(const fgt_solo_options *options, const char *data_name, const char *config);

/** A job that was received; options point into it. */
typedef struct fgp_federated_job {
    json_t *json;
    const char *data_name, *config;
    fgt_solo_options training; /* without data and share */
} fgp_federated_job;

/** Parses the text of a job, untrusted. Returns an exit status, after an error message; close it in either case. */
int fgp_federated_job_parse(const char *text, fgp_federated_job *job);
void fgp_federated_job_close(fgp_federated_job *job);

/** Hints, below an error: in what the run in a directory differs from a job, by its status.json; nothing where there is
 * none or it has the same job. For a run that has ended, how to go on from its weights. */
void fgp_federated_job_hint(const char *directory, const char *job);

#endif

/* train_progress.h - progress and metrics of a running training. */
#ifndef FGP_TRAIN_PROGRESS_H
#define FGP_TRAIN_PROGRESS_H

#include "program/args/job_args.h"

typedef struct fgp_train_progress fgp_train_progress;

/**
 * Open the metrics files. With `quiet` nothing is shown.
 *
 *   metrics       file of JSON lines, or NULL
 *   tensorboard   directory of event files, or NULL
 *
 * Returns an exit status, after a line on stderr.
 */
int fgp_train_progress_open(const fgp_request *request, int quiet, const char *metrics, const char *tensorboard,
                            fgp_train_progress **view);

/** The callbacks for fgt_job_train(). */
fgt_job_callbacks fgp_train_progress_watch(fgp_train_progress *view);

/** Clear the bar and close the files. Returns an exit status: whether all metrics were written. */
int fgp_train_progress_close(fgp_train_progress *view);

#endif

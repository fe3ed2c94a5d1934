/* train_progress.h - a run while it goes on: progress for people, metrics for programs. */
#ifndef FGP_TRAIN_PROGRESS_H
#define FGP_TRAIN_PROGRESS_H

#include "program/args/job_args.h"

typedef struct fgp_train_progress fgp_train_progress;

/**
 * Get ready to watch a run. With `quiet` nothing is shown.
 *
 *   metrics       file of JSON lines, or NULL
 *   tensorboard   directory of event files, or NULL
 *
 * Returns an exit status, after a line on stderr.
 */
int fgp_train_progress_open(const fgp_request *request, int quiet, const char *metrics, const char *tensorboard,
                            fgp_train_progress **view);

/** What fgt_job_train() calls. */
fgt_watch fgp_train_progress_watch(fgp_train_progress *view);

/** Clear the bar and close the files. Returns an exit status: whether all metrics were written. */
int fgp_train_progress_close(fgp_train_progress *view);

#endif

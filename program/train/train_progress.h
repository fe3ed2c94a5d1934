/* train_progress.h - a run while it goes on: progress for people, metrics for programs. */
#ifndef FRUGI_TRAIN_PROGRESS_H
#define FRUGI_TRAIN_PROGRESS_H

#include "program/args/job_args.h"

typedef struct frugi_view frugi_view;

/**
 * Get ready to watch a run. With `quiet` nothing is shown.
 *
 *   metrics       file of JSON lines, or NULL
 *   tensorboard   directory of event files, or NULL
 *
 * Returns an exit status, after a line on stderr.
 */
int frugi_view_open(const frugi_request *request, int quiet, const char *metrics, const char *tensorboard,
                    frugi_view **view);

/** What frugi_job_train() calls. */
frugi_watch frugi_view_watch(frugi_view *view);

/** Clear the bar and close the files. Returns an exit status: whether all metrics were written. */
int frugi_view_close(frugi_view *view);

#endif

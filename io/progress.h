/*
 * progress.h - progress of long work: on a terminal one line on stderr that is redrawn and then cleared, elsewhere a
 * plain line every ten seconds.
 *
 * A thread of its own draws it, so that work which is a single call shows at least the elapsed time. Nothing is shown
 * in the first two seconds. The environment variable FRUGRAD_PROGRESS sets this delay in seconds, or `off`.
 */
#ifndef FGIO_PROGRESS_H
#define FGIO_PROGRESS_H

#include "io/error.h"

/** One piece of work. Several may be active; the one begun last is shown. */
typedef struct fgio_progress fgio_progress;

/**
 * Begin.
 *
 *   total          amount of work, in any unit; 0: unknown
 *   format, ...    what is done, for example "evaluating resnet20"
 *
 * Returns NULL if nothing will be shown; the functions below accept that. Any thread.
 */
fgio_progress *fgio_progress_begin(uint64_t total, const char *format, ...) FGIO_PRINTF(2, 3);

/** Set the amount done. Any thread, but one at a time. */
void fgio_progress_update(fgio_progress *meter, uint64_t done);

/** The work has ended: clear the line. */
void fgio_progress_end(fgio_progress *meter);

/** Show nothing from now on: for --quiet, and for all ranks of an MPI job but 0. */
void fgio_progress_disable(void);

#endif

/*
 * progress.h - progress of work that takes long: on a terminal one line on stderr that is redrawn and goes away,
 * elsewhere a plain line now and then. A thread of its own draws it, so that work which is a single call shows at least
 * the time.
 *
 * Nothing is shown in the first two seconds. The environment variable FRUGRAD_PROGRESS changes that: so many seconds,
 * or `off`.
 */
#ifndef FGIO_PROGRESS_H
#define FGIO_PROGRESS_H

#include "io/error.h"

/** One piece of work. Several may be under way; the one begun last is shown. */
typedef struct fgio_meter fgio_meter;

/**
 * Begin.
 *
 *   total          how much there is to do, in any unit; 0: not known
 *   format, ...    what is done, as "evaluating resnet20"
 *
 * Returns NULL where nothing will be shown; the functions below take that. Any thread.
 */
fgio_meter *fgio_meter_begin(uint64_t total, const char *format, ...) FGIO_SAY_PRINTF(2, 3);

/** So much is done by now. Any thread, but one at a time. */
void fgio_meter_at(fgio_meter *meter, uint64_t done);

/** It is over: take the line away. */
void fgio_meter_end(fgio_meter *meter);

/** Show nothing from now on: for --quiet, and for all processes of a job but the first. */
void fgio_meter_off(void);

#endif

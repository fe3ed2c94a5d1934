/*
 * tensorboard.h - TensorBoard's event files: numbers with a name and a step.
 *
 * Every run, and every part of a run that was resumed, has a file of its own in the directory; TensorBoard shows them
 * as one. Every function that can fail says why on stderr and returns FGIO_EXIT_FAIL.
 */
#ifndef FGIO_TENSORBOARD_H
#define FGIO_TENSORBOARD_H

#include <stdint.h>

typedef struct fgio_events fgio_events;

/**
 * Start a file in a directory, which is made if it is not there.
 *
 *   step   the run goes on after it; what older files say of later steps is no longer shown. 0: a new run
 */
int fgio_events_open(const char *directory, uint64_t step, fgio_events **events);

/** Record a number. A record is in the file when this returns, whole or (after a power cut) not at all. */
int fgio_events_scalar(fgio_events *events, const char *tag, uint64_t step, double value);

/** Close the file; NULL is fine. */
void fgio_events_close(fgio_events *events);

#endif

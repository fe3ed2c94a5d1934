/*
 * tensorboard.h - TensorBoard event files: scalars with a tag and a step.
 *
 * Every run, and every resumed part of a run, has a file of its own in the directory; TensorBoard shows them as one.
 * Functions that can fail print the error on stderr and return FGIO_EXIT_FAIL.
 */
#ifndef FGIO_TENSORBOARD_H
#define FGIO_TENSORBOARD_H

#include <stdint.h>

typedef struct fgio_tensorboard fgio_tensorboard;

/**
 * Create a file in a directory, which is created if needed.
 *
 *   step   the run resumes after it; TensorBoard hides later steps of older files. 0: a new run
 */
int fgio_tensorboard_open(const char *directory, uint64_t step, fgio_tensorboard **events);

/** Record a scalar. It is written when this returns; after a power cut a record is there completely or not at all. */
int fgio_tensorboard_scalar(fgio_tensorboard *events, const char *tag, uint64_t step, double value);

/** Close the file; NULL is allowed. */
void fgio_tensorboard_close(fgio_tensorboard *events);

#endif

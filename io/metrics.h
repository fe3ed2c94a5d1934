/*
 * metrics.h - metrics of a run as lines of JSON, one object each, with a "step" where they belong to one. Every
 * function that can fail says why on stderr and returns FGIO_EXIT_FAIL.
 */
#ifndef FGIO_METRICS_H
#define FGIO_METRICS_H

#include <jansson.h>
#include <stdint.h>

typedef struct fgio_metrics fgio_metrics;

/**
 * Open a file of metrics.
 *
 *   resumed   the step that the run goes on after: lines of later steps, and what is no line of JSON (the end of a
 *             write that was cut off), are dropped; the others stay as they are. 0: a new run, and a new file
 *
 * The file changes as a whole: either all of it was looked through, or nothing has happened to it.
 */
int fgio_metrics_open(const char *path, uint64_t resumed, fgio_metrics **metrics);

/** Append an object as a line, in the file when this returns, and drop it. */
int fgio_metrics_put(fgio_metrics *metrics, json_t *object);

/** Close the file; NULL is fine. */
void fgio_metrics_close(fgio_metrics *metrics);

#endif

/*
 * metrics.h - metrics of a run as JSON lines: one object per line, with a "step" where it belongs to one.
 *
 * Functions that can fail print the error on stderr and return FGIO_EXIT_FAIL.
 */
#ifndef FGIO_METRICS_H
#define FGIO_METRICS_H

#include <jansson.h>
#include <stdint.h>

typedef struct fgio_metrics fgio_metrics;

/**
 * Open a file of metrics.
 *
 *   resumed   the step after which the run resumes: lines of later steps, and lines that are not JSON (an incomplete
 *             write), are dropped. 0: a new run, and a new file
 *
 * The file is rewritten atomically: on failure it is unchanged.
 */
int fgio_metrics_open(const char *path, uint64_t resumed, fgio_metrics **metrics);

/** Append an object as a line, written when this returns, and drop the reference. */
int fgio_metrics_put(fgio_metrics *metrics, json_t *object);

/** Close the file; NULL is allowed. */
void fgio_metrics_close(fgio_metrics *metrics);

#endif

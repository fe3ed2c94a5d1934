/*
 * metrics.h - metrics of a run as lines of JSON, one object each, with a "step" where they belong to one. Every
 * function that can fail says why on stderr and returns FRUGI_EXIT_FAIL.
 */
#ifndef FRUGI_METRICS_H
#define FRUGI_METRICS_H

#include <jansson.h>
#include <stdint.h>

typedef struct frugi_metrics frugi_metrics;

/**
 * Open a file of metrics.
 *
 *   resumed   the step that the run goes on after: lines of later steps, and what is no line of JSON (the end of a
 *             write that was cut off), are dropped; the others stay as they are. 0: a new run, and a new file
 *
 * The file changes as a whole: either all of it was looked through, or nothing has happened to it.
 */
int frugi_metrics_open(const char *path, uint64_t resumed, frugi_metrics **metrics);

/** Append an object as a line, in the file when this returns, and drop it. */
int frugi_metrics_put(frugi_metrics *metrics, json_t *object);

/** Close the file; NULL is fine. */
void frugi_metrics_close(frugi_metrics *metrics);

#endif

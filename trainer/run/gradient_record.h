/*
 * gradient_record.h - gradients kept as they came, for looking at them afterwards: a safetensors file with a tensor
 * "STEP/NAME" (f32) for each of the first steps and each tensor that was asked for.
 */
#ifndef FRUGI_GRADIENT_RECORD_H
#define FRUGI_GRADIENT_RECORD_H

#include "trainer/exchange/buckets.h"

#include <jansson.h>

/**
 * Get ready. All is held in memory until it is written.
 *
 *   pattern   of names, with * and ?; only parameters that move have gradients
 *   steps     how many: the first ones that come
 *
 * Returns an exit status, after a line on stderr.
 */
int frugi_record_create(const frugi_graph *graph, const char *pattern, uint64_t steps, frugi_record **record);
void frugi_record_destroy(frugi_record *r);

/** Take what is wanted of a range of the gradient at a step. */
void frugi_record_put(frugi_record *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad);

/** Write the file; `facts` are strings that go along. It appears whole or not at all. Returns an exit status. */
int frugi_record_write(const frugi_record *r, const char *path, json_t *facts);

#endif

/*
 * gradient_record.h - gradients kept as they came, for looking at them afterwards: a safetensors file with a tensor
 * "STEP/NAME" (f32) for each of the first steps and each tensor that was asked for.
 */
#ifndef FGT_GRADIENT_RECORD_H
#define FGT_GRADIENT_RECORD_H

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
int fgt_record_create(const fgt_graph *graph, const char *pattern, uint64_t steps, fgt_record **record);
void fgt_record_destroy(fgt_record *r);

/** Take what is wanted of a range of the gradient at a step. */
void fgt_record_add(fgt_record *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad);

/** Write the file; `facts` are strings that go along. It appears whole or not at all. Returns an exit status. */
int fgt_record_write(const fgt_record *r, const char *path, json_t *metadata);

#endif

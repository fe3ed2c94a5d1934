/*
 * gradient_record.h - recording of gradients before clipping, for analysis: a safetensors file with a tensor
 * "STEP/NAME" (f32) for each of the first steps and each matching tensor.
 */
#ifndef FGT_GRADIENT_RECORD_H
#define FGT_GRADIENT_RECORD_H

#include "trainer/exchange/buckets.h"

#include <jansson.h>

/**
 * Begin a recording. Everything stays in memory until it is written.
 *
 *   pattern   of names, with * and ?; only trainable parameters have gradients
 *   steps     how many: the first ones that come
 *
 * Returns an exit status, after a line on stderr.
 */
int fgt_record_create(const fgt_graph *graph, const char *pattern, uint64_t steps, fgt_record **record);
void fgt_record_destroy(fgt_record *r);

/** Records the matching tensors in a range of the gradient at a step. */
void fgt_record_add(fgt_record *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad);

/** Writes the file, with `metadata` (strings). It appears complete or not at all. Returns an exit status. */
int fgt_record_write(const fgt_record *r, const char *path, json_t *metadata);

#endif

/*
 * probabilistic.h - selection with probability proportional to magnitude.
 *
 * Entry i is sent with probability p_i = min(1, |x_i| / scale), where scale is such that about k entries are sent. It
 * is sent as x_i / p_i, which makes it unbiased: entries with p = 1 unchanged, all others as +scale or -scale, which
 * needs a sign and no value. One random number per array decides (systematic sampling): the running sum of p, started
 * at that number, selects an entry whenever it passes an integer. The probability of each entry is exactly p_i, and
 * the number of entries is k or k + 1, less those that rounding the scale up costs.
 */
#ifndef FRUGI_PROBABILISTIC_H
#define FRUGI_PROBABILISTIC_H

#include "select/tensor_topk.h"

/**
 * The scale for k entries of all arrays together: the smallest bf16 (as a float) for which the sum of p is at most k.
 * 0 if at most k entries are nonzero: then all of those are sent. INFINITY if no finite scale is large enough, which
 * takes magnitudes near the largest float: then no entry is sent.
 */
float frugi_probabilistic_scale(frugi_topk *whole, const frugi_float_array *span, size_t spans, uint64_t k,
                                int threads);

/**
 * Draw from one array.
 *
 *   random  a random number for this array and step
 *   sure    indices with p = 1 (every nonzero one if scale is 0), ascending
 *   drawn   the other selected indices, ascending
 *   *sures, *draws   their numbers
 *
 * Together at most the sum of p, plus one. Deterministic: the result does not depend on threads.
 */
void frugi_probabilistic_draw(frugi_topk *whole, const frugi_float_array *span, float scale, uint32_t random,
                              uint32_t *sure, uint64_t *sures, uint32_t *drawn, uint64_t *draws, int threads);

#endif

/*
 * probabilistic.h - selection with probability proportional to magnitude.
 *
 * Entry i leaves with p_i = min(1, |x_i| / unit), where unit is such that about k leave. Sent as x_i / p_i, the
 * expectation is x: entries with p = 1 as they are, all others as +unit or -unit, which takes a sign and no
 * value. One random number per array decides (systematic sampling): the running sum of p, started at that number, takes
 * an entry whenever it passes a whole number. Each entry's chance is p_i exactly, and the number of entries is k or
 * k + 1 less those that rounding unit up costs.
 */
#ifndef FRUGI_PROBABILISTIC_H
#define FRUGI_PROBABILISTIC_H

#include "select/tensor_topk.h"

/**
 * The unit for k entries of all spans together: the smallest bf16 (as a float) for which the sum of p is at most k.
 * 0 when at most k entries are not zero: then all of those are sure to leave. INFINITY when no finite one is large
 * enough, which takes magnitudes near the end of the floats: then none leaves.
 */
float frugi_draw_unit(frugi_whole *whole, const frugi_span *span, size_t spans, uint64_t k, int threads);

/**
 * Draw from one span.
 *
 *   dice    a random number for this span and step
 *   sure    places with p = 1 (every non-zero one where unit is 0), ascending
 *   drawn   the others that leave, ascending
 *   *sures, *draws   how many
 *
 * Room: together at most the sum of p, plus one. Deterministic, whatever threads.
 */
void frugi_draw(frugi_whole *whole, const frugi_span *span, float unit, uint32_t dice, uint32_t *sure, uint64_t *sures,
                uint32_t *drawn, uint64_t *draws, int threads);

#endif

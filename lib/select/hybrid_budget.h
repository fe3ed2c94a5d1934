/*
 * hybrid_budget.h - the number of entries of each block when many blocks share one budget.
 *
 * The claim of a block is the number of its entries among the `budget` largest of all blocks. Its count is the claim,
 * clipped to 1 .. most, and then adjusted so that the counts add up to the budget exactly.
 */
#ifndef FRUGI_HYBRID_BUDGET_H
#define FRUGI_HYBRID_BUDGET_H

#include "select/tensor_topk.h"

/**
 * Count the claims of all blocks of an array: the entries that pass a cutoff (the last block may be short).
 * cut->ties, unless it is FRUGI_ALL_TIES, is reduced by the number of ties selected.
 */
void frugi_hybrid_count_claims(const frugi_topk *whole, const frugi_float_array *span, uint32_t block,
                               frugi_cutoff *cut, uint16_t *claim, int threads);

/**
 * Scale claims by how often blocks have sent many entries recently (4-bit counters, factor
 * sqrt((count + 1) / (mean + 1)), between 1/2 and 2), rounded to nearest and at most `most`. A counter is one byte.
 */
void frugi_hybrid_scale_by_frequency(uint16_t *claim, const uint8_t *often, uint64_t blocks, uint32_t most);

/** Update the counters: +1 (up to 15) for blocks above the mean count; halved every 256 steps. */
void frugi_hybrid_update_frequency(const uint16_t *count, uint8_t *often, uint64_t blocks, uint64_t step);

/**
 * Adjust claims to counts within 1 .. most (at most the length of a short last block) that add up to budget, or to the
 * nearest sum that the limits allow.
 *
 *   last   length of the last block of each array; array s has blocks_of[s] blocks
 *
 * Deterministic: the difference is distributed one entry per block, in block order, round after round.
 */
void frugi_hybrid_fit_budget(uint16_t *count, const uint64_t *blocks_of, const uint32_t *last, size_t spans,
                             uint32_t block, uint32_t most, uint64_t budget);

#endif

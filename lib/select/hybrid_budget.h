/*
 * hybrid_budget.h - how many each block may send when one budget serves many blocks.
 *
 * A block's claim is the number of its entries among the budget's largest of all; the count is the claim, at least 1
 * and at most `most`, and what the limits take or leave is spread so that the counts add up to the budget exactly.
 */
#ifndef FRUGI_HYBRID_BUDGET_H
#define FRUGI_HYBRID_BUDGET_H

#include "select/tensor_topk.h"

/**
 * Claims of all blocks of a span: entries that a cut lets through, block by block (the last one may be short).
 * cut->ties goes down by those taken.
 */
void frugi_hybrid_claims(const frugi_span *span, uint32_t block, frugi_cutoff *cut, uint16_t *claim, int threads);

/**
 * Scale claims by how often blocks have sent lately (4-bit counters, sqrt((count + 1) / (mean + 1)), between 1/2 and
 * 2), rounded to nearest and at most `most`. Counters take a byte each.
 */
void frugi_hybrid_favour(uint16_t *claim, const uint8_t *often, uint64_t blocks, uint32_t most);

/** Move the counters on: +1 (up to 15) for blocks above the mean count; halved every 256 steps. */
void frugi_hybrid_learn(const uint16_t *count, uint8_t *often, uint64_t blocks, uint64_t step);

/**
 * Turn claims into counts within 1 .. most (at most the length of a short last block) that add up to budget, or to the
 * nearest sum that the limits allow.
 *
 *   length   of the last block of each span: last[s] for spans of blocks_of[s] blocks
 *
 * Deterministic: what is missing or too much is dealt out one each, in block order, round after round.
 */
void frugi_hybrid_settle(uint16_t *count, const uint64_t *blocks_of, const uint32_t *last, size_t spans, uint32_t block,
                         uint32_t most, uint64_t budget);

#endif

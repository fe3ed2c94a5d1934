/*
 * block_topk_short.h - select k of 64 or of 128 without sorting; the body of the SIMD variants.
 *
 * Short blocks do not need the group maxima of block_topk_256_neon.c: the key of every element is computed while
 * the block is accumulated, and sixteen blocks are searched at once, one column each.
 *
 * A key counts down from the maximum of the block, in steps of the upper half of the magnitude: single steps
 * for the first 1.5 octaves, where the threshold of most blocks lies, then sixteen steps per key for
 * eight more octaves. So few blocks have ties, and few of these more than a handful. Ties are
 * resolved by whole magnitude; blocks with mostly equal values or zeros take the slow path.
 *
 * The including file defines
 *   accumulate_block(batch, b, block)   accumulate; set top[b] and slot[b]
 * with keys made by STEPS_ONE and STEPS_SHIFT: for a distance d to the maximum 255 - min(d, STEPS_ONE + d / 16),
 * not below 0; and includes the primitives of block_topk_neon.h or block_topk_avx2.h.
 */
#include "select/block_topk_lanes.h"

#define SCAN_MAX 8u /* up to this k, the indices of a block of 64 are found faster one by one */

typedef uint16_t lanes_u16 __attribute__((vector_size(32)));

/* Write the selected indices. Writes up to 15 more, but not beyond the block. */
INLINE void write_indices(frugi_batch *batch, size_t b, uint32_t block) {
    frugi_batch_scratch *s = batch->lanes;
    uint16_t *idx = batch->idx + block * b;
    uint32_t k = batch->k[b], n = 0;
    if (block == 64 && k <= SCAN_MAX) {
        uint64_t mark = s->mark[b][0];
        for (uint32_t j = 0; j < k; j++, mark &= mark - 1)
            idx[j] = (uint16_t)__builtin_ctzll(mark);
        return;
    }
    for (uint32_t w = 0; w < block / 64; w++)
        n += expand_bits(s->mark[b][w], (uint8_t)(64 * w), 8, s->selected[b] + n);
    for (uint32_t j = 0; j < k; j += 16) {
        lanes_u16 wide = __builtin_convertvector(load_lanes(s->selected[b] + j), lanes_u16);
        memcpy(idx + j, &wide, sizeof wide);
    }
}

/* Mark the elements that reach the threshold. */
INLINE void mark_reaching(frugi_batch *batch, uint32_t block) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        for (uint32_t w = 0; w < block / 64; w++)
            s->mark[b][w] = mask_ge_64(s->slot[b] + 64 * w, s->threshold[b]);
        s->found[b] = s->reached[b];
    }
}

INLINE void select_short(frugi_batch *batch, uint32_t block) {
    frugi_batch_scratch *s = batch->lanes;
    uint8_t count[FRUGI_BATCH_BLOCKS] = {0};
    for (size_t b = 0; b < batch->blocks; b++)
        count[b] = (uint8_t)batch->k[b];
    for (size_t i = 0; i < block; i += 16)
        transpose(s->slot[0] + i, sizeof s->slot[0], s->row[i]);
    find_thresholds(s, block, 128, load_lanes(count));
    mark_reaching(batch, block);
    for (size_t b = 0; b < batch->blocks; b++) {
        batch->skipped[b] = s->top[b] >= INF_HALF;
        s->slow[b] = false;
        if (s->found[b] != batch->k[b] && batch->k[b] && !batch->skipped[b])
            s->slow[b] = !resolve_block_ties(batch, b, block, block / 64, NULL);
    }
    for (size_t b = 0; b < batch->blocks; b++) {
        if (batch->skipped[b])
            continue;
        if (__builtin_expect(s->slow[b], 0))
            select_slow(batch, b, block);
        else
            write_indices(batch, b, block);
    }
}

INLINE void accumulate_short(frugi_batch *batch, size_t block) {
    const frugi_batch copy = *batch; /* a local copy, which byte stores cannot alias */
    if (copy.saved)                  /* two loops, so that this is tested once and not for every vector */
        for (size_t b = 0; b < copy.blocks; b++)
            accumulate_block(&copy, b, block);
    else
        for (size_t b = 0; b < copy.blocks; b++)
            accumulate_block(&copy, b, block);
}

static void accumulate_64(frugi_batch *batch) {
    accumulate_short(batch, 64);
}

static void accumulate_128(frugi_batch *batch) {
    accumulate_short(batch, 128);
}

static void select_64(frugi_batch *batch) {
    select_short(batch, 64);
}

static void select_128(frugi_batch *batch) {
    select_short(batch, 128);
}

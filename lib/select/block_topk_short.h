/*
 * block_topk_short.h - select k of 64 or of 128 without sorting; the body of the SIMD variants.
 *
 * Short blocks need no maxima of groups first (block_topk_256.h): every element gets its byte while
 * the block is accumulated, and sixteen blocks are searched at once, one column each.
 *
 * A key counts down from the block's maximum, in steps of the upper half of the magnitude: one by one
 * for the first octave and a half, where the threshold of most blocks lies, then sixteen to a key, for
 * eight octaves more. So few blocks have ties, and few of these more than a handful. Ties are
 * settled by whole magnitude; blocks of little but equal values or zeros go the slow way.
 *
 * The including file defines
 *   sum_block(batch, b, block)   accumulate; set top[b] and slot[b]
 * with keys made by STEPS_ONE and STEPS_SHIFT: for a distance d to the maximum 255 - min(d, STEPS_ONE + d / 16),
 * not below 0; and has the primitives of block_topk_neon.h or block_topk_avx2.h.
 */
#include "select/block_topk_lanes.h"

#define SCAN_MOST 8u /* so many winners of a block of 64 are found faster one after the other */

typedef uint16_t lanes_u16 __attribute__((vector_size(32)));

/* The winners as indices. Writes up to 15 more, but not beyond the block. */
INLINE void list_winners(frugi_batch *batch, size_t b, uint32_t block) {
    frugi_lanes *s = batch->lanes;
    uint16_t *idx = batch->idx + block * b;
    uint32_t k = batch->k[b], n = 0;
    if (block == 64 && k <= SCAN_MOST) {
        uint64_t mark = s->mark[b][0];
        for (uint32_t j = 0; j < k; j++, mark &= mark - 1)
            idx[j] = (uint16_t)__builtin_ctzll(mark);
        return;
    }
    for (uint32_t w = 0; w < block / 64; w++)
        n += expand(s->mark[b][w], (uint8_t)(64 * w), 8, s->win[b] + n);
    for (uint32_t j = 0; j < k; j += 16) {
        lanes_u16 wide = __builtin_convertvector(load_lanes(s->win[b] + j), lanes_u16);
        memcpy(idx + j, &wide, sizeof wide);
    }
}

/* The elements that reach the threshold. */
INLINE void mark_reaching(frugi_batch *batch, uint32_t block) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        for (uint32_t w = 0; w < block / 64; w++)
            s->mark[b][w] = reach_64(s->slot[b] + 64 * w, s->threshold[b]);
        s->found[b] = s->reached[b];
    }
}

INLINE void select_short(frugi_batch *batch, uint32_t block) {
    frugi_lanes *s = batch->lanes;
    uint8_t count[FRUGI_LANES] = {0};
    for (size_t b = 0; b < batch->blocks; b++)
        count[b] = (uint8_t)batch->k[b];
    for (size_t i = 0; i < block; i += 16)
        transpose(s->slot[0] + i, sizeof s->slot[0], s->row[i]);
    search(s, block, 128, load_lanes(count));
    mark_reaching(batch, block);
    for (size_t b = 0; b < batch->blocks; b++) {
        batch->held[b] = s->top[b] >= INF_HALF;
        s->odd[b] = false;
        if (s->found[b] != batch->k[b] && batch->k[b] && !batch->held[b])
            s->odd[b] = !settle(batch, b, block, block / 64, NULL);
    }
    for (size_t b = 0; b < batch->blocks; b++) {
        if (batch->held[b])
            continue;
        if (__builtin_expect(s->odd[b], 0))
            take_slowly(batch, b, block);
        else
            list_winners(batch, b, block);
    }
}

INLINE void sum_short(frugi_batch *batch, size_t block) {
    const frugi_batch own = *batch; /* which bytes that are written cannot change, as far as the compiler knows */
    if (own.saved)                  /* asked once, not for every few elements */
        for (size_t b = 0; b < own.blocks; b++)
            sum_block(&own, b, block);
    else
        for (size_t b = 0; b < own.blocks; b++)
            sum_block(&own, b, block);
}

static void accumulate_64(frugi_batch *batch) {
    sum_short(batch, 64);
}

static void accumulate_128(frugi_batch *batch) {
    sum_short(batch, 128);
}

static void select_64(frugi_batch *batch) {
    select_short(batch, 64);
}

static void select_128(frugi_batch *batch) {
    select_short(batch, 128);
}

/*
 * block_topk_lanes.h - shared by the SIMD variants: the search for the k-th largest key of sixteen blocks at once,
 * the resolution of ties, and a slow path that bisects one block alone.
 *
 * A column of s->row has the keys of one block, bytes that order its elements approximately; elements with equal keys
 * are compared by whole magnitude. Elements that reach the threshold are marked by one bit each.
 *
 * The including file includes the primitives of block_topk_neon.h or block_topk_avx2.h.
 */
#ifndef FRUGI_BLOCK_TOPK_LANES_H
#define FRUGI_BLOCK_TOPK_LANES_H

#include "base/float_bits.h"
#include "select/block_kernel.h"
#include "select/expand_bits.h"

#include <string.h>

#define BLOCK_MAX 256u
#define MAX_TIES  32u     /* blocks with more ties take the slow path */
#define INF_HALF  0x7f80u /* upper half of infinity */

INLINE lanes_u8 load_lanes(const uint8_t *p) {
    lanes_u8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- slow path ------------------------------------------------------------------------------- */

typedef uint16_t eight_u16 __attribute__((vector_size(16)));

/* Number of keys that are at least t. */
static uint32_t count_reaching(const uint16_t *key, uint32_t n, uint16_t t) {
    eight_u16 c[4] = {{0}}, v[4];
    for (size_t i = 0; i < n; i += 32) {
        memcpy(v, key + i, sizeof v);
        for (size_t j = 0; j < 4; j++) {
            c[j] -= (eight_u16)(v[j] >= t);
            OPAQUE_LANES(c[j]); /* otherwise the compiler merges the four counters into one dependency chain */
        }
    }
    eight_u16 sum = (c[0] + c[1]) + (c[2] + c[3]);
    return (uint32_t)(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
}

/* The k-th largest of n keys. */
static uint32_t bisect(const uint16_t *key, uint32_t n, uint32_t k) {
    uint32_t threshold = 0;
    for (uint32_t bit = 0x8000; bit; bit >>= 1)
        if (count_reaching(key, n, (uint16_t)(threshold | bit)) >= k)
            threshold |= bit;
    return threshold;
}

/* Set rank[i] to 2 for elements above the threshold, 1 for those at the threshold, else 0. */
static void rank_by_bisection(const float *acc, uint32_t n, uint32_t k, bool exact, uint8_t *rank) {
    uint16_t half[BLOCK_MAX], low[BLOCK_MAX], any = 0;
    for (uint32_t i = 0; i < n; i++)
        half[i] = (uint16_t)(frugi_magnitude(acc[i]) >> 16);
    uint16_t t = (uint16_t)bisect(half, n, k), u = 0;
    for (uint32_t i = 0; i < n; i++) {
        low[i] = exact && half[i] == t ? (uint16_t)frugi_f32_bits(acc[i]) : 0;
        any |= low[i];
    }
    uint32_t above = count_reaching(half, n, (uint16_t)(t + 1));
    if (any && count_reaching(half, n, t) > k)
        u = (uint16_t)bisect(low, n, k - above);
    for (uint32_t i = 0; i < n; i++)
        rank[i] = (uint8_t)((half[i] > t) * 2 + (half[i] == t) * ((low[i] > u) + (low[i] >= u)));
}

static uint32_t count_above(const uint8_t *rank, uint32_t n) {
    uint32_t above = 0;
    for (uint32_t w = 0; w < n / 64; w++)
        above += (uint32_t)__builtin_popcountll(mask_ge_64(rank + 64 * w, 2));
    return above;
}

static __attribute__((noinline)) void select_slow(frugi_batch *batch, size_t b, uint32_t block) {
    const float *acc = batch->acc + block * b;
    uint16_t *idx = batch->idx + block * b;
    uint32_t k = batch->k[b], n = 0;
    bool exact = batch->select == FRUGI_SELECT_EXACT;
    uint8_t rank[BLOCK_MAX] = {0}, list[BLOCK_MAX + 8];
    /* In most cases the block is sparse: nonzero elements are selected, and zeros are tied. */
    for (uint32_t i = 0; i < block; i++)
        rank[i] = frugi_magnitude(acc[i]) > (exact ? 0u : 0xffffu) ? 2 : 1;
    if (count_above(rank, block) > k)
        rank_by_bisection(acc, block, k, exact, rank);
    uint32_t room = k - count_above(rank, block);
    for (uint32_t w = 0; w < block / 64; w++) {
        uint64_t selected = mask_ge_64(rank + 64 * w, 2), tied = mask_ge_64(rank + 64 * w, 1) ^ selected;
        for (; tied && room; tied &= tied - 1, room--)
            selected |= tied & -tied;
        batch->lanes->mark[b][w] = selected;
        n += expand_bits(selected, (uint8_t)(64 * w), 8, list + n);
    }
    for (uint32_t j = 0; j < k; j++)
        idx[j] = list[j];
}

/* ---- sixteen blocks at once ------------------------------------------------------------------ */

/* Find the k-th largest key of every block, and the number of keys that reach it; `first` is the highest bit that can
 * be set. */
INLINE void find_thresholds(frugi_batch_scratch *s, size_t rows, int first, lanes_u8 k) {
    lanes_u8 threshold = {0}, reached = threshold + (uint8_t)rows;
    for (int bit = first; bit; bit >>= 1) {
        lanes_u8 guess = threshold | (uint8_t)bit, c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};
#pragma GCC unroll 1
        for (size_t j = 0; j < rows; j += 16) {
#pragma GCC unroll 4
            for (size_t i = j; i < j + 16; i += 4) {
                c0 -= (lanes_u8)(load_lanes(s->row[i]) >= guess);
                c1 -= (lanes_u8)(load_lanes(s->row[i + 1]) >= guess);
                c2 -= (lanes_u8)(load_lanes(s->row[i + 2]) >= guess);
                c3 -= (lanes_u8)(load_lanes(s->row[i + 3]) >= guess);
                OPAQUE_LANES(c0); /* otherwise the compiler merges the four counters into one dependency chain */
                OPAQUE_LANES(c1);
                OPAQUE_LANES(c2);
                OPAQUE_LANES(c3);
            }
        }
        lanes_u8 count = (c0 + c1) + (c2 + c3), enough = (lanes_u8)(count >= k);
        threshold = (guess & enough) | (threshold & ~enough);
        reached = (count & enough) | (reached & ~enough);
    }
    memcpy(s->reached, &reached, sizeof reached);
    memcpy(s->threshold, &threshold, sizeof threshold);
}

/*
 * Unmark the smallest of the elements tied at the threshold until k are marked; of equal ones, the last first. Slot j
 * is element j or, with a list of groups, an element of group j / 4. Returns false if there are too many ties.
 *
 *   tied   the marked slots that are tied, one bit each; overwritten
 */
INLINE bool drop_ties(frugi_batch *batch, size_t b, uint32_t block, uint32_t words, uint64_t *tied,
                      const uint8_t *list) {
    frugi_batch_scratch *s = batch->lanes;
    const float *acc = batch->acc + block * b;
    uint32_t shift = batch->select == FRUGI_SELECT_EXACT ? 0 : 16, ties = 0;
    for (uint32_t w = 0; w < words; w++)
        ties += (uint32_t)__builtin_popcountll(tied[w]);
    if (ties > MAX_TIES)
        return false;
    for (uint32_t excess = s->found[b] - batch->k[b]; excess; excess--) {
        uint32_t smallest = UINT32_MAX, at = 0;
        for (uint32_t w = 0; w < words; w++)
            for (uint64_t bits = tied[w]; bits; bits &= bits - 1) {
                uint32_t j = 64 * w + (uint32_t)__builtin_ctzll(bits), i = list ? 4u * list[j / 4] + j % 4 : j;
                uint32_t magnitude = frugi_magnitude(acc[i]) >> shift;
                at = magnitude <= smallest ? j : at;
                smallest = magnitude <= smallest ? magnitude : smallest;
            }
        tied[at / 64] ^= 1ull << (at % 64);
        s->mark[b][at / 64] ^= 1ull << (at % 64);
    }
    return true;
}

/* The same; slots are tied whose key is the threshold. */
static __attribute__((noinline, unused)) bool resolve_block_ties(frugi_batch *batch, size_t b, uint32_t block,
                                                                 uint32_t words, const uint8_t *list) {
    frugi_batch_scratch *s = batch->lanes;
    uint64_t tied[BLOCK_MAX / 64];
    uint8_t t = s->threshold[b];
    for (uint32_t w = 0; w < words; w++)
        tied[w] = s->mark[b][w] & ~(t < 255 ? mask_ge_64(s->slot[b] + 64 * w, (uint8_t)(t + 1)) : 0);
    return drop_ties(batch, b, block, words, tied, list);
}

#endif

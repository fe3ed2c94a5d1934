/*
 * block_topk_lanes.h - what the bodies of the SIMD variants share: a search for the k-th largest
 * byte of sixteen blocks at once, ties, and a slow way that bisects one block alone.
 *
 * A column of s->row is a block's keys, bytes that order its elements roughly; where keys say
 * too little, whole magnitudes decide. What reaches the threshold is marked by one bit each.
 *
 * The including file has the primitives of block_topk_neon.h or block_topk_avx2.h.
 */
#ifndef FRUGI_BLOCK_TOPK_LANES_H
#define FRUGI_BLOCK_TOPK_LANES_H

#include "base/float_bits.h"
#include "select/block_kernel.h"
#include "select/bit_positions.h"

#include <string.h>

#define BLOCK_MOST 256u
#define TIES       32u     /* more go the slow way */
#define INF_HALF   0x7f80u /* upper half of infinity */

INLINE lanes_u8 load_lanes(const uint8_t *p) {
    lanes_u8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The numbers of the set bits of x, from `start` on, ascending; writes up to 8 bytes past them. Returns how many. */
INLINE uint32_t expand(uint64_t x, uint8_t start, uint32_t bytes, uint8_t *dst) {
    uint64_t upto = byte_counts(x) * 0x0101010101010101u, before = upto << 8, offset = start * 0x0101010101010101u;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8 * bytes; i += 8) {
        uint64_t eight = frugi_bit_places[(x >> i) & 255u] + offset;
        memcpy(dst + ((before >> i) & 255u), &eight, 8);
        offset += 0x0808080808080808u;
        KEEP(offset); /* or the compiler builds constants of four instructions each */
    }
    return (uint32_t)(upto >> 56);
}

/* ---- the slow way ---------------------------------------------------------------------------- */

typedef uint16_t eight_u16 __attribute__((vector_size(16)));

/* How many of n keys are at least t. */
static uint32_t count_reaching(const uint16_t *key, uint32_t n, uint16_t t) {
    eight_u16 c[4] = {{0}}, v[4];
    for (size_t i = 0; i < n; i += 32) {
        memcpy(v, key + i, sizeof v);
        for (size_t j = 0; j < 4; j++) {
            c[j] -= (eight_u16)(v[j] >= t);
            KEEP_LANES(c[j]); /* or the four sums become one chain */
        }
    }
    eight_u16 sum = (c[0] + c[1]) + (c[2] + c[3]);
    return (uint32_t)(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
}

/* The k-th largest of n. */
static uint32_t bisect(const uint16_t *key, uint32_t n, uint32_t k) {
    uint32_t threshold = 0;
    for (uint32_t bit = 0x8000; bit; bit >>= 1)
        if (count_reaching(key, n, (uint16_t)(threshold | bit)) >= k)
            threshold |= bit;
    return threshold;
}

/* rank[i] becomes 2 for those that win, 1 for those tied at the threshold, else 0. */
static void rank_slowly(const float *acc, uint32_t n, uint32_t k, bool exact, uint8_t *rank) {
    uint16_t half[BLOCK_MOST], low[BLOCK_MOST], any = 0;
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

static uint32_t count_winners(const uint8_t *rank, uint32_t n) {
    uint32_t winners = 0;
    for (uint32_t w = 0; w < n / 64; w++)
        winners += (uint32_t)__builtin_popcountll(reach_64(rank + 64 * w, 2));
    return winners;
}

static __attribute__((noinline)) void take_slowly(frugi_batch *batch, size_t b, uint32_t block) {
    const float *acc = batch->acc + block * b;
    uint16_t *idx = batch->idx + block * b;
    uint32_t k = batch->k[b], n = 0;
    bool exact = batch->select == FRUGI_SELECT_EXACT;
    uint8_t rank[BLOCK_MOST] = {0}, list[BLOCK_MOST + 8];
    /* Mostly the block is sparse: what is not zero wins, and zeros are tied. */
    for (uint32_t i = 0; i < block; i++)
        rank[i] = frugi_magnitude(acc[i]) > (exact ? 0u : 0xffffu) ? 2 : 1;
    if (count_winners(rank, block) > k)
        rank_slowly(acc, block, k, exact, rank);
    uint32_t room = k - count_winners(rank, block);
    for (uint32_t w = 0; w < block / 64; w++) {
        uint64_t won = reach_64(rank + 64 * w, 2), tied = reach_64(rank + 64 * w, 1) ^ won;
        for (; tied && room; tied &= tied - 1, room--)
            won |= tied & -tied;
        n += expand(won, (uint8_t)(64 * w), 8, list + n);
    }
    for (uint32_t j = 0; j < k; j++)
        idx[j] = list[j];
}

/* ---- sixteen blocks at once ------------------------------------------------------------------ */

/* The k-th largest key of every block, and how many reach it; `first` is the highest bit that may be set. */
INLINE void search(frugi_lanes *s, size_t rows, int first, lanes_u8 k) {
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
                KEEP_LANES(c0); /* or the four sums become one chain */
                KEEP_LANES(c1);
                KEEP_LANES(c2);
                KEEP_LANES(c3);
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
 * Unmark the smallest of those tied at the threshold until k are left; of equals the last goes first. Slot j stands for
 * element j or, with a list of groups, for one of group j / 4. False where too many are tied.
 */
static __attribute__((noinline)) bool settle(frugi_batch *batch, size_t b, uint32_t block, uint32_t words,
                                             const uint8_t *list) {
    frugi_lanes *s = batch->lanes;
    const float *acc = batch->acc + block * b;
    uint32_t magnitude[TIES], at[TIES], n = 0, shift = batch->select == FRUGI_SELECT_EXACT ? 0 : 16;
    uint8_t t = s->threshold[b];
    for (uint32_t w = 0; w < words; w++) {
        uint64_t above = t < 255 ? reach_64(s->slot[b] + 64 * w, (uint8_t)(t + 1)) : 0;
        for (uint64_t tied = s->mark[b][w] & ~above; tied; tied &= tied - 1) {
            if (n == TIES)
                return false;
            uint32_t j = 64 * w + (uint32_t)__builtin_ctzll(tied), i = list ? 4u * list[j / 4] + j % 4 : j;
            magnitude[n] = frugi_magnitude(acc[i]) >> shift;
            at[n++] = j;
        }
    }
    for (uint32_t excess = s->found[b] - batch->k[b]; excess; excess--) {
        uint32_t least = 0;
        for (uint32_t j = 1; j < n; j++)
            least = magnitude[j] <= magnitude[least] ? j : least;
        s->mark[b][at[least] / 64] ^= 1ull << (at[least] % 64);
        magnitude[least] = UINT32_MAX;
    }
    return true;
}

#endif

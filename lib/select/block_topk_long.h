/*
 * block_topk_long.h - select k of 1024 to 4096 without sorting; the body of the SIMD variants.
 *
 * A key is the upper half of a magnitude. At least k entries reach the k-th largest of the maxima of groups of
 * elements, and hardly more if there are several times as many groups as k. So:
 *
 *  1. While accumulating, store the key of the largest element of each group: of sixteen consecutive elements if k is
 *     small, otherwise of any four.
 *  2. Find a bound that k of these keys reach, and few more, by bisection. Merge groups first if there are many.
 *  3. List the elements that reach the bound, the candidates. If k is small, only groups that reach it are searched.
 *  4. Find the k-th largest candidate by bisection of whole magnitudes, and write the indices of those that reach it.
 *
 * If fewer than k entries are not zero, all of them are selected, and zeros in index order. There is no other slow
 * path: ties, and values that differ by many octaves, cost more rounds of bisection or more candidates.
 *
 * The including file includes the primitives of block_topk_neon.h or of the file for another variant, and defines
 *   accumulate_64(grad, before, acc, saved, beta, group, max)   accumulate; the keys of the groups' largest elements
 *   copy_keys(x, key)                              the keys of sixteen elements
 *   mask_keys_64(key, t)                           one bit per key that is at least t
 *   mask_floats_64(x, t)                           one bit per element whose key is at least t
 *   count_keys(key, n, t)                          the number of keys that are at least t; n is a multiple of 32
 *   count_candidates(magnitude, n, t)              the same for magnitudes; n is rounded up to a multiple of 16
 *   keep_candidates(magnitude, index, n, t, idx)   write the index of each magnitude that is at least t
 */
#include "base/float_bits.h"
#include "select/block_kernel.h"
#include "select/expand_bits.h"

#include <string.h>

#define INF_KEY 0x7f80u /* key of infinity */
#define RUN     16u     /* elements of a group if k is small */
#define PAGE    256u    /* positions in a page are one byte */

typedef uint16_t lanes_u16 __attribute__((vector_size(32)));

/* Whether k is small in all blocks. */
static bool has_small_k(const frugi_batch *batch) {
    uint32_t most = 0;
    for (uint32_t b = 0; b < batch->blocks; b++)
        most = batch->k[b] > most ? batch->k[b] : most;
    return most <= batch->block / 64;
}

INLINE void accumulate_batch(const frugi_batch *batch, uint32_t group, float *saved) {
    const frugi_batch b = *batch; /* a copy, which the stores cannot alias */
    uint16_t *max = b.lanes->longer.max;
    for (size_t i = 0; i < (size_t)b.blocks * b.block; i += 64)
        accumulate_64(b.grad + i, b.before + i, b.acc + i, saved ? saved + i : NULL, b.beta, group, max + i / group);
}

/* Several loops, so that nothing is tested for every vector. */
static void accumulate(frugi_batch *batch) {
    bool small = has_small_k(batch);
    if (small && batch->saved)
        accumulate_batch(batch, RUN, batch->saved);
    else if (small)
        accumulate_batch(batch, RUN, NULL);
    else if (batch->saved)
        accumulate_batch(batch, 4, batch->saved);
    else
        accumulate_batch(batch, 4, NULL);
}

/* The largest of n keys; four maxima, because each depends on the one before. */
static uint16_t largest_key(const uint16_t *key, uint32_t n) {
    uint16_t m[4] = {0};
    n /= 4;
    for (uint32_t i = 0; i < n; i++) {
        m[0] = key[i] > m[0] ? key[i] : m[0];
        m[1] = key[i + n] > m[1] ? key[i + n] : m[1];
        m[2] = key[i + 2 * n] > m[2] ? key[i + 2 * n] : m[2];
        m[3] = key[i + 3 * n] > m[3] ? key[i + 3 * n] : m[3];
    }
    m[0] = m[0] > m[1] ? m[0] : m[1];
    m[2] = m[2] > m[3] ? m[2] : m[3];
    return m[0] > m[2] ? m[0] : m[2];
}

/* Maxima of four keys each. Returns their number. */
static uint32_t merge(const uint16_t *key, uint32_t n, uint16_t *to) {
    n /= 4;
    for (uint32_t i = 0; i < n; i++) {
        uint16_t a = key[i] > key[i + n] ? key[i] : key[i + n];
        uint16_t b = key[i + 2 * n] > key[i + 3 * n] ? key[i + 2 * n] : key[i + 3 * n];
        to[i] = a > b ? a : b;
    }
    return n;
}

typedef struct bracket {
    uint32_t low, reached; /* a threshold, and the number of keys that reach it: at least k */
    uint32_t high;         /* a threshold that fewer than k reach */
} bracket;

INLINE void narrow(bracket *at, uint32_t guess, uint32_t count, uint32_t k) {
    if (count >= k) {
        at->low = guess;
        at->reached = count;
    } else {
        at->high = guess;
    }
}

/* A key that at least k of n keys reach and, if there is one, not many more. */
static uint16_t find_bound(const uint16_t *key, uint32_t n, uint32_t k, uint16_t top) {
    uint16_t merged[FRUGI_LONG_ELEMENTS / 8], *to = merged;
    for (; n >= 8 * k && n >= 128; to += n) {
        n = merge(key, n, to);
        key = to;
    }
    bracket at = {.reached = n, .high = top + 1u};
    for (uint32_t step = 64; at.low == 0 && at.high > 1; step *= 2) { /* usually it is within an octave of the top */
        uint32_t guess = top > step ? top - step : 1;
        narrow(&at, guess, count_keys(key, n, (uint16_t)guess), k);
    }
    while (at.reached > k + k / 8 + 4 && at.high - at.low > 1) {
        uint32_t guess = (at.low + at.high) / 2;
        narrow(&at, guess, count_keys(key, n, (uint16_t)guess), k);
    }
    return (uint16_t)at.low;
}

/*
 * List the runs that reach the bound, and then the elements of these that do. Returns their number. What one loop
 * writes in overlapping pieces is read by the next one, when it has reached the cache.
 */
static uint32_t list_in_runs(frugi_long_scratch *s, const float *acc, uint32_t runs, const uint16_t *max,
                             uint16_t bound) {
    uint32_t listed = 0, n = 0, end[FRUGI_LONG_ELEMENTS / PAGE];
    for (uint32_t i = 0; i < runs; i += 64)
        listed += expand_bits(mask_keys_64(max + i, bound), (uint8_t)i, 8, s->list + listed);
    for (uint32_t i = 0; i < listed; i++)
        copy_keys(acc + RUN * s->list[i], s->key + RUN * i);
    memset(s->key + RUN * listed, 0, 64 * sizeof *s->key);
    for (uint32_t i = 0; i < RUN * listed; i += 64) {
        n += expand_bits(mask_keys_64(s->key + i, bound), (uint8_t)i, 8, s->position + n);
        end[i / PAGE] = n;
    }
    for (uint32_t page = 0, j = 0; j < n; page++)
        for (const uint8_t *list = s->list + page * (PAGE / RUN); j < end[page]; j++)
            s->index[j] = (uint16_t)(RUN * list[s->position[j] / RUN] + s->position[j] % RUN);
    return n;
}

/* List the elements of block b that reach the bound. Returns their number. */
static uint32_t list_in_block(const frugi_batch *batch, uint32_t b, uint16_t bound) {
    frugi_long_scratch *s = &batch->lanes->longer;
    const size_t first = (size_t)b * batch->block;
    uint32_t n = 0, start[FRUGI_LONG_ELEMENTS / PAGE + 1] = {0};
    for (uint32_t page = 0; page < batch->block / PAGE; page++) {
        for (uint32_t i = 0; i < PAGE; i += 64) {
            size_t at = first + PAGE * page + i;
            prefetch_next(batch, at);
            n += expand_bits(mask_floats_64(batch->acc + at, bound), (uint8_t)i, 8, s->position + n);
        }
        start[page + 1] = n;
    }
    for (uint32_t page = 0; page < batch->block / PAGE; page++)
        for (uint32_t j = start[page]; j < start[page + 1]; j += 16) {
            lanes_u8 position;
            memcpy(&position, s->position + j, sizeof position);
            lanes_u16 index = __builtin_convertvector(position, lanes_u16) + (uint16_t)(PAGE * page);
            memcpy(s->index + j, &index, sizeof index);
        }
    return n;
}

/* List the elements of block b that are not zero, where bits outside the mask do not count. Returns their number. */
static uint32_t list_nonzero(const frugi_batch *batch, uint32_t b, uint32_t mask) {
    uint16_t *index = batch->lanes->longer.index;
    const float *acc = batch->acc + (size_t)b * batch->block;
    uint32_t all = 0, listed = list_in_block(batch, b, 1);
    for (uint32_t i = 0; i < batch->block; i++)
        all += (frugi_f32_bits(acc[i]) & mask) != 0;
    if (listed == all)
        return all;
    for (uint32_t i = 0, n = 0; n < all; i++) { /* some are so small that their keys are zero */
        index[n] = (uint16_t)i;
        n += (frugi_f32_bits(acc[i]) & mask) != 0;
    }
    return all;
}

static uint32_t smallest_magnitude(const uint32_t *magnitude, uint32_t n) {
    uint32_t least = magnitude[0];
    for (uint32_t i = 1; i < n; i++)
        least = magnitude[i] < least ? magnitude[i] : least;
    return least;
}

/* Find the largest multiple of `unit` that at least k of n candidates reach; all of them reach at.low. */
static bracket find_threshold(const uint32_t *magnitude, uint32_t n, uint32_t k, uint32_t unit, bracket at) {
    if (n > 4 * k) { /* probably because many are equal */
        at.low = smallest_magnitude(magnitude, n);
        narrow(&at, at.low + unit, count_candidates(magnitude, n, at.low + unit), k);
    }
    while (at.reached > k && at.high - at.low > unit) {
        uint32_t guess = at.low + (at.high - at.low) / unit / 2 * unit;
        narrow(&at, guess, count_candidates(magnitude, n, guess), k);
    }
    return at;
}

/* Write the indices of the k largest of n candidates; of equal ones, the first. */
static void write_largest(const frugi_long_scratch *s, uint32_t n, uint32_t k, uint32_t unit, bracket at,
                          uint16_t *idx) {
    at = find_threshold(s->magnitude, n, k, unit, at);
    if (at.reached == k) {
        keep_candidates(s->magnitude, s->index, n, at.low, idx);
        return;
    }
    uint32_t ties = k - count_candidates(s->magnitude, n, at.low + 1);
    for (uint32_t i = 0, out = 0; out < k; i++) {
        uint32_t tie = s->magnitude[i] == at.low && ties;
        idx[out] = s->index[i];
        out += tie | (s->magnitude[i] > at.low);
        ties -= tie;
    }
}

/* Write the indices of all n candidates and of the first other elements, which are zero, until there are k. */
static void write_with_zeros(const uint16_t *index, uint32_t n, uint32_t k, uint16_t *idx) {
    uint32_t zeros = k - n, c = 0, out = 0;
    for (; zeros; out++) {
        bool candidate = c < n && index[c] == out;
        idx[out] = (uint16_t)out;
        c += candidate;
        zeros -= !candidate;
    }
    memcpy(idx + out, index + c, (n - c) * sizeof *idx);
}

/* Find the bound: in the keys of all elements if there are too few groups. */
static uint16_t find_bound_of_block(frugi_long_scratch *s, const float *acc, uint32_t block, uint32_t k,
                                    const uint16_t *max, uint32_t groups, uint16_t top) {
    if (2 * k <= groups)
        return find_bound(max, groups, k, top);
    for (uint32_t i = 0; i < block; i += RUN)
        copy_keys(acc + i, s->key + i);
    return find_bound(s->key, block, k, top);
}

static void select_block(frugi_batch *batch, uint32_t b, bool small) {
    frugi_long_scratch *s = &batch->lanes->longer;
    const uint32_t block = batch->block, k = batch->k[b], groups = block / (small ? RUN : 4);
    const uint32_t unit = batch->select == FRUGI_SELECT_EXACT ? 1 : 0x10000u, mask = FRUGI_ABS_MASK & -unit;
    const float *acc = batch->acc + (size_t)b * block;
    const uint16_t *max = s->max + (size_t)b * groups;
    uint16_t *idx = batch->idx + (size_t)b * block, top = largest_key(max, groups);
    batch->skipped[b] = top >= INF_KEY;
    if (batch->skipped[b] || k == 0)
        return;
    uint16_t bound = find_bound_of_block(s, acc, block, k, max, groups, top);
    uint32_t n = !bound  ? list_nonzero(batch, b, mask)
                 : small ? list_in_runs(s, acc, groups, max, bound)
                         : list_in_block(batch, b, bound);
    if (n < k) {
        write_with_zeros(s->index, n, k, idx);
        return;
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++)
        s->magnitude[i] = frugi_f32_bits(acc[s->index[i]]) & mask;
    memset(s->magnitude + n, 0, 16 * sizeof *s->magnitude);
    bracket at = {.low = bound ? (uint32_t)bound << 16 : unit, .reached = n, .high = (top + 1u) << 16};
    write_largest(s, n, k, unit, at, idx);
}

static void select_batch(frugi_batch *batch) {
    bool small = has_small_k(batch);
    for (uint32_t b = 0; b < batch->blocks; b++)
        select_block(batch, b, small);
}

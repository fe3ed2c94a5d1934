/*
 * kernel_256.h - select 1 .. 256 of 256 without sorting; the body of the SIMD variants.
 *
 * Which entries win is a pure function of the accumulator; a prediction only
 * decides how fast the answer is found:
 *
 *  1. While accumulating, mark the entries that reach a guess somewhat below
 *     the block's threshold of last step. Some 1.7 k candidates pass. `lag` follows
 *     the low quantile of (this step's threshold - last step's), so that the guess is
 *     too high for about one block in thirty; that block is marked again lower down.
 *  2. Turn the marks into candidate indices by table, eight at a time, and lay the
 *     candidates out with one column per block: sixteen blocks then search their
 *     thresholds together, one byte lane each, with no reduction at all. A candidate's
 *     byte (its rank) is how far the upper half of its magnitude lies above the guess.
 *  3. Eight rounds of bisection; everything above the threshold wins, the rest
 *     comes from those on it: in index order (hist), or by whole magnitude (exact).
 *
 * NaN and infinity are never below the guess and have the largest ranks, so they need
 * no pass of their own. Whatever does not fit (a threshold beyond the byte's reach,
 * more than MOST candidates, many ties) goes to the reference selector.
 *
 * The including file defines
 *   mark_sum(batch, block, guess, mark)   accumulate 256 elements; one bit per element not below guess
 *   mark_again(acc, guess, mark)          the same bits for what is accumulated
 *   rank_row(word, base, rank)            sixteen candidates to ranks: min(255, max(0, upper half - base))
 *   byte_counts(word)                     the number of set bits of each byte
 *   compact(src, bits, dst)               the bytes src[i] with bit i set, as u16
 */
#include "common/bits.h"
#include "compress/kernel.h"
#include "compress/kernel_table.h"
#include "select/select.h"

#include <string.h>

#define MOST 248u       /* candidates per block; a count must fit a byte */
#define MANY_TIES 16u   /* beyond this the reference is faster */
#define TOP_BASE 0x7f00 /* leaves the keys of NaN and infinity above zero */

typedef uint8_t lanes_u8 __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) lanes_u8 load_lanes(const uint8_t *p) {
    lanes_u8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) uint32_t popcount_256(const uint64_t mark[4]) {
    uint64_t bytes = byte_counts(mark[0]) + byte_counts(mark[1]) + byte_counts(mark[2]) + byte_counts(mark[3]);
    /* A byte holds at most 32; pairs of bytes first, for eight of them may pass 255. */
    bytes = (bytes & 0x00ff00ff00ff00ffu) + ((bytes >> 8) & 0x00ff00ff00ff00ffu);
    return (uint32_t)((bytes * 0x0001000100010001u) >> 48);
}

/* The numbers of the set bits, ascending; writes up to 8 bytes past them. */
static inline __attribute__((always_inline)) void expand(const uint64_t mark[4], uint8_t *dst) {
    uint64_t offset = 0;
#pragma GCC unroll 4
    for (int w = 0; w < 4; w++) {
        uint64_t x = mark[w], upto = byte_counts(x) * 0x0101010101010101u, before = upto << 8;
#pragma GCC unroll 8
        for (int i = 0; i < 64; i += 8) {
            uint64_t eight = frugi_bit_places[(x >> i) & 255u] + offset;
            memcpy(dst + ((before >> i) & 255u), &eight, 8);
            offset += 0x0808080808080808u;
            KEEP(offset); /* or the compiler builds 32 constants of four instructions each */
        }
        dst += upto >> 56;
    }
}

static inline __attribute__((always_inline)) float guess_above(uint16_t base) {
    return frugi_bits_f32(((uint32_t)base + 1) << 16);
}

static void accumulate(frugi_batch *batch) {
    frugi_lanes *s = batch->lanes;
    int32_t lag = *batch->lag >> 4;
    for (uint32_t b = 0; b < batch->blocks; b++) {
        int32_t base = batch->predict[b] + lag;
        s->base[b] = (uint16_t)(base < 0 ? 0 : base > TOP_BASE ? TOP_BASE : base);
        mark_sum(batch, b, guess_above(s->base[b]), s->mark[b]);
    }
}

/* Lower the guess until k entries reach it; the number that do. */
static __attribute__((noinline)) uint32_t lower_guess(const float *acc, frugi_lanes *s, uint32_t b, uint32_t k) {
    uint32_t found = 0;
    for (int32_t drop = 64; found < k && s->base[b] > 0; drop *= 2) {
        s->base[b] = (uint16_t)(s->base[b] > drop ? s->base[b] - drop : 0);
        mark_again(acc, guess_above(s->base[b]), s->mark[b]);
        found = popcount_256(s->mark[b]);
    }
    return found;
}

/* Candidates of one block into column b. Returns their number, or 0 when it must take the reference. */
static inline __attribute__((always_inline)) uint32_t collect(frugi_batch *batch, uint32_t b) {
    frugi_lanes *s = batch->lanes;
    const float *acc = batch->acc + 256 * (size_t)b;
    uint32_t found = popcount_256(s->mark[b]), k = batch->k[b];
    if (__builtin_expect(found < k, 0)) {
        found = lower_guess(acc, s, b, k);
        *batch->lag -= 128;
    } else {
        *batch->lag += 4;
    }
    if (found > MOST || found < k)
        return 0;
    const uint8_t *candidate = s->candidate[b];
    expand(s->mark[b], s->candidate[b]);
    /* The same number of rounds for most blocks: a loop end that the CPU foresees is worth a few idle copies. */
    uint32_t rows = found > 2 * k ? found : 2 * k;
    float *column = &s->word[0][b];
    for (uint32_t j = 0; j < rows; j += 8, candidate += 8, column += 8 * FRUGI_LANES) {
        column[0 * FRUGI_LANES] = acc[candidate[0]];
        column[1 * FRUGI_LANES] = acc[candidate[1]];
        column[2 * FRUGI_LANES] = acc[candidate[2]];
        column[3 * FRUGI_LANES] = acc[candidate[3]];
        column[4 * FRUGI_LANES] = acc[candidate[4]];
        column[5 * FRUGI_LANES] = acc[candidate[5]];
        column[6 * FRUGI_LANES] = acc[candidate[6]];
        column[7 * FRUGI_LANES] = acc[candidate[7]];
    }
    return found;
}

/* The ranks of all candidates; zero below a column's end, where what stands there is stale. Returns who has a 255. */
static lanes_u8 rank_all(frugi_lanes *s, uint32_t rows) {
    lanes_u8 found = load_lanes(s->found), row = {0}, wild = {0};
    for (uint32_t j = 0; j < rows; j++, row += 1) {
        rank_row(s->word[j], s->base, s->rank[j]);
        lanes_u8 rank = load_lanes(s->rank[j]) & (lanes_u8)(row < found);
        memcpy(s->rank[j], &rank, sizeof rank);
        wild |= (lanes_u8)(rank == 255);
    }
    return wild;
}

/* The rank of each block's k-th largest candidate, all blocks at once. */
static lanes_u8 search(const frugi_lanes *s, uint32_t rows, lanes_u8 k) {
    lanes_u8 threshold = {0};
    for (int bit = 128; bit; bit >>= 1) {
        lanes_u8 guess = threshold | (uint8_t)bit, c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};
        for (uint32_t j = 0; j < rows; j += 8) {
            c0 -= (lanes_u8)(load_lanes(s->rank[j]) >= guess);
            c1 -= (lanes_u8)(load_lanes(s->rank[j + 1]) >= guess);
            c2 -= (lanes_u8)(load_lanes(s->rank[j + 2]) >= guess);
            c3 -= (lanes_u8)(load_lanes(s->rank[j + 3]) >= guess);
            c0 -= (lanes_u8)(load_lanes(s->rank[j + 4]) >= guess);
            c1 -= (lanes_u8)(load_lanes(s->rank[j + 5]) >= guess);
            c2 -= (lanes_u8)(load_lanes(s->rank[j + 6]) >= guess);
            c3 -= (lanes_u8)(load_lanes(s->rank[j + 7]) >= guess);
        }
        lanes_u8 enough = (lanes_u8)((c0 + c1) + (c2 + c3) >= k);
        threshold = (guess & enough) | (threshold & ~enough);
    }
    return threshold;
}

/* hist: all above the threshold, and those on it in index order until k. */
static void win_in_order(frugi_lanes *s, uint32_t rows, lanes_u8 threshold, lanes_u8 k) {
    lanes_u8 room = k;
    for (uint32_t j = 0; j < rows; j++)
        room += (lanes_u8)(load_lanes(s->rank[j]) > threshold);
    for (uint32_t j = 0; j < rows; j += 8) {
        lanes_u8 bits = {0};
        for (uint32_t i = 0; i < 8; i++) {
            lanes_u8 rank = load_lanes(s->rank[j + i]);
            lanes_u8 on_it = (lanes_u8)(rank == threshold) & (lanes_u8)(room > 0);
            room += on_it;
            bits |= ((lanes_u8)(rank > threshold) | on_it) & (uint8_t)(1u << i);
        }
        memcpy(s->win[j / 8], &bits, sizeof bits);
    }
}

/* exact: all that reach the threshold; what is too many is dropped later, by whole magnitude. */
static void win_reaching(frugi_lanes *s, uint32_t rows, lanes_u8 threshold) {
    for (uint32_t j = 0; j < rows; j += 8) {
        lanes_u8 bits = {0};
        for (uint32_t i = 0; i < 8; i++)
            bits |= (lanes_u8)(load_lanes(s->rank[j + i]) >= threshold) & (uint8_t)(1u << i);
        memcpy(s->win[j / 8], &bits, sizeof bits);
    }
}

/* Drop the smallest of n until k are left; of equals the last goes first. */
static __attribute__((noinline)) void drop_smallest(const float *acc, uint16_t *idx, uint32_t n, uint32_t k) {
    uint32_t magnitude[256 + 8];
    for (uint32_t j = 0; j < n; j++)
        magnitude[j] = frugi_magnitude(acc[idx[j]]);
    for (; n > k; n--) {
        uint32_t least = magnitude[0], at = 0;
        for (uint32_t j = 1; j < n; j++) {
            at = magnitude[j] <= least ? j : at;
            least = magnitude[j] <= least ? magnitude[j] : least;
        }
        for (uint32_t j = at; j + 1 < n; j++) {
            idx[j] = idx[j + 1];
            magnitude[j] = magnitude[j + 1];
        }
    }
}

static bool any_not_finite(const float *acc, const uint16_t *idx, uint32_t n) {
    uint32_t largest = 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t m = frugi_magnitude(acc[idx[j]]);
        largest = m > largest ? m : largest;
    }
    return largest >= FRUGI_INF_BITS;
}

/* A block too sparse, too tied or too wild for the fast way. */
static __attribute__((noinline)) void take_reference(frugi_batch *batch, uint32_t b) {
    const float *acc = batch->acc + 256 * b;
    uint16_t *idx = batch->idx + 256 * b;
    uint32_t k = batch->k[b], least = FRUGI_ABS_MASK, lost = 0;
    for (uint32_t i = 0; i < 256; i++)
        lost |= frugi_magnitude(acc[i]) >= FRUGI_INF_BITS;
    batch->held[b] = lost != 0;
    if (lost)
        return;
    frugi_select_ref(acc, 256, k, batch->select, idx);
    for (uint32_t j = 0; j < k; j++) {
        uint32_t m = frugi_magnitude(acc[idx[j]]);
        least = m < least ? m : least;
    }
    batch->predict[b] = (uint16_t)(least >> 16);
}

/* Fewer than k entries differ from zero by an upper half: they all win, and the lowest of the rest fill up. */
static bool take_sparse(frugi_batch *batch, uint32_t b) {
    frugi_lanes *s = batch->lanes;
    uint32_t k = batch->k[b], found = popcount_256(s->mark[b]), small = 0;
    if (s->base[b] != 0 || found >= k)
        return false;
    const float *acc = batch->acc + 256 * b;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t m = frugi_magnitude(acc[i]);
        small |= m < 0x10000u ? m : 0;
    }
    if (small && batch->select == FRUGI_SELECT_EXACT)
        return false;
    uint8_t list[256 + 8];
    for (uint32_t w = 0; w < 4; w++)
        for (; found < k && ~s->mark[b][w]; found++)
            s->mark[b][w] |= s->mark[b][w] + 1; /* sets the lowest clear bit */
    expand(s->mark[b], list);
    for (uint32_t j = 0; j < k; j++)
        batch->idx[256 * b + j] = list[j];
    batch->held[b] = any_not_finite(acc, batch->idx + 256 * b, k);
    batch->predict[b] = 0;
    return true;
}

/* Turn block b's column of winners into its index list. */
static inline __attribute__((always_inline)) void emit(frugi_batch *batch, uint32_t b, uint32_t rows) {
    frugi_lanes *s = batch->lanes;
    const float *acc = batch->acc + 256 * (size_t)b;
    uint16_t *idx = batch->idx + 256 * (size_t)b;
    uint32_t n = 0, k = batch->k[b];
    for (uint32_t j = 0; j < rows; j += 8) {
        uint8_t bits = s->win[j / 8][b];
        compact(s->candidate[b] + j, bits, idx + n);
        n += frugi_bit_count[bits];
    }
    if (__builtin_expect(s->threshold[b] == 255 || n - k > MANY_TIES, 0)) {
        take_reference(batch, b);
        return;
    }
    if (n > k)
        drop_smallest(acc, idx, n, k);
    batch->predict[b] = (uint16_t)(s->base[b] + s->threshold[b]);
    batch->held[b] = s->wild[b] && any_not_finite(acc, idx, k);
}

static void select_batch(frugi_batch *batch) {
    frugi_lanes *s = batch->lanes;
    uint8_t k[FRUGI_LANES] = {0};
    uint32_t rows = 8;
    for (uint32_t b = 0; b < batch->blocks; b++) {
        uint32_t found = collect(batch, b);
        s->found[b] = (uint8_t)found;
        k[b] = (uint8_t)batch->k[b];
        rows = found > rows ? found : rows;
    }
    rows = (rows + 7) & ~7u;
    lanes_u8 wild = rank_all(s, rows), threshold = search(s, rows, load_lanes(k));
    memcpy(s->wild, &wild, sizeof wild);
    memcpy(s->threshold, &threshold, sizeof threshold);
    if (batch->select == FRUGI_SELECT_HIST)
        win_in_order(s, rows, threshold, load_lanes(k));
    else
        win_reaching(s, rows, threshold);
    for (uint32_t b = 0; b < batch->blocks; b++) {
        if (s->found[b])
            emit(batch, b, rows);
        else if (!take_sparse(batch, b))
            take_reference(batch, b);
    }
}

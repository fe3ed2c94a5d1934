/*
 * kernel_256.h - select 1 .. 256 of 256 without sorting; the body of the SIMD variants.
 *
 * Take the largest of every four neighbours: 64 maxima. At least k entries reach the
 * k-th largest of these, and of random or recorded gradients hardly more: 18 to 25 for
 * k = 16. So, for k up to FEW:
 *
 *  1. While accumulating, keep the maxima as one byte each: how far the upper half of
 *     the magnitude lies above (block maximum - 255), which is two octaves further down.
 *  2. Find the k-th largest byte, for sixteen blocks at once: lay the bytes out with
 *     one column per block, so that bisection needs no sum across a vector.
 *  3. List the groups that reach it (a table turns eight bits into indices) and give
 *     each of their elements (slots) a finer byte, counted from that bound.
 *  4. Find the k-th largest of those in the same way; what reaches it wins. If more than
 *     k do, the entries on the threshold are compared by whole magnitude.
 *
 * A larger k takes all 256 elements as slots, with coarser bytes that span eight octaves.
 * Every loop has a fixed length and no prediction from earlier steps is needed, so speed
 * hardly depends on the data. What does not fit (a threshold below the bytes' reach, too
 * many groups or ties) goes a slower way that bisects the block alone.
 *
 * Stages run over all blocks one after the other: a stage that read at once what the
 * one before wrote piecemeal would wait for the stores.
 *
 * The including file defines
 *   sum_block(batch, b)                      accumulate; set top[b] and group[b]
 *   ahead(batch, b, part)                    fetch a quarter of what block b of the next batch will read
 *   transpose(src, stride, dst)              16 rows of 16 bytes to 16 rows of 16
 *   reach_64(key, t), reach_16(key, t)       one bit per byte that is at least t
 *   rank_quad(acc, list, bound, exact, top)  16 keys, none above top, for the elements of four groups
 *   rank_16(acc, base)                       16 keys, coarser, for 16 elements in a row
 *   byte_counts(word)                        the number of set bits of each byte
 *   locate(list, slots, idx)                 16 slots of listed groups to element indices
 *   KEEP(word), KEEP_LANES(lanes)            a value the compiler must not look through
 */
#include "common/bits.h"
#include "compress/kernel.h"
#include "compress/kernel_table.h"

#include <string.h>

#define FEW    24u   /* 28 groups and 112 slots at most */
#define REACH  255u  /* the largest key */
#define COARSE 1023u /* what the largest coarse key stands for */
#define FINE_TOP(exact)                                                                                                \
    ((exact) ? 64 : 32)  /* highest bit of a slot's key when k is small; thresholds are seldom higher */
#define TIES     32u     /* more go the slow way */
#define INF_HALF 0x7f80u /* upper half of infinity */

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

/* How many of 256 keys are at least t. */
static uint32_t count_reaching(const uint16_t *key, uint16_t t) {
    eight_u16 c[4] = {{0}}, v[4];
    for (size_t i = 0; i < 256; i += 32) {
        memcpy(v, key + i, sizeof v);
        for (size_t j = 0; j < 4; j++) {
            c[j] -= (eight_u16)(v[j] >= t);
            KEEP_LANES(c[j]); /* or the four sums become one chain */
        }
    }
    eight_u16 sum = (c[0] + c[1]) + (c[2] + c[3]);
    return (uint32_t)(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
}

/* The k-th largest of 256. */
static uint32_t bisect(const uint16_t *key, uint32_t k) {
    uint32_t threshold = 0;
    for (uint32_t bit = 0x8000; bit; bit >>= 1)
        if (count_reaching(key, (uint16_t)(threshold | bit)) >= k)
            threshold |= bit;
    return threshold;
}

/* rank[i] becomes 2 for those that win, 1 for those tied at the threshold, else 0. */
static void rank_slowly(const float *acc, uint32_t k, bool exact, uint8_t *rank) {
    uint16_t half[256], low[256], any = 0;
    for (uint32_t i = 0; i < 256; i++)
        half[i] = (uint16_t)(frugi_magnitude(acc[i]) >> 16);
    uint16_t t = (uint16_t)bisect(half, k), u = 0;
    for (uint32_t i = 0; i < 256; i++) {
        low[i] = exact && half[i] == t ? (uint16_t)frugi_f32_bits(acc[i]) : 0;
        any |= low[i];
    }
    uint32_t above = count_reaching(half, (uint16_t)(t + 1));
    if (any && count_reaching(half, t) > k)
        u = (uint16_t)bisect(low, k - above);
    for (uint32_t i = 0; i < 256; i++)
        rank[i] = (uint8_t)((half[i] > t) * 2 + (half[i] == t) * ((low[i] > u) + (low[i] >= u)));
}

static uint32_t count_winners(const uint8_t *rank) {
    uint32_t n = 0;
    for (uint32_t w = 0; w < 4; w++)
        n += (uint32_t)__builtin_popcountll(reach_64(rank + 64 * w, 2));
    return n;
}

static __attribute__((noinline)) void take_slowly(frugi_batch *batch, size_t b) {
    const float *acc = batch->acc + 256 * b;
    uint16_t *idx = batch->idx + 256 * b;
    uint32_t k = batch->k[b], n = 0;
    bool exact = batch->select == FRUGI_SELECT_EXACT;
    uint8_t rank[256], list[256 + 8];
    /* Mostly the block is sparse: what is not zero wins, and zeros are tied. */
    for (uint32_t i = 0; i < 256; i++)
        rank[i] = frugi_magnitude(acc[i]) > (exact ? 0u : 0xffffu) ? 2 : 1;
    if (count_winners(rank) > k)
        rank_slowly(acc, k, exact, rank);
    uint32_t room = k - count_winners(rank);
    for (uint32_t w = 0; w < 4; w++) {
        uint64_t won = reach_64(rank + 64 * w, 2), tied = reach_64(rank + 64 * w, 1) ^ won;
        for (; tied && room; tied &= tied - 1, room--)
            won |= tied & -tied;
        n += expand(won, (uint8_t)(64 * w), 8, list + n);
    }
    for (uint32_t j = 0; j < k; j++)
        idx[j] = list[j];
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void accumulate(frugi_batch *batch) {
    for (size_t b = 0; b < batch->blocks; b++)
        sum_block(batch, b);
}

/* The k-th largest key of every block, all blocks at once; `first` is the highest bit that may be set. */
INLINE void search(frugi_lanes *s, size_t rows, int first, lanes_u8 k) {
    lanes_u8 threshold = {0};
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
        lanes_u8 enough = (lanes_u8)((c0 + c1) + (c2 + c3) >= k);
        threshold = (guess & enough) | (threshold & ~enough);
    }
    memcpy(s->threshold, &threshold, sizeof threshold);
}

INLINE void list_groups(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint8_t t = s->threshold[b];
        uint32_t base = s->top[b] > REACH ? s->top[b] - REACH : 0;
        ahead(batch, b, 0);
        memset(s->list[b], 0, 32); /* what is past the end is read, though not used */
        uint32_t n = expand(reach_64(s->group[b], t), 0, 8, s->list[b]);
        s->found[b] = (uint16_t)n;
        s->bound[b] = (uint16_t)(base + t);
        s->odd[b] = n > 4 * quads || s->top[b] >= INF_HALF;
    }
}

INLINE void rank_listed(frugi_batch *batch, uint32_t quads, bool exact) {
    frugi_lanes *s = batch->lanes;
    const lanes_u8 place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (size_t b = 0; b < batch->blocks; b++) {
        const float *acc = batch->acc + 256 * b;
        uint32_t full = batch->k[b] / 4; /* so many quads are listed whole; beyond the list's end is old stuff */
#pragma GCC unroll 8
        for (uint32_t q = 0; q < quads; q++) {
            lanes_u8 key = rank_quad(acc, s->list[b] + 4 * q, s->bound[b], exact, 2 * FINE_TOP(exact) - 1);
            if (q >= full)
                key &= (lanes_u8)(place + (uint8_t)(16 * q) < (uint8_t)(4 * s->found[b]));
            memcpy(s->slot[b] + 16 * q, &key, sizeof key);
        }
    }
}

INLINE void rank_all(frugi_batch *batch) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint16_t base = (uint16_t)(s->top[b] > COARSE ? s->top[b] - COARSE : 0);
        for (size_t i = 0; i < 256; i += 16) {
            lanes_u8 key = rank_16(batch->acc + 256 * b + i, base);
            memcpy(s->slot[b] + i, &key, sizeof key);
        }
    }
}

/* The slots that reach the threshold. */
INLINE void mark_slots(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        const uint8_t *slot = s->slot[b], t = s->threshold[b];
        uint64_t counts = 0;
        ahead(batch, b, 1);
        for (uint32_t w = 0; w < (quads + 3) / 4; w++) {
            if (4 * w + 4 <= quads) {
                s->mark[b][w] = reach_64(slot + 64 * w, t);
            } else {
                s->mark[b][w] = 0;
                for (uint32_t q = 4 * w; q < quads; q++)
                    s->mark[b][w] |= (uint64_t)reach_16(slot + 16 * q, t) << (16 * (q % 4));
            }
            counts += byte_counts(s->mark[b][w]);
        }
        /* A byte holds at most 32; pairs of bytes first, for eight of them may pass 255. */
        counts = (counts & 0x00ff00ff00ff00ffu) + ((counts >> 8) & 0x00ff00ff00ff00ffu);
        s->found[b] = (uint16_t)((counts * 0x0001000100010001u) >> 48);
    }
}

/* Unmark the smallest of those tied at the threshold until k are left; of equals the last goes first. */
static __attribute__((noinline)) bool settle(frugi_batch *batch, size_t b, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    const float *acc = batch->acc + 256 * b;
    uint32_t magnitude[TIES], at[TIES], n = 0, shift = batch->select == FRUGI_SELECT_EXACT ? 0 : 16;
    uint8_t t = s->threshold[b];
    for (uint32_t w = 0; w < (quads + 3) / 4; w++) {
        uint64_t above = t < 255 ? reach_64(s->slot[b] + 64 * w, (uint8_t)(t + 1)) : 0;
        for (uint64_t tied = s->mark[b][w] & ~above; tied; tied &= tied - 1) {
            if (n == TIES)
                return false;
            uint32_t j = 64 * w + (uint32_t)__builtin_ctzll(tied), i = quads < 16 ? 4u * s->list[b][j / 4] + j % 4 : j;
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

INLINE void settle_ties(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++)
        if (s->found[b] != batch->k[b] && !s->odd[b])
            s->odd[b] = !settle(batch, b, quads);
}

INLINE void list_slots(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint32_t n = 0;
        ahead(batch, b, 2);
        for (uint32_t w = 0; 4 * w < quads; w++)
            n += expand(s->mark[b][w], (uint8_t)(64 * w), quads - 4 * w < 4 ? 2 * (quads - 4 * w) : 8, s->win[b] + n);
    }
}

INLINE void locate_winners(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint16_t *idx = batch->idx + 256 * b;
        ahead(batch, b, 3);
        if (quads < 16)
            for (uint32_t j = 0; j < batch->k[b]; j += 16)
                locate(s->list[b], s->win[b] + j, idx + j);
        else
            for (uint32_t j = 0; j < batch->k[b]; j++)
                idx[j] = s->win[b][j];
        batch->held[b] = s->top[b] >= INF_HALF;
        if (__builtin_expect(s->odd[b], 0) && !batch->held[b])
            take_slowly(batch, b);
    }
}

INLINE void select_slots(frugi_batch *batch, uint32_t quads, int first, lanes_u8 k) {
    frugi_lanes *s = batch->lanes;
    for (uint32_t q = 0; q < quads; q++)
        transpose(s->slot[0] + 16 * q, sizeof s->slot[0], s->row[16 * q]);
    search(s, 16 * (size_t)quads, first, k);
    mark_slots(batch, quads);
}

INLINE void finish(frugi_batch *batch, uint32_t quads) {
    settle_ties(batch, quads);
    list_slots(batch, quads);
    locate_winners(batch, quads);
}

INLINE void select_few(frugi_batch *batch, uint32_t quads, bool exact, lanes_u8 k) {
    frugi_lanes *s = batch->lanes;
    for (uint32_t q = 0; q < 4; q++)
        transpose(s->group[0] + 16 * q, sizeof s->group[0], s->row[16 * q]);
    search(s, 64, 128, k);
    list_groups(batch, quads);
    rank_listed(batch, quads, exact);
    select_slots(batch, quads, FINE_TOP(exact), k);
    finish(batch, quads);
}

static void select_many(frugi_batch *batch, lanes_u8 k) {
    frugi_lanes *s = batch->lanes;
    rank_all(batch);
    select_slots(batch, 16, 128, k);
    for (size_t b = 0; b < batch->blocks; b++)
        s->odd[b] = s->threshold[b] == 0 || batch->k[b] > 255 || s->top[b] >= INF_HALF;
    finish(batch, 16);
}

static void select_batch(frugi_batch *batch) {
    uint8_t count[FRUGI_LANES] = {0};
    uint32_t most = 0;
    for (uint32_t b = 0; b < batch->blocks; b++) {
        count[b] = (uint8_t)batch->k[b];
        most = batch->k[b] > most ? batch->k[b] : most;
    }
    lanes_u8 k = load_lanes(count);
    bool exact = batch->select == FRUGI_SELECT_EXACT;
    if (most > FEW)
        select_many(batch, k);
    else if (most > 12 && most <= 16 && exact) /* the usual size gets its loops unrolled */
        select_few(batch, 5, true, k);
    else if (most > 12 && most <= 16)
        select_few(batch, 5, false, k);
    else
        select_few(batch, most <= 12 ? 4 : (most + 7) / 4, exact, k);
}

/*
 * block_topk_256.h - select 1 .. 256 of 256 without sorting; the body of the SIMD variants.
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
 *   reach_16(key, t)                         reach_64() for 16 bytes
 *   rank_quad(acc, list, bound, exact, top)  16 keys, none above top, for the elements of four groups
 *   rank_16(acc, base)                       16 keys, coarser, for 16 elements in a row
 *   locate(list, slots, idx)                 16 slots of listed groups to element indices
 * and has the primitives of block_topk_neon.h or block_topk_avx2.h.
 */
#include "select/block_topk_lanes.h"

#define FEW    24u   /* 28 groups and 112 slots at most */
#define REACH  255u  /* the largest key */
#define COARSE 1023u /* what the largest coarse key stands for */
#define FINE_TOP(exact)                                                                                                \
    ((exact) ? 64 : 32) /* highest bit of a slot's key when k is small; thresholds are seldom higher */

static void accumulate(frugi_batch *batch) {
    for (size_t b = 0; b < batch->blocks; b++)
        sum_block(batch, b);
}

INLINE void list_groups(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint8_t t = s->threshold[b];
        uint32_t base = s->top[b] > REACH ? s->top[b] - REACH : 0;
        ahead(batch, 256 * b);
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
        ahead(batch, 256 * b + 64);
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

INLINE void settle_ties(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++)
        if (s->found[b] != batch->k[b] && !s->odd[b])
            s->odd[b] = !settle(batch, b, 256, (quads + 3) / 4, quads < 16 ? s->list[b] : NULL);
}

INLINE void list_slots(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint32_t n = 0;
        ahead(batch, 256 * b + 128);
        for (uint32_t w = 0; 4 * w < quads; w++)
            n += expand(s->mark[b][w], (uint8_t)(64 * w), quads - 4 * w < 4 ? 2 * (quads - 4 * w) : 8, s->win[b] + n);
    }
}

INLINE void locate_winners(frugi_batch *batch, uint32_t quads) {
    frugi_lanes *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint16_t *idx = batch->idx + 256 * b;
        ahead(batch, 256 * b + 192);
        if (quads < 16)
            for (uint32_t j = 0; j < batch->k[b]; j += 16)
                locate(s->list[b], s->win[b] + j, idx + j);
        else
            for (uint32_t j = 0; j < batch->k[b]; j++)
                idx[j] = s->win[b][j];
        batch->held[b] = s->top[b] >= INF_HALF;
        if (__builtin_expect(s->odd[b], 0) && !batch->held[b])
            take_slowly(batch, b, 256);
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

/*
 * block_topk_256.h - select 1 .. 256 of 256 without sorting; the body of the SIMD variants.
 *
 * A block has 64 groups of four consecutive elements, and a group has a maximum. At least k entries reach the k-th
 * largest maximum, and with random or recorded gradients hardly more: 18 to 25 for k = 16. So, for k up to SMALL_K:
 *
 *  1. While accumulating, store each maximum as a one-byte key: the upper half of the magnitude minus
 *     (block maximum - 255), which covers two octaves.
 *  2. Find the k-th largest key, for sixteen blocks at once: the keys are transposed to one column per block, so
 *     that bisection needs no sum across a vector.
 *  3. List the groups that reach it (a table turns eight bits into indices) and compute a finer key for each of
 *     their elements (slots), relative to that bound.
 *  4. Find the k-th largest of those keys in the same way; select the slots that reach it. If there are more than
 *     k, compare the entries at the threshold by whole magnitude.
 *
 * For a larger k all 256 elements are slots, with coarser keys that cover eight octaves. Every loop has a fixed length
 * and nothing is predicted from earlier steps, so speed hardly depends on the data. Blocks that do not fit (a threshold
 * below the range of the keys, too many groups or ties) take a slow path that bisects the block alone.
 *
 * Each stage runs over all blocks before the next stage starts: reading data directly after it was written in smaller
 * pieces would stall on store forwarding.
 *
 * The including file defines
 *   accumulate_block(batch, b)               accumulate; set top[b] and group[b]
 *   mask_ge_16(key, t)                       mask_ge_64() for 16 bytes
 *   group_keys(acc, list, bound, exact, top) 16 keys, none above top, for the elements of four groups
 *   coarse_keys(acc, base)                   16 coarser keys, for 16 consecutive elements
 *   slots_to_indices(list, slots, idx)       16 slots of listed groups to element indices
 * and includes the primitives of block_topk_neon.h or block_topk_avx2.h.
 */
#include "select/block_topk_lanes.h"

#define SMALL_K      24u   /* at most 28 groups and 112 slots */
#define KEY_RANGE    255u  /* the largest key */
#define COARSE_RANGE 1023u /* the distance that the largest coarse key stands for */
#define FINE_TOP(exact)                                                                                                \
    ((exact) ? 64 : 32) /* highest bit of a slot's key for small k; thresholds are rarely higher                       \
                         */

static void accumulate(frugi_batch *batch) {
    for (size_t b = 0; b < batch->blocks; b++)
        accumulate_block(batch, b);
}

INLINE void list_groups(frugi_batch *batch, uint32_t quads) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint8_t t = s->threshold[b];
        uint32_t base = s->top[b] > KEY_RANGE ? s->top[b] - KEY_RANGE : 0;
        prefetch_next(batch, 256 * b);
        memset(s->list[b], 0, 32); /* entries past the end are read, though not used */
        uint32_t n = expand_bits(mask_ge_64(s->group[b], t), 0, 8, s->list[b]);
        s->found[b] = (uint16_t)n;
        s->bound[b] = (uint16_t)(base + t);
        s->slow[b] = n > 4 * quads || s->top[b] >= INF_HALF;
    }
}

INLINE void compute_group_keys(frugi_batch *batch, uint32_t quads, bool exact) {
    frugi_batch_scratch *s = batch->lanes;
    const lanes_u8 position = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (size_t b = 0; b < batch->blocks; b++) {
        const float *acc = batch->acc + 256 * b;
        uint32_t full = batch->k[b] / 4; /* quads that are certainly full; past the end of the list data is stale */
#pragma GCC unroll 8
        for (uint32_t q = 0; q < quads; q++) {
            lanes_u8 key = group_keys(acc, s->list[b] + 4 * q, s->bound[b], exact, 2 * FINE_TOP(exact) - 1);
            if (q >= full)
                key &= (lanes_u8)(position + (uint8_t)(16 * q) < (uint8_t)(4 * s->found[b]));
            memcpy(s->slot[b] + 16 * q, &key, sizeof key);
        }
    }
}

INLINE void compute_coarse_keys(frugi_batch *batch) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint16_t base = (uint16_t)(s->top[b] > COARSE_RANGE ? s->top[b] - COARSE_RANGE : 0);
        for (size_t i = 0; i < 256; i += 16) {
            lanes_u8 key = coarse_keys(batch->acc + 256 * b + i, base);
            memcpy(s->slot[b] + i, &key, sizeof key);
        }
    }
}

/* Mark the slots that reach the threshold. */
INLINE void mark_slots(frugi_batch *batch, uint32_t quads) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        const uint8_t *slot = s->slot[b], t = s->threshold[b];
        uint64_t counts = 0;
        prefetch_next(batch, 256 * b + 64);
        for (uint32_t w = 0; w < (quads + 3) / 4; w++) {
            if (4 * w + 4 <= quads) {
                s->mark[b][w] = mask_ge_64(slot + 64 * w, t);
            } else {
                s->mark[b][w] = 0;
                for (uint32_t q = 4 * w; q < quads; q++)
                    s->mark[b][w] |= (uint64_t)mask_ge_16(slot + 16 * q, t) << (16 * (q % 4));
            }
            counts += byte_counts(s->mark[b][w]);
        }
        /* A byte is at most 32; add pairs of bytes first, because the sum of eight may exceed 255. */
        counts = (counts & 0x00ff00ff00ff00ffu) + ((counts >> 8) & 0x00ff00ff00ff00ffu);
        s->found[b] = (uint16_t)((counts * 0x0001000100010001u) >> 48);
    }
}

INLINE void resolve_ties(frugi_batch *batch, uint32_t quads) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++)
        if (s->found[b] != batch->k[b] && !s->slow[b])
            s->slow[b] = !resolve_block_ties(batch, b, 256, (quads + 3) / 4, quads < 16 ? s->list[b] : NULL);
}

INLINE void list_slots(frugi_batch *batch, uint32_t quads) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint32_t n = 0;
        prefetch_next(batch, 256 * b + 128);
        for (uint32_t w = 0; 4 * w < quads; w++)
            n += expand_bits(s->mark[b][w], (uint8_t)(64 * w), quads - 4 * w < 4 ? 2 * (quads - 4 * w) : 8,
                             s->selected[b] + n);
    }
}

INLINE void write_indices(frugi_batch *batch, uint32_t quads) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b++) {
        uint16_t *idx = batch->idx + 256 * b;
        prefetch_next(batch, 256 * b + 192);
        if (quads < 16)
            for (uint32_t j = 0; j < batch->k[b]; j += 16)
                slots_to_indices(s->list[b], s->selected[b] + j, idx + j);
        else
            for (uint32_t j = 0; j < batch->k[b]; j++)
                idx[j] = s->selected[b][j];
        batch->held[b] = s->top[b] >= INF_HALF;
        if (__builtin_expect(s->slow[b], 0) && !batch->held[b])
            select_slow(batch, b, 256);
    }
}

INLINE void select_slots(frugi_batch *batch, uint32_t quads, int first, lanes_u8 k) {
    frugi_batch_scratch *s = batch->lanes;
    for (uint32_t q = 0; q < quads; q++)
        transpose(s->slot[0] + 16 * q, sizeof s->slot[0], s->row[16 * q]);
    find_thresholds(s, 16 * (size_t)quads, first, k);
    mark_slots(batch, quads);
}

INLINE void write_selected(frugi_batch *batch, uint32_t quads) {
    resolve_ties(batch, quads);
    list_slots(batch, quads);
    write_indices(batch, quads);
}

INLINE void select_few(frugi_batch *batch, uint32_t quads, bool exact, lanes_u8 k) {
    frugi_batch_scratch *s = batch->lanes;
    for (uint32_t q = 0; q < 4; q++)
        transpose(s->group[0] + 16 * q, sizeof s->group[0], s->row[16 * q]);
    find_thresholds(s, 64, 128, k);
    list_groups(batch, quads);
    compute_group_keys(batch, quads, exact);
    select_slots(batch, quads, FINE_TOP(exact), k);
    write_selected(batch, quads);
}

static void select_many(frugi_batch *batch, lanes_u8 k) {
    frugi_batch_scratch *s = batch->lanes;
    compute_coarse_keys(batch);
    select_slots(batch, 16, 128, k);
    for (size_t b = 0; b < batch->blocks; b++)
        s->slow[b] = s->threshold[b] == 0 || batch->k[b] > 255 || s->top[b] >= INF_HALF;
    write_selected(batch, 16);
}

static void select_batch(frugi_batch *batch) {
    uint8_t count[FRUGI_BATCH_BLOCKS] = {0};
    uint32_t max_k = 0;
    for (uint32_t b = 0; b < batch->blocks; b++) {
        count[b] = (uint8_t)batch->k[b];
        max_k = batch->k[b] > max_k ? batch->k[b] : max_k;
    }
    lanes_u8 k = load_lanes(count);
    bool exact = batch->select == FRUGI_SELECT_EXACT;
    if (max_k > SMALL_K)
        select_many(batch, k);
    else if (max_k > 12 && max_k <= 16 && exact) /* the most common k gets unrolled loops */
        select_few(batch, 5, true, k);
    else if (max_k > 12 && max_k <= 16)
        select_few(batch, 5, false, k);
    else
        select_few(batch, max_k <= 12 ? 4 : (max_k + 7) / 4, exact, k);
}

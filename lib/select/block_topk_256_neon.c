/*
 * block_topk_256_neon.c - select 1 .. 256 of 256 without sorting, with NEON, which every 64-bit ARM CPU has.
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
 */
#include "select/block_topk_neon.h"

#include "select/block_topk_lanes.h"

#define SMALL_K      24u   /* at most 28 groups and 112 slots */
#define KEY_RANGE    255u  /* the largest key */
#define COARSE_RANGE 1023u /* the distance that the largest coarse key stands for */
#define FINE_TOP(exact)                                                                                                \
    ((exact) ? 64 : 32) /* highest bit of a slot's key for small k; thresholds are rarely higher                       \
                         */

INLINE void accumulate_block(frugi_batch *batch, size_t b, frugi_residual format) {
    const float *grad = batch->grad + 256 * (size_t)b;
    float *acc = batch->acc + 256 * (size_t)b;
    float *saved = format == FRUGI_RESIDUAL_F32 && batch->saved ? batch->saved + 256 * (size_t)b : NULL;
    const float32x4_t beta = vdupq_n_f32(batch->beta);
    const residual_block residual = residual_of(batch, b, format);
    const stored_scale scale = scale_of(&residual, format);
    uint16x8_t m[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        size_t o = 32 * i;
        uint16x8x2_t x =
            accumulate_16(grad + o, residual_16(&residual, &scale, format, o), acc + o, saved ? saved + o : NULL, beta);
        uint16x8_t pair = vpmaxq_u16(x.val[0], x.val[1]);
        o += 16;
        x = accumulate_16(grad + o, residual_16(&residual, &scale, format, o), acc + o, saved ? saved + o : NULL, beta);
        m[i] = vpmaxq_u16(pair, vpmaxq_u16(x.val[0], x.val[1]));
    }
    uint16x8_t x = vmaxq_u16(vmaxq_u16(vmaxq_u16(m[0], m[1]), vmaxq_u16(m[2], m[3])),
                             vmaxq_u16(vmaxq_u16(m[4], m[5]), vmaxq_u16(m[6], m[7])));
    uint16_t top = vmaxvq_u16(x);
    batch->lanes->top[b] = top;
    uint16x8_t base = vqsubq_u16(vdupq_n_u16(top), vdupq_n_u16(255));
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        vst1q_u8(batch->lanes->group[b] + 16 * i, vuzp1q_u8(vreinterpretq_u8_u16(vqsubq_u16(m[2 * i], base)),
                                                            vreinterpretq_u8_u16(vqsubq_u16(m[2 * i + 1], base))));
}

INLINE uint32_t mask_ge_16(const uint8_t *key, uint8_t t) {
    uint8x16_t w = vandq_u8(vld1q_u8(weights), vcgeq_u8(vld1q_u8(key), vdupq_n_u8(t)));
    w = vpaddq_u8(w, w);
    w = vpaddq_u8(w, w);
    w = vpaddq_u8(w, w);
    return vgetq_lane_u16(vreinterpretq_u16_u8(w), 0);
}

INLINE uint8x16_t narrow(uint16x8_t x, uint16x8_t y) {
    return vuzp1q_u8(vreinterpretq_u8_u16(x), vreinterpretq_u8_u16(y));
}

/* `exact` uses one bit more than hist, which leaves fewer ties to resolve. */
INLINE lanes_u8 group_keys(const float *acc, const uint8_t *list, uint16_t bound, bool exact, uint8_t top) {
    float32x4_t a = vld1q_f32(acc + 4 * (size_t)list[0]), b = vld1q_f32(acc + 4 * (size_t)list[1]);
    float32x4_t c = vld1q_f32(acc + 4 * (size_t)list[2]), d = vld1q_f32(acc + 4 * (size_t)list[3]);
    if (exact) {
        uint16x8_t under = vdupq_n_u16((uint16_t)(2 * bound - 1));
        uint16x8_t x = vshrn_high_n_u32(vshrn_n_u32(vreinterpretq_u32_f32(a), 15), vreinterpretq_u32_f32(b), 15);
        uint16x8_t y = vshrn_high_n_u32(vshrn_n_u32(vreinterpretq_u32_f32(c), 15), vreinterpretq_u32_f32(d), 15);
        return (lanes_u8)vminq_u8(vqmovn_high_u16(vqmovn_u16(vqsubq_u16(x, under)), vqsubq_u16(y, under)),
                                  vdupq_n_u8(top));
    }
    uint16x8_t under = vdupq_n_u16((uint16_t)(bound - 1));
    return (lanes_u8)vminq_u8(narrow(vqsubq_u16(halves(a, b), under), vqsubq_u16(halves(c, d), under)),
                              vdupq_n_u8(top));
}

INLINE lanes_u8 coarse_keys(const float *x, uint16_t base_) {
    const uint16x8_t base = vdupq_n_u16(base_);
    uint16x8_t a = vqsubq_u16(halves(vld1q_f32(x), vld1q_f32(x + 4)), base);
    uint16x8_t b = vqsubq_u16(halves(vld1q_f32(x + 8), vld1q_f32(x + 12)), base);
    return (lanes_u8)vshrn_high_n_u16(vshrn_n_u16(a, 2), b, 2);
}

INLINE void slots_to_indices(const uint8_t *list, const uint8_t *slots, uint16_t *idx) {
    uint8x16x2_t groups = {{vld1q_u8(list), vld1q_u8(list + 16)}};
    uint8x16_t slot = vld1q_u8(slots);
    uint8x16_t at = vsliq_n_u8(slot, vqtbl2q_u8(groups, vshrq_n_u8(slot, 2)), 2);
    vst1q_u16(idx, vmovl_u8(vget_low_u8(at)));
    vst1q_u16(idx + 8, vmovl_high_u8(at));
}

INLINE void accumulate_blocks(frugi_batch *batch, size_t block, frugi_residual format) {
    (void)block; /* is 256 */
    for (size_t b = 0; b < batch->blocks; b++)
        accumulate_block(batch, b, format);
}

static void accumulate(frugi_batch *batch) {
    accumulate_blocks(batch, 256, FRUGI_RESIDUAL_F32);
}

static void accumulate_stored(frugi_batch *batch) {
    accumulate_by_format(batch, 256, accumulate_blocks);
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
        batch->skipped[b] = s->top[b] >= INF_HALF;
        if (__builtin_expect(s->slow[b], 0) && !batch->skipped[b])
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
    batch->bitmap = (unsigned char *)s->mark; /* slots are elements */
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

const frugi_block_kernel frugi_block_kernel_256_neon = {accumulate, accumulate_stored, select_batch};

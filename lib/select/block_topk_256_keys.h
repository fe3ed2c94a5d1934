/*
 * block_topk_256_keys.h - select 1 .. 256 of 256 by keys of one byte; the body of the variants for x86-64.
 *
 *  1. While accumulating, find a lower bound of the threshold: the smallest maximum of k or more disjoint groups of
 *     elements. At least k entries reach it. Groups are columns of the registers that hold the block, so that their
 *     maxima need no sums or maxima across a register.
 *  2. Store a key for every element: the upper half of its magnitude minus that bound, shifted by 0, 1 or 2 bits, so
 *     that keys cover two, four or eight octaves. The larger k, the further the threshold may be from the bound.
 *  3. Find the k-th largest key by bisection, for several blocks at the same time, because each step depends on the one
 *     before. Mark the elements that reach it.
 *  4. If more than k are marked, compare the entries at the threshold by whole magnitude, and unmark the smallest.
 *
 * Nothing is predicted from earlier steps, so speed hardly depends on the data. Blocks with too many ties take a slow
 * path that bisects the block alone.
 *
 * The including file defines
 *   SEARCHED                                    blocks searched at the same time
 *   accumulate_block(batch, b, format, groups, shift)   accumulate block b and store its keys in slot[b]; 0 groups:
 *                                               keys are relative to the maximum; sets top[b] to INF_HALF if the block
 *                                               has a NaN or an infinity, else to 0
 *   search_blocks(batch, b)                     set threshold, mark and found of blocks b .. b + SEARCHED - 1
 *   mark_above(s, b, above)                     one bit per element of block b above the threshold
 *   widen_32(src, dst)                          32 bytes to 16 bits each
 *   GATHERED_BY_INDEX                           the largest k that needs idx in any case
 * and includes block_topk_lanes.h after the primitives of block_topk_avx2.h or block_topk_avx512.h.
 */
#define FEW          16u /* up to this k, indices are listed bit by bit */
#define FEW_PER_WORD 8u

INLINE uint32_t largest_k(const frugi_batch *batch) {
    uint32_t max_k = 0;
    for (uint32_t b = 0; b < batch->blocks; b++)
        max_k = batch->k[b] > max_k ? batch->k[b] : max_k;
    return max_k;
}

INLINE void accumulate_blocks(frugi_batch *batch, frugi_residual format, uint32_t groups, uint32_t shift) {
    for (size_t b = 0; b < batch->blocks; b++)
        accumulate_block(batch, b, format, groups, shift);
}

INLINE void accumulate_format(frugi_batch *batch, frugi_residual format) {
    uint32_t k = largest_k(batch);
    if (k <= 16)
        accumulate_blocks(batch, format, 16, 0);
    else if (k <= 32)
        accumulate_blocks(batch, format, 32, 1);
    else if (k <= 64)
        accumulate_blocks(batch, format, 64, 1);
    else
        accumulate_blocks(batch, format, k <= 128 ? 128 : 0, 2);
}

static void accumulate(frugi_batch *batch) {
    accumulate_format(batch, FRUGI_RESIDUAL_F32);
}

static void accumulate_stored(frugi_batch *batch) {
    if (batch->format == FRUGI_RESIDUAL_BF16)
        accumulate_format(batch, FRUGI_RESIDUAL_BF16);
    else if (batch->format == FRUGI_RESIDUAL_INT8)
        accumulate_format(batch, FRUGI_RESIDUAL_INT8);
    else
        accumulate_format(batch, FRUGI_RESIDUAL_INT4);
}

/* List the set bits. A word rarely has more than FEW_PER_WORD of few bits, and a loop of fixed length is not
 * mispredicted. */
INLINE void list_few(const uint64_t *mark, uint16_t *idx) {
    uint64_t rest = 0;
    uint16_t *at = idx;
#pragma GCC unroll 4
    for (uint32_t w = 0; w < 4; w++) {
        uint64_t bits = mark[w];
#pragma GCC unroll 8
        for (uint32_t j = 0; j < FEW_PER_WORD; j++, bits &= bits - 1)
            at[j] = (uint16_t)(_tzcnt_u64(bits) + 64 * w);
        rest |= bits;
        at += __builtin_popcountll(mark[w]);
    }
    for (uint32_t w = 0; w < 4 && __builtin_expect(rest != 0, 0); w++)
        for (uint64_t bits = mark[w]; bits; bits &= bits - 1)
            *idx++ = (uint16_t)(_tzcnt_u64(bits) + 64 * w);
}

INLINE void list_many(frugi_batch *batch, size_t b) {
    frugi_batch_scratch *s = batch->lanes;
    uint32_t n = 0;
    for (uint32_t w = 0; w < 4; w++)
        n += expand_bits(s->mark[b][w], (uint8_t)(64 * w), 8, s->selected[b] + n);
    for (uint32_t j = 0; j < batch->k[b]; j += 32)
        widen_32(s->selected[b] + j, batch->idx + 256 * b + j);
}

/* Unmark elements tied at the threshold until k are marked. Returns false if the block needs the slow path. */
static __attribute__((noinline)) bool resolve_ties(frugi_batch *batch, size_t b) {
    frugi_batch_scratch *s = batch->lanes;
    uint64_t tied[4];
    if (s->threshold[b] == 0)
        return false;
    mark_above(s, b, tied);
    for (uint32_t w = 0; w < 4; w++)
        tied[w] ^= s->mark[b][w];
    return drop_ties(batch, b, 256, 4, tied, NULL);
}

static void select_batch(frugi_batch *batch) {
    frugi_batch_scratch *s = batch->lanes;
    for (size_t b = 0; b < batch->blocks; b += SEARCHED) {
        for (size_t i = 0; i < SEARCHED; i++) {
            prefetch_next(batch, 256 * (b + i));
            prefetch_next(batch, 256 * (b + i) + 64);
        }
        search_blocks(batch, b);
    }
    for (size_t b = 0; b < batch->blocks; b++) {
        prefetch_next(batch, 256 * b + 128);
        prefetch_next(batch, 256 * b + 192);
        batch->skipped[b] = s->top[b] >= INF_HALF;
        if (batch->k[b] == 0)
            memset(s->mark[b], 0, sizeof s->mark[b]);
        if (batch->skipped[b] || batch->k[b] == 0)
            continue;
        if (s->found[b] != batch->k[b] && !resolve_ties(batch, b))
            select_slow(batch, b, 256);
        else if (batch->k[b] <= FEW)
            list_few(s->mark[b], batch->idx + 256 * b);
        else if (batch->k[b] <= GATHERED_BY_INDEX || !batch->idx_optional)
            list_many(batch, b);
    }
    batch->bitmap = (unsigned char *)s->mark;
}

/*
 * gpu_select_short.cuh - select the k largest magnitudes of each block of a tile of short blocks, all blocks at once.
 *
 * The search of gpu_select.cuh on pairs: a register has one number for each of the lane's two blocks in its halves, and
 * one instruction of recent GPUs adds or compares both. That holds for upper halves of elements, thresholds and their
 * bounds; one sum over the warp counts for all blocks of the tile, each in its own field. A block whose search has
 * ended does not change until the last one has.
 */
#ifndef FRUGI_GPU_SELECT_SHORT_CUH
#define FRUGI_GPU_SELECT_SHORT_CUH

#include "cuda/gpu_select.cuh"

#define ONES_16X2  0x00010001u
#define MAX_STRIDE (0x3fffu * ONES_16X2) /* four times that does not overflow */

/* 0xffff in each half that is 1. */
static __device__ inline uint32_t halves_mask(uint32_t ones) {
    return ones * 0xffffu;
}

/* The halves of a where the mask is set, those of b elsewhere. */
static __device__ inline uint32_t blend_halves(uint32_t mask, uint32_t a, uint32_t b) {
    return (a & mask) | (b & ~mask);
}

static __device__ inline uint32_t half_of(uint32_t pair, int j) {
    return j ? pair >> 16 : pair & 0xffffu;
}

/* Bit position of the field of a lane's first block; the second is 16 bits higher. */
template <int BLOCK> static __device__ inline uint32_t field_shift() {
    return BLOCK == 64 ? frugi_lane() / 16u * 8u : 0u;
}

/* Extract the fields of this lane's two blocks from a number with a field for each block. */
template <int BLOCK> static __device__ inline uint32_t lane_fields(uint32_t all) {
    return BLOCK == 64 ? all >> field_shift<64>() & 0x00ff00ffu : all;
}

/* Sums over the lanes of a block, at most BLOCK in all. */
template <int BLOCK> static __device__ inline uint32_t sum_per_block(uint32_t pair) {
    return lane_fields<BLOCK>(__reduce_add_sync(FRUGI_ALL_LANES, pair << field_shift<BLOCK>()));
}

/* Maximum over the lanes of a block. */
template <int BLOCK> static __device__ inline uint32_t max_per_block(uint32_t pair) {
    if (BLOCK == 128) {
        pair = __reduce_max_sync(FRUGI_ALL_LANES, pair & 0xffffu) | __reduce_max_sync(FRUGI_ALL_LANES, pair >> 16)
                                                                        << 16;
    } else {
#pragma unroll
        for (int d = 8; d > 0; d /= 2)
            pair = __vmaxs2(pair, __shfl_xor_sync(FRUGI_ALL_LANES, pair, d));
    }
    return pair;
}

/* The upper halves of a lane's magnitudes: element i of both blocks. */
static __device__ inline void pack_upper(const float x[8], uint32_t upper[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        upper[i] = __byte_perm(frugi_f32_bits(x[i]), frugi_f32_bits(x[4 + i]), 0x7632) & 0x7fff7fffu;
}

/* What has to be added to t to get 1, in each half. */
static __device__ inline uint32_t threshold_addends(uint32_t t) {
    return __vadd2(~t, 2 * ONES_16X2);
}

/* Number of upper halves that are at least t, per block. */
template <int BLOCK> static __device__ inline uint32_t count_per_block(const uint32_t upper[4], uint32_t t) {
    uint32_t addend = threshold_addends(t), sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += compare_upper(upper[i], addend);
    return sum_per_block<BLOCK>(sum);
}

/* The same elements as a mask of this lane's. */
static __device__ inline uint32_t mask_per_block(const uint32_t upper[4], uint32_t t) {
    uint32_t addend = threshold_addends(t), mask = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        mask |= compare_upper(upper[i], addend) << i; /* elements of the second block from bit 16 on */
    return (mask | mask >> 12) & 255u;
}

static __device__ inline uint32_t count_mask_halves(uint32_t mask) {
    return (uint32_t)__popc(mask & 15u) | (uint32_t)__popc(mask >> 4) << 16;
}

/* Of the elements in mask, those with the lowest indices, half j of `counts` of block j. */
template <int BLOCK> static __device__ inline uint32_t first_in_mask_short(uint32_t mask, uint32_t counts) {
    uint32_t own = count_mask_halves(mask), sum = own, lane = frugi_lane() % FRUGI_BLOCK_LANES<BLOCK>, selected = 0;
#pragma unroll
    for (uint32_t d = 1; d < FRUGI_BLOCK_LANES<BLOCK>; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, sum, d);
        sum += lane >= d ? other : 0;
    }
    uint32_t rank[2] = {half_of(sum - own, 0), half_of(sum - own, 1)};
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (mask >> i & 1u)
            selected |= (uint32_t)(rank[i / 4]++ < half_of(counts, i / 4)) << i;
    return selected;
}

/*
 * Find thresholds in the upper halves, starting at *t: such that exactly k elements reach them, or else the last that
 * more do. Returns the count, which is k where exactly k do. The steps are those of search_upper().
 */
template <int BLOCK>
static __device__ inline uint32_t search_upper_short(const uint32_t upper[4], uint32_t largest, uint32_t k,
                                                     uint32_t *t) {
    uint32_t lo = 0, hi = largest + ONES_16X2, stride = FIRST_STRIDE * ONES_16X2, count,
             at_least = threshold_addends(k);
    bool done;
    do {
        count = count_per_block<BLOCK>(upper, *t);
        uint32_t enough = compare_upper(count, at_least), more = compare_upper(count, threshold_addends(k + ONES_16X2));
        lo = blend_halves(halves_mask(enough), *t, lo);
        hi = blend_halves(halves_mask(more), hi, *t + enough - more); /* where the count is k: t + 1 */
        done = ((hi - lo) & ~ONES_16X2) == 0;
        uint32_t middle = (lo + hi) >> 1 & 0x7fff7fffu;
        *t = __viaddmin_u16x2(*t, stride, __viaddmax_s16x2(*t, 0x10000u - stride, middle));
        stride = __vminu2(stride << 2, MAX_STRIDE);
    } while (!__all_sync(FRUGI_ALL_LANES, done));
    return count;
}

/* This lane's elements with a magnitude of at least t[j], which is finite. */
static __device__ inline uint32_t mask_at_least_short(const float x[8], const uint32_t t[2]) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        mask |= fabsf(x[i]) >= frugi_bits_f32(t[i / 4]) ? 1u << i : 0u;
    return mask;
}

/*
 * The last magnitudes from t[j] on, with the same upper half, that at least k[j] elements reach; where t[j] is not
 * open, it is final.
 */
template <int BLOCK>
static __device__ inline void search_lower_short(const float x[8], uint32_t k, const bool open[2], uint32_t t[2]) {
    uint32_t upper_bound[2] = {t[0] + (open[0] ? 0x10000u : 1u), t[1] + (open[1] ? 0x10000u : 1u)};
    while (!__all_sync(FRUGI_ALL_LANES, upper_bound[0] - t[0] <= 1 && upper_bound[1] - t[1] <= 1)) {
        const uint32_t mid[2] = {t[0] + (upper_bound[0] - t[0]) / 2, t[1] + (upper_bound[1] - t[1]) / 2};
        uint32_t count = sum_per_block<BLOCK>(count_mask_halves(mask_at_least_short(x, mid)));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t here = half_of(count, j), wanted = half_of(k, j);
            t[j] = here >= wanted ? mid[j] : t[j];
            upper_bound[j] = here > wanted ? upper_bound[j] : here == wanted ? mid[j] + 1 : mid[j];
        }
    }
}

/* Select the k largest of blocks in which more than k elements reach t (where `open` is 1), or exactly k. */
template <int BLOCK>
static __device__ inline uint32_t resolve_ties_short(const float x[8], const uint32_t upper[4],
                                                     const frugi_gpu_tile &tile, uint32_t k, uint32_t t, uint32_t open,
                                                     bool hist) {
    uint32_t above, tied; /* certainly selected; candidates for the remaining entries */
    if (hist) {
        above = mask_per_block(upper, t + open);
        tied = mask_per_block(upper, t);
    } else {
        const bool is_open[2] = {half_of(open, 0) != 0, half_of(open, 1) != 0};
        uint32_t whole[2] = {t << 16, t & 0xffff0000u};
        search_lower_short<BLOCK>(x, k, is_open, whole);
        const uint32_t next[2] = {whole[0] + is_open[0], whole[1] + is_open[1]};
        above = mask_at_least_short(x, next);
        tied = mask_at_least_short(x, whole);
    }
    tied &= ~above & valid_elements(tile.length);
    return above | first_in_mask_short<BLOCK>(tied, k - sum_per_block<BLOCK>(count_mask_halves(above)));
}

/*
 * Select the k largest of each block of finite numbers, as a mask of this lane's elements. largest: the largest upper
 * halves; guess: thresholds of the blocks before, from which the search starts.
 */
template <int BLOCK>
static __device__ inline uint32_t select_short(const float x[8], const uint32_t upper[4], uint32_t largest,
                                               const frugi_gpu_tile &tile, bool hist, uint32_t *guess) {
    if (tile.k == 0 || tile.k == tile.length)
        return tile.k ? valid_elements(tile.length) : 0;
    uint32_t k = lane_fields<BLOCK>(frugi_tile_counts<BLOCK>(tile)), wanted_mask = halves_mask(compare_upper(k, 0));
    uint32_t t = blend_halves(wanted_mask, __vminu2(__vmaxu2(*guess, ONES_16X2), largest),
                              largest + ONES_16X2); /* where k is 0, a threshold that no element reaches */
    uint32_t count = search_upper_short<BLOCK>(upper, largest, k, &t);
    *guess = blend_halves(wanted_mask, t, *guess);
    if (__all_sync(FRUGI_ALL_LANES, count == k))
        return mask_per_block(upper, t);
    return resolve_ties_short<BLOCK>(x, upper, tile, k, t, compare_upper(count ^ k, 0), hist);
}

#endif

/*
 * gpu_select_short.cuh - the k largest of each block of a stretch of short ones, by a warp, for all of them at once.
 *
 * The same search as of gpu_select.cuh, with everything in pairs: a register has a number of each of the lane's two blocks
 * in its halves, and one instruction of recent GPUs adds or compares both. So are the upper halves of the elements, the
 * thresholds and their bounds, and one sum over the warp counts for all blocks of the stretch, each in its field. A
 * block that is settled stays where it is until the last is.
 */
#ifndef FRUGI_NARROW_CUH
#define FRUGI_NARROW_CUH

#include "cuda/gpu_select.cuh"

#define BOTH        0x00010001u
#define MOST_STRIDE (0x3fffu * BOTH) /* four times that is no overflow */

/* The halves of a register that are one, filled with ones. */
static __device__ inline uint32_t filled(uint32_t ones) {
    return ones * 0xffffu;
}

/* One pair's halves where the mask is set, the other's elsewhere. */
static __device__ inline uint32_t either(uint32_t mask, uint32_t a, uint32_t b) {
    return (a & mask) | (b & ~mask);
}

static __device__ inline uint32_t half_of(uint32_t pair, int j) {
    return j ? pair >> 16 : pair & 0xffffu;
}

/* Where the fields of a lane's blocks begin: the first, and the other 16 bits further. */
template <int BLOCK> static __device__ inline uint32_t field_at() {
    return BLOCK == 64 ? frugi_lane() / 16u * 8u : 0u;
}

/* Out of a number with a field for each block, those of this lane's. */
template <int BLOCK> static __device__ inline uint32_t own_fields(uint32_t all) {
    return BLOCK == 64 ? all >> field_at<64>() & 0x00ff00ffu : all;
}

/* Sums over the lanes of a block, at most BLOCK in all. */
template <int BLOCK> static __device__ inline uint32_t sum_each(uint32_t pair) {
    return own_fields<BLOCK>(__reduce_add_sync(FRUGI_ALL_LANES, pair << field_at<BLOCK>()));
}

/* The largest over the lanes of a block. */
template <int BLOCK> static __device__ inline uint32_t most_each(uint32_t pair) {
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
static __device__ inline void upper_of(const float x[8], uint32_t upper[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        upper[i] = __byte_perm(frugi_f32_bits(x[i]), frugi_f32_bits(x[4 + i]), 0x7632) & 0x7fff7fffu;
}

/* What makes t one when it is added. */
static __device__ inline uint32_t less_of_each(uint32_t t) {
    return __vadd2(~t, 2 * BOTH);
}

/* How many of the upper halves are at least t. */
template <int BLOCK> static __device__ inline uint32_t count_each(const uint32_t upper[4], uint32_t t) {
    uint32_t less = less_of_each(t), sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += reach_upper(upper[i], less);
    return sum_each<BLOCK>(sum);
}

/* The same ones as a mask of this lane's elements. */
static __device__ inline uint32_t mask_each(const uint32_t upper[4], uint32_t t) {
    uint32_t less = less_of_each(t), mask = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        mask |= reach_upper(upper[i], less) << i; /* elements of the second block from bit 16 on */
    return (mask | mask >> 12) & 255u;
}

static __device__ inline uint32_t ones_each(uint32_t mask) {
    return (uint32_t)__popc(mask & 15u) | (uint32_t)__popc(mask >> 4) << 16;
}

/* Of the elements in mask, those with the lowest places, as many as `most` says for each block. */
template <int BLOCK> static __device__ inline uint32_t first_of_each(uint32_t mask, uint32_t most) {
    uint32_t own = ones_each(mask), sum = own, lane = frugi_lane() % FRUGI_SPAN<BLOCK>, kept = 0;
#pragma unroll
    for (uint32_t d = 1; d < FRUGI_SPAN<BLOCK>; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, sum, d);
        sum += lane >= d ? other : 0;
    }
    uint32_t rank[2] = {half_of(sum - own, 0), half_of(sum - own, 1)};
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        if (mask >> i & 1u)
            kept |= (uint32_t)(rank[i / 4]++ < half_of(most, i / 4)) << i;
    return kept;
}

/*
 * Thresholds in the upper halves, from *t on and into it: such that exactly k reach, or else the last that more do.
 * Returns how many reach where it is k, and another number elsewhere. The steps are those of search_upper().
 */
template <int BLOCK>
static __device__ inline uint32_t search_upper_each(const uint32_t upper[4], uint32_t most, uint32_t k, uint32_t *t) {
    uint32_t lo = 0, hi = most + BOTH, stride = FIRST_STRIDE * BOTH, count, at_least = less_of_each(k);
    bool settled;
    do {
        count = count_each<BLOCK>(upper, *t);
        uint32_t enough = reach_upper(count, at_least), more = reach_upper(count, less_of_each(k + BOTH));
        lo = either(filled(enough), *t, lo);
        hi = either(filled(more), hi, *t + enough - more); /* where it is k: the next */
        settled = ((hi - lo) & ~BOTH) == 0;
        uint32_t middle = (lo + hi) >> 1 & 0x7fff7fffu;
        *t = __viaddmin_u16x2(*t, stride, __viaddmax_s16x2(*t, 0x10000u - stride, middle));
        stride = __vminu2(stride << 2, MOST_STRIDE);
    } while (!__all_sync(FRUGI_ALL_LANES, settled));
    return count;
}

/* This lane's elements that are at least t[j], finite, in magnitude. */
static __device__ inline uint32_t reaching_each(const float x[8], const uint32_t t[2]) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        mask |= fabsf(x[i]) >= frugi_bits_f32(t[i / 4]) ? 1u << i : 0u;
    return mask;
}

/*
 * The last magnitudes from t[j] on, with the same upper half, that at least k[j] reach; where t[j] is not open, it is
 * that already.
 */
template <int BLOCK>
static __device__ inline void search_lower_each(const float x[8], uint32_t k, const bool open[2], uint32_t t[2]) {
    uint32_t above[2] = {t[0] + (open[0] ? 0x10000u : 1u), t[1] + (open[1] ? 0x10000u : 1u)};
    while (!__all_sync(FRUGI_ALL_LANES, above[0] - t[0] <= 1 && above[1] - t[1] <= 1)) {
        const uint32_t between[2] = {t[0] + (above[0] - t[0]) / 2, t[1] + (above[1] - t[1]) / 2};
        uint32_t count = sum_each<BLOCK>(ones_each(reaching_each(x, between)));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t here = half_of(count, j), wanted = half_of(k, j);
            t[j] = here >= wanted ? between[j] : t[j];
            above[j] = here > wanted ? above[j] : here == wanted ? between[j] + 1 : between[j];
        }
    }
}

/* The k largest of blocks of which more reach t where it is `open`, and k elsewhere. */
template <int BLOCK>
static __device__ inline uint32_t settle_each(const float x[8], const uint32_t upper[4], const frugi_spot &at,
                                              uint32_t k, uint32_t t, uint32_t open, bool hist) {
    uint32_t beyond, on; /* what is there for certain, and what comes into question */
    if (hist) {
        beyond = mask_each(upper, t + open);
        on = mask_each(upper, t);
    } else {
        const bool is_open[2] = {half_of(open, 0) != 0, half_of(open, 1) != 0};
        uint32_t whole[2] = {t << 16, t & 0xffff0000u};
        search_lower_each<BLOCK>(x, k, is_open, whole);
        const uint32_t next[2] = {whole[0] + is_open[0], whole[1] + is_open[1]};
        beyond = reaching_each(x, next);
        on = reaching_each(x, whole);
    }
    on &= ~beyond & present(at.length);
    return beyond | first_of_each<BLOCK>(on, k - sum_each<BLOCK>(ones_each(beyond)));
}

/*
 * The k largest of each block of finite numbers, as a mask of this lane's elements. most: the largest upper halves;
 * guess: thresholds of blocks before, near which the search starts.
 */
template <int BLOCK>
static __device__ inline uint32_t select_each(const float x[8], const uint32_t upper[4], uint32_t most,
                                              const frugi_spot &at, bool hist, uint32_t *guess) {
    if (at.k == 0 || at.k == at.length)
        return at.k ? present(at.length) : 0;
    uint32_t k = own_fields<BLOCK>(frugi_counts_of<BLOCK>(at)), some = filled(reach_upper(k, 0));
    uint32_t t =
        either(some, __vminu2(__vmaxu2(*guess, BOTH), most), most + BOTH); /* where none are wanted, none reach */
    uint32_t count = search_upper_each<BLOCK>(upper, most, k, &t);
    *guess = either(some, t, *guess);
    if (__all_sync(FRUGI_ALL_LANES, count == k))
        return mask_each(upper, t);
    return settle_each<BLOCK>(x, upper, at, k, t, reach_upper(count ^ k, 0), hist);
}

#endif

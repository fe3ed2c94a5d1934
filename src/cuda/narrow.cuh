/*
 * narrow.cuh - the k largest of each block of a stretch of short ones, by a warp, for all of them at once.
 *
 * The same search as of select.cuh. A register holds the upper halves of two elements, one of each of the lane's two
 * blocks, so that one instruction compares both with the thresholds of their blocks; one sum over the warp counts for
 * all blocks of the stretch, each in its field. Every block has its own bounds. One that is settled stays where it is
 * until the last is.
 */
#ifndef FRUGI_NARROW_CUH
#define FRUGI_NARROW_CUH

#include "cuda/select.cuh"

/* A number of each of a lane's blocks, in the two halves of a register. */
static __device__ inline uint32_t two_of(const uint32_t n[2]) {
    return __byte_perm(n[0], n[1], 0x5410);
}

static __device__ inline uint32_t half_of(uint32_t two, int j) {
    return j ? two >> 16 : two & 0xffffu;
}

/* Where the fields of a lane's blocks begin: the first, and the other 16 bits further. */
template <int BLOCK> static __device__ inline uint32_t field_at() {
    return BLOCK == 64 ? frugi_lane() / 16u * 8u : 0u;
}

/* Out of a number with a field for each block, those of this lane's. */
template <int BLOCK> static __device__ inline uint32_t own_fields(uint32_t all) {
    return BLOCK == 64 ? all >> field_at<64>() & 0x00ff00ffu : all;
}

/* Sums over the lanes of a block of two numbers at once, one of each of a lane's blocks; at most BLOCK in all. */
template <int BLOCK> static __device__ inline uint32_t sum_each(uint32_t two) {
    return own_fields<BLOCK>(__reduce_add_sync(FRUGI_ALL_LANES, two << field_at<BLOCK>()));
}

/* What makes t[j] one in half j when it is added. */
static __device__ inline uint32_t less_of_each(const uint32_t t[2]) {
    const uint32_t less[2] = {1u - t[0], 1u - t[1]};
    return two_of(less);
}

/* How many of the upper halves of a lane's blocks are at least t[j], in half j. */
template <int BLOCK> static __device__ inline uint32_t count_each(const uint32_t pair[4], const uint32_t t[2]) {
    uint32_t less = less_of_each(t), sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += reach_upper(pair[i], less);
    return sum_each<BLOCK>(sum);
}

/* The same ones as a mask of this lane's elements. */
static __device__ inline uint32_t mask_each(const uint32_t pair[4], const uint32_t t[2]) {
    uint32_t less = less_of_each(t), mask = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        mask |= reach_upper(pair[i], less) << i; /* elements of the second block from bit 16 on */
    return (mask | mask >> 12) & 255u;
}

/* This lane's elements that are at least t[j], finite, in magnitude. */
static __device__ inline uint32_t reaching_each(const float x[8], const uint32_t t[2]) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        mask |= fabsf(x[i]) >= frugi_bits_f32(t[i / 4]) ? 1u << i : 0u;
    return mask;
}

static __device__ inline uint32_t ones_each(uint32_t mask) {
    return (uint32_t)__popc(mask & 15u) | (uint32_t)__popc(mask >> 4) << 16;
}

/* Of the elements in mask, those with the lowest places, most[j] of them in block j. */
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
 * The thresholds in the upper halves: ones that exactly k[j] reach, or else the last that more do. The search starts at
 * t, 0 where everything is wanted, and above all where nothing is. Returns how many reach them, exactly known where it
 * is k[j].
 */
template <int BLOCK>
static __device__ inline uint32_t search_upper_each(const uint32_t pair[4], const uint32_t most[2], const uint32_t k[2],
                                                    uint32_t t[2]) {
    uint32_t lo[2] = {0, 0}, hi[2] = {(most[0] >> 16) + 1, (most[1] >> 16) + 1}, count;
    int32_t stride = FIRST_STRIDE;
    bool settled;
    do {
        count = count_each<BLOCK>(pair, t);
        settled = true;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t here = half_of(count, j);
            lo[j] = here >= k[j] ? t[j] : lo[j];
            hi[j] = here > k[j] ? hi[j] : here == k[j] ? t[j] + 1 : t[j];
            settled &= hi[j] - lo[j] <= 1;
            t[j] += (uint32_t)min(max((int32_t)((lo[j] + hi[j]) / 2 - t[j]), -stride), stride);
        }
        stride = min(4 * stride, 0x10000);
    } while (!__all_sync(FRUGI_ALL_LANES, settled));
    return count;
}

/* The last magnitudes from t[j] on, with the same upper half, that at least k[j] reach; where exact, they are found. */
template <int BLOCK>
static __device__ inline void search_lower_each(const float x[8], const uint32_t k[2], const bool exact[2],
                                                uint32_t t[2]) {
    uint32_t above[2] = {t[0] + (exact[0] ? 1u : 0x10000u), t[1] + (exact[1] ? 1u : 0x10000u)};
    while (!__all_sync(FRUGI_ALL_LANES, above[0] - t[0] <= 1 && above[1] - t[1] <= 1)) {
        const uint32_t between[2] = {t[0] + (above[0] - t[0]) / 2, t[1] + (above[1] - t[1]) / 2};
        uint32_t count = sum_each<BLOCK>(ones_each(reaching_each(x, between)));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t here = half_of(count, j);
            t[j] = here >= k[j] ? between[j] : t[j];
            above[j] = here > k[j] ? above[j] : here == k[j] ? between[j] + 1 : between[j];
        }
    }
}

/* Where to begin: near the threshold of another block of this place; nowhere where all or none are wanted. */
template <int BLOCK>
static __device__ inline void begin_each(const uint32_t most[2], const uint32_t k[2], const uint32_t guess[2],
                                         uint32_t t[2]) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t hi = (most[j] >> 16) + 1;
        t[j] = guess[j] > 0 && guess[j] < hi ? guess[j] : hi > REACH ? hi - REACH : hi / 2;
        t[j] = k[j] == 0 ? hi : k[j] == BLOCK ? 0 : t[j];
    }
}

/* The k largest of each block of finite numbers, as select() of select.cuh finds them. */
template <int BLOCK>
static __device__ inline uint32_t select_each(const float x[8], const uint32_t most[2], const frugi_spot &at, bool hist,
                                              uint32_t guess[2]) {
    uint32_t pair[4], t[2], wanted = own_fields<BLOCK>(frugi_counts_of<BLOCK>(at));
    const uint32_t k[2] = {half_of(wanted, 0), half_of(wanted, 1)};
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __byte_perm(frugi_f32_bits(x[i]), frugi_f32_bits(x[4 + i]), 0x7632) & 0x7fff7fffu;
    begin_each<BLOCK>(most, k, guess, t);
    uint32_t count = search_upper_each<BLOCK>(pair, most, k, t);
#pragma unroll
    for (int j = 0; j < 2; j++)
        guess[j] = k[j] ? t[j] : guess[j];
    if (__all_sync(FRUGI_ALL_LANES, count == wanted))
        return mask_each(pair, t);
    const bool exact[2] = {half_of(count, 0) == k[0], half_of(count, 1) == k[1]};
    uint32_t beyond, on; /* what is there for certain, and what comes into question */
    if (hist) {
        const uint32_t next[2] = {t[0] + !exact[0], t[1] + !exact[1]};
        beyond = mask_each(pair, next);
        on = mask_each(pair, t);
    } else {
        t[0] <<= 16, t[1] <<= 16;
        search_lower_each<BLOCK>(x, k, exact, t);
        const uint32_t next[2] = {t[0] + !exact[0], t[1] + !exact[1]};
        beyond = reaching_each(x, next);
        on = reaching_each(x, t);
    }
    on &= ~beyond & present(at.length);
    return beyond | first_of_each<BLOCK>(on, wanted - sum_each<BLOCK>(ones_each(beyond)));
}

#endif

/*
 * gpu_select.cuh - select the k largest magnitudes of a block with a warp.
 *
 * The threshold is found by bisection on magnitudes as integers. Upper halves are compared first, two per register: one
 * instruction of recent GPUs compares both with the threshold and gives a one for each that is at least as large. For
 * most blocks a threshold with exactly k such elements is found there; for the others the search continues in the lower
 * halves, and ties go to the lower index.
 */
#ifndef FRUGI_GPU_SELECT_CUH
#define FRUGI_GPU_SELECT_CUH

#include "cuda/gpu_warp.cuh"

#define DEFAULT_DISTANCE                                                                                               \
    1024u /* without a guess the search starts this far below the largest upper half: eight powers of two */
#define FIRST_STRIDE 12 /* from a guess: some percent of a magnitude */

/* What has to be added to t > 0 to get 1, in both halves of a register. */
static __device__ inline uint32_t threshold_addend(uint32_t t) {
    return __byte_perm(1u - t, 0, 0x1010);
}

/* Ones for those of two upper halves that are at least the threshold of which `addend` was made. */
static __device__ inline uint32_t compare_upper(uint32_t pair, uint32_t addend) {
    return __viaddmin_s16x2_relu(pair, addend, 0x00010001u);
}

/* Number of the block's upper halves, two per register, that are at least t > 0. */
static __device__ inline uint32_t count_upper(const uint32_t pair[4], uint32_t t) {
    uint32_t addend = threshold_addend(t), sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += compare_upper(pair[i], addend);
    sum = __reduce_add_sync(FRUGI_ALL_LANES, sum);
    return (sum & 0xffffu) + (sum >> 16);
}

/* The same elements as a mask of this lane's. */
static __device__ inline uint32_t mask_upper(const uint32_t pair[4], uint32_t t) {
    uint32_t addend = threshold_addend(t), mask = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        mask |= compare_upper(pair[i], addend) << 2 * i; /* even elements from bit 0 on, odd ones from bit 16 on */
    return (mask | mask >> 15) & 255u;
}

/* This lane's elements with a magnitude of at least t, which is finite: floats compare like their bits. */
static __device__ inline uint32_t mask_at_least(const float x[8], uint32_t t) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        mask |= fabsf(x[i]) >= frugi_bits_f32(t) ? 1u << i : 0u;
    return mask;
}

/* Exclusive prefix sum over the lanes, of two numbers below 2^16 at once; *total: over all lanes. */
static __device__ inline uint32_t prefix_sum(uint32_t pair, uint32_t *total) {
    uint32_t sum = pair, lane = frugi_lane();
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, sum, d);
        sum += lane >= (uint32_t)d ? other : 0;
    }
    *total = __shfl_sync(FRUGI_ALL_LANES, sum, 31);
    return sum - pair;
}

/* Of the elements in mask, those with the lowest indices, `count` of them in the block. */
static __device__ inline uint32_t first_in_mask(uint32_t mask, uint32_t count) {
    uint32_t total, before = prefix_sum(__popc(mask & 15u) | __popc(mask >> 4) << 16, &total), selected = 0;
    uint32_t rank[2] = {before & 0xffffu, (total & 0xffffu) + (before >> 16)};
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (mask >> i & 1u)
            selected |= (uint32_t)(rank[i >> 2]++ < count) << i;
    return selected;
}

/*
 * Find the threshold in the upper halves, into *guess: one that exactly k > 0 elements reach, or else the last that
 * more do. It tends to be near that of the block before (*guess), so the search starts there, with steps that grow
 * until it has gone too far; then it bisects. The guess influences only the time.
 */
static __device__ inline bool search_upper(const uint32_t pair[4], uint32_t largest, uint32_t k, uint32_t *guess) {
    uint32_t lo = 0, hi = (largest >> 16) + 1;
    int32_t stride = FIRST_STRIDE;
    uint32_t mid = *guess > 0 && *guess < hi ? *guess : hi > DEFAULT_DISTANCE ? hi - DEFAULT_DISTANCE : hi / 2;
    while (hi - lo > 1) {
        uint32_t count = count_upper(pair, mid);
        if (count == k) {
            *guess = mid;
            return true;
        }
        lo = count > k ? mid : lo;
        hi = count > k ? hi : mid;
        mid += (uint32_t)min(max((int32_t)((lo + hi) / 2 - mid), -stride), stride);
        stride = min(4 * stride, 0x10000); /* no upper half is further away, and four times that does not overflow */
    }
    *guess = lo;
    return false;
}

/* The last magnitude from t on, with the same upper half, that at least k elements reach. */
static __device__ inline uint32_t search_lower(const float x[8], uint32_t t, uint32_t k) {
    uint32_t upper_bound = t + 0x10000u;
    while (upper_bound - t > 1) {
        uint32_t mid = t + (upper_bound - t) / 2;
        uint32_t count = __reduce_add_sync(FRUGI_ALL_LANES, (uint32_t)__popc(mask_at_least(x, mid)));
        t = count >= k ? mid : t;
        upper_bound = count >= k ? upper_bound : mid;
        if (count == k)
            break;
    }
    return t;
}

/* The elements of a lane that are inside the tile. */
static __device__ inline uint32_t valid_elements(uint32_t length) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        mask |= (uint32_t)(frugi_element_index(frugi_lane(), i) < length) << i;
    return mask;
}

/*
 * Select the k largest of a block of finite numbers, as a mask of this lane's elements; after the last there are zeros.
 * With hist, magnitudes are equal if their upper halves are.
 */
static __device__ inline uint32_t select(const float x[8], uint32_t largest, const frugi_gpu_tile &tile, bool hist,
                                         uint32_t *guess) {
    uint32_t pair[4];
    if (tile.k == 0 || tile.k == tile.length)
        return tile.k ? valid_elements(tile.length) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __byte_perm(frugi_f32_bits(x[2 * i]), frugi_f32_bits(x[2 * i + 1]), 0x7632) & 0x7fff7fffu;
    if (search_upper(pair, largest, tile.k, guess))
        return mask_upper(pair, *guess);
    uint32_t above, tied, t = *guess; /* certainly selected; candidates for the remaining entries */
    if (hist && t > 0) {
        above = mask_upper(pair, t + 1);
        tied = mask_upper(pair, t) & ~above;
    } else {
        t = hist ? 0 : search_lower(x, t << 16, tile.k);
        above = mask_at_least(x, t + (hist ? 0x10000u : 1u));
        tied = mask_at_least(x, t) & ~above & valid_elements(tile.length);
    }
    return above | first_in_mask(tied, tile.k - __reduce_add_sync(FRUGI_ALL_LANES, (uint32_t)__popc(above)));
}

#endif

/*
 * gpu_select.cuh - select the k largest magnitudes of a block with a warp, or with several if the block is long.
 *
 * The threshold is found by bisection on magnitudes as integers. Upper halves are compared first, two per register: one
 * instruction of recent GPUs compares both with the threshold and gives a one for each that is at least as large. For
 * most blocks a threshold with exactly k such elements is found there; for the others the search continues in the lower
 * halves, and ties go to the lower index.
 *
 * The search starts at the threshold of the block before. The secant method, with steps in proportion to the number of
 * elements too many or too few, takes a quarter fewer counts than steps that grow and bisection, but each takes twice
 * as many instructions: it was slower.
 */
#ifndef FRUGI_GPU_SELECT_CUH
#define FRUGI_GPU_SELECT_CUH

#include "cuda/gpu_group.cuh"

#define DEFAULT_DISTANCE                                                                                               \
    1024u /* without a guess the search starts this far below the largest upper half: eight powers of two */
#define FIRST_STRIDE 12 /* from a guess: some percent of a magnitude */
#define FEW_TIES     2u /* selected one by one */

/* What has to be added to t > 0 to get 1, in both halves of a register. */
static __device__ inline uint32_t threshold_addend(uint32_t t) {
    return __byte_perm(1u - t, 0, 0x1010);
}

/* Ones for those of two upper halves that are at least the threshold of which `addend` was made. */
static __device__ inline uint32_t compare_upper(uint32_t pair, uint32_t addend) {
    return __viaddmin_s16x2_relu(pair, addend, 0x00010001u);
}

/* Number of a lane's upper halves, two per register, that are at least t > 0: a sum of two halves. */
static __device__ inline uint32_t count_pairs(const uint32_t pair[4], uint32_t t) {
    uint32_t addend = threshold_addend(t), sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += compare_upper(pair[i], addend);
    return sum;
}

static __device__ inline uint32_t add_halves(uint32_t sum) {
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

/*
 * How many elements in mask come before the first one of each half of this lane's, in the block. Returns how many there
 * are.
 */
template <class GROUP> static __device__ inline uint32_t rank_entries(GROUP *group, uint32_t mask, uint32_t rank[2]) {
    uint32_t total, before = prefix_sum(__popc(mask & 15u) | __popc(mask >> 4) << 16, &total), low = total & 0xffffu;
    uint32_t all, warps_before = group->sum_before(low + (total >> 16), &all);
    rank[0] = warps_before + (before & 0xffffu);
    rank[1] = warps_before + low + (before >> 16);
    return all;
}

/* Of the elements in mask, those with the lowest indices, `count` of them in the block, if they are few. */
template <class GROUP> static __device__ inline uint32_t pick_few(GROUP *group, uint32_t mask, uint32_t count) {
    uint32_t selected = 0;
    for (; count > 0; count--) {
        uint32_t left = mask & ~selected, index = frugi_element_index(frugi_lane(), __ffs((int)left) - 1);
        uint32_t key = left ? ~(group->first_element() + index) : 0; /* largest for the lowest index */
        selected |= key == group->max(key) ? left & (0u - left) : 0u;
    }
    return selected;
}

/* The same for any number. */
template <class GROUP> static __device__ inline uint32_t first_in_mask(GROUP *group, uint32_t mask, uint32_t count) {
    if (count <= FEW_TIES)
        return pick_few(group, mask, count);
    uint32_t rank[2], selected = 0;
    rank_entries(group, mask, rank);
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (mask >> i & 1u)
            selected |= (uint32_t)(rank[i >> 2]++ < count) << i;
    return selected;
}

/* Pack the upper halves of a lane's magnitudes. */
static __device__ inline void pack_upper_halves(const float x[8], uint32_t pair[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __byte_perm(frugi_f32_bits(x[2 * i]), frugi_f32_bits(x[2 * i + 1]), 0x7632) & 0x7fff7fffu;
}

/* The largest upper half of a block. */
template <class GROUP> static __device__ inline uint32_t largest_upper(GROUP *group, const uint32_t pair[4]) {
    uint32_t two = __vmaxs2(__vmaxs2(pair[0], pair[1]), __vmaxs2(pair[2], pair[3]));
    return group->max(max(two & 0xffffu, two >> 16));
}

/*
 * Find the threshold in the upper halves, into *guess: one that exactly k > 0 elements reach, or else the last that
 * more do. It tends to be near that of the block before (*guess), so the search starts there, with steps that grow
 * until it has gone too far; then it bisects. The guess influences only the time.
 */
template <class GROUP>
static __device__ inline bool search_upper(GROUP *group, const uint32_t pair[4], uint32_t largest, uint32_t k,
                                           uint32_t *guess) {
    int32_t lo = 0, hi = (int32_t)largest + 1, mid = (int32_t)*guess, stride = FIRST_STRIDE;
    if (mid <= 0 || mid >= hi)
        mid = hi > (int32_t)DEFAULT_DISTANCE ? hi - (int32_t)DEFAULT_DISTANCE : hi / 2;
    while (hi - lo > 1) {
        uint32_t count = add_halves(group->sum(count_pairs(pair, (uint32_t)mid)));
        if (count == k) {
            *guess = (uint32_t)mid;
            return true;
        }
        lo = count > k ? mid : lo;
        hi = count > k ? hi : mid;
        mid = __viaddmax_s32(mid, -stride, __viaddmin_s32(mid, stride, (lo + hi) / 2)); /* at most a stride away */
        stride = min(4 * stride, 0x10000); /* no upper half is further away, and four times that does not overflow */
    }
    *guess = (uint32_t)lo;
    return false;
}

/* The two thresholds that divide lo .. hi into thirds, or the one between them. */
static __device__ inline void divide_range(int32_t lo, int32_t hi, int32_t t[2]) {
    int32_t third = max((hi - lo) / 3, 1);
    t[0] = lo + third;
    t[1] = hi - third;
}

/*
 * The same for a long block: two thresholds are counted per barrier, which divide what remains into three parts. That
 * takes four barriers instead of six.
 */
template <int BLOCK>
static __device__ inline bool search_upper(frugi_block_group<BLOCK> *group, const uint32_t pair[4], uint32_t largest,
                                           uint32_t k, uint32_t *guess) {
    int32_t lo = 0, hi = (int32_t)largest + 1, start = (int32_t)*guess, stride = FIRST_STRIDE, t[2];
    if (start <= 0 || start >= hi)
        start = hi > (int32_t)DEFAULT_DISTANCE ? hi - (int32_t)DEFAULT_DISTANCE : hi / 2;
    t[0] = max(start - FIRST_STRIDE / 2, 1);
    t[1] = max(min(start + FIRST_STRIDE / 2, hi - 1), t[0]);
    while (hi - lo > 1) {
        uint32_t low = add_halves(count_pairs(pair, (uint32_t)t[0])),
                 high = add_halves(count_pairs(pair, (uint32_t)t[1]));
        uint32_t both = group->sum(low | high << 16);
        low = both & 0xffffu;
        high = both >> 16;
        if (low == k || high == k) {
            *guess = (uint32_t)(low == k ? t[0] : t[1]);
            return true;
        }
        bool above = high > k, below = low < k;
        lo = above ? t[1] : below ? lo : t[0];
        hi = above ? hi : below ? t[0] : t[1];
        divide_range(lo, hi, t);
        if (above) /* at most a stride away, and four */
            t[0] = min(t[0], lo + stride), t[1] = min(t[1], lo + 4 * stride);
        if (below)
            t[1] = max(t[1], hi - stride), t[0] = max(t[0], hi - 4 * stride);
        stride = min(8 * stride, 0x4000);
    }
    *guess = (uint32_t)lo;
    return false;
}

/* The last magnitude from t on, with the same upper half, that at least k elements reach. */
template <class GROUP>
static __device__ inline uint32_t search_lower(GROUP *group, const float x[8], uint32_t t, uint32_t k) {
    uint32_t upper_bound = t + 0x10000u;
    while (upper_bound - t > 1) {
        uint32_t mid = t + (upper_bound - t) / 2;
        uint32_t count = group->sum((uint32_t)__popc(mask_at_least(x, mid)));
        t = count >= k ? mid : t;
        upper_bound = count >= k ? upper_bound : mid;
        if (count == k)
            break;
    }
    return t;
}

/* The elements of a lane with an index below `length`, if that of the warp's first element is `first`. */
static __device__ inline uint32_t valid_elements(uint32_t length, uint32_t first = 0) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        mask |= (uint32_t)(first + frugi_element_index(frugi_lane(), i) < length) << i;
    return mask;
}

/*
 * Select the k largest of a block of finite numbers, as a mask of this lane's elements; after the last there are zeros.
 * pair: the upper halves. With hist, magnitudes are equal if their upper halves are.
 */
template <class GROUP>
static __device__ inline uint32_t select(GROUP *group, const float x[8], const uint32_t pair[4], uint32_t largest,
                                         const frugi_gpu_tile &tile, bool hist, uint32_t *guess) {
    uint32_t selected, tied; /* certainly selected; candidates for the remaining entries */
    if (tile.k == 0 || tile.k == tile.length)
        return tile.k ? valid_elements(tile.length, group->first_element()) : 0;
    if (search_upper(group, pair, largest, tile.k, guess))
        return mask_upper(pair, *guess);
    uint32_t t = *guess;
    if (hist && t > 0) {
        selected = mask_upper(pair, t + 1);
        tied = mask_upper(pair, t) & ~selected;
    } else {
        t = hist ? 0 : search_lower(group, x, t << 16, tile.k);
        selected = mask_at_least(x, t + (hist ? 0x10000u : 1u));
        tied = mask_at_least(x, t) & ~selected & valid_elements(tile.length, group->first_element());
    }
    return selected | first_in_mask(group, tied, tile.k - group->sum((uint32_t)__popc(selected)));
}

#endif

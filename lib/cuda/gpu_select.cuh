/*
 * gpu_select.cuh - the k largest of a block, by a warp.
 *
 * The threshold is found by bisection on magnitudes as integers. The upper halves come first, two to a register: one
 * instruction of recent GPUs compares both with the threshold and leaves a one for each that reaches it. Most blocks
 * are settled there, when exactly k reach; the others go on with the lower halves, and ties go to the lower place.
 */
#ifndef FRUGI_SELECT_CUH
#define FRUGI_SELECT_CUH

#include "cuda/gpu_warp.cuh"

#define REACH        1024u /* without a guess, upper halves this far below the largest are tried: eight powers of two */
#define FIRST_STRIDE 12    /* from a guess: some percent of a magnitude */

/* What makes t > 0 one, in both halves of a register, when it is added. */
static __device__ inline uint32_t less_of(uint32_t t) {
    return __byte_perm(1u - t, 0, 0x1010);
}

/* Ones for those of two upper halves that are at least what `less` was made of. */
static __device__ inline uint32_t reach_upper(uint32_t pair, uint32_t less) {
    return __viaddmin_s16x2_relu(pair, less, 0x00010001u);
}

/* How many of the block's upper halves, two to a register, are at least t > 0. */
static __device__ inline uint32_t count_upper(const uint32_t pair[4], uint32_t t) {
    uint32_t less = less_of(t), sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += reach_upper(pair[i], less);
    sum = __reduce_add_sync(FRUGI_ALL_LANES, sum);
    return (sum & 0xffffu) + (sum >> 16);
}

/* The same ones as a mask of this lane's elements. */
static __device__ inline uint32_t mask_upper(const uint32_t pair[4], uint32_t t) {
    uint32_t less = less_of(t), mask = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        mask |= reach_upper(pair[i], less) << 2 * i; /* even elements from bit 0 on, odd ones from bit 16 on */
    return (mask | mask >> 15) & 255u;
}

/* This lane's elements that are at least t, finite, in magnitude: floats compare as their bits do. */
static __device__ inline uint32_t reaching(const float x[8], uint32_t t) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        mask |= fabsf(x[i]) >= frugi_bits_f32(t) ? 1u << i : 0u;
    return mask;
}

/* Sums over the lanes before this one, of two numbers below 2^16 at once; *total: of all lanes. */
static __device__ inline uint32_t sum_before(uint32_t two, uint32_t *total) {
    uint32_t sum = two, lane = frugi_lane();
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, sum, d);
        sum += lane >= (uint32_t)d ? other : 0;
    }
    *total = __shfl_sync(FRUGI_ALL_LANES, sum, 31);
    return sum - two;
}

/* Of the elements in mask, those with the lowest places, `most` of them in the block. */
static __device__ inline uint32_t first_of(uint32_t mask, uint32_t most) {
    uint32_t total, before = sum_before(__popc(mask & 15u) | __popc(mask >> 4) << 16, &total), kept = 0;
    uint32_t rank[2] = {before & 0xffffu, (total & 0xffffu) + (before >> 16)};
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        if (mask >> i & 1u)
            kept |= (uint32_t)(rank[i >> 2]++ < most) << i;
    return kept;
}

/*
 * The threshold in the upper halves, into *guess: one that exactly k > 0 reach, or else the last that more do. It tends
 * to be near that of the block before (*guess), so the search starts there and takes longer and longer steps until it
 * has gone too far; then it halves. Only the time depends on the guess.
 */
static __device__ inline bool search_upper(const uint32_t pair[4], uint32_t most, uint32_t k, uint32_t *guess) {
    uint32_t lo = 0, hi = (most >> 16) + 1;
    int32_t stride = FIRST_STRIDE;
    uint32_t mid = *guess > 0 && *guess < hi ? *guess : hi > REACH ? hi - REACH : hi / 2;
    while (hi - lo > 1) {
        uint32_t count = count_upper(pair, mid);
        if (count == k) {
            *guess = mid;
            return true;
        }
        lo = count > k ? mid : lo;
        hi = count > k ? hi : mid;
        mid += (uint32_t)min(max((int32_t)((lo + hi) / 2 - mid), -stride), stride);
        stride = min(4 * stride, 0x10000); /* no upper half is further away, and four times that is no overflow */
    }
    *guess = lo;
    return false;
}

/* The last magnitude from t on, with the same upper half, that at least k reach. */
static __device__ inline uint32_t search_lower(const float x[8], uint32_t t, uint32_t k) {
    uint32_t above = t + 0x10000u;
    while (above - t > 1) {
        uint32_t between = t + (above - t) / 2;
        uint32_t count = __reduce_add_sync(FRUGI_ALL_LANES, (uint32_t)__popc(reaching(x, between)));
        t = count >= k ? between : t;
        above = count >= k ? above : between;
        if (count == k)
            break;
    }
    return t;
}

/* The elements of a lane that are there at all. */
static __device__ inline uint32_t present(uint32_t length) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        mask |= (uint32_t)(frugi_place_of(frugi_lane(), i) < length) << i;
    return mask;
}

/*
 * The k largest of a block of finite numbers, as a mask of this lane's elements; behind the last there are zeros. With
 * hist, magnitudes are the same where their upper halves are.
 */
static __device__ inline uint32_t select(const float x[8], uint32_t most, const frugi_spot &at, bool hist,
                                         uint32_t *guess) {
    uint32_t pair[4];
    if (at.k == 0 || at.k == at.length)
        return at.k ? present(at.length) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __byte_perm(frugi_f32_bits(x[2 * i]), frugi_f32_bits(x[2 * i + 1]), 0x7632) & 0x7fff7fffu;
    if (search_upper(pair, most, at.k, guess))
        return mask_upper(pair, *guess);
    uint32_t beyond, on, t = *guess; /* what is there for certain, and what comes into question */
    if (hist && t > 0) {
        beyond = mask_upper(pair, t + 1);
        on = mask_upper(pair, t) & ~beyond;
    } else {
        t = hist ? 0 : search_lower(x, t << 16, at.k);
        beyond = reaching(x, t + (hist ? 0x10000u : 1u));
        on = reaching(x, t) & ~beyond & present(at.length);
    }
    return beyond | first_of(on, at.k - __reduce_add_sync(FRUGI_ALL_LANES, (uint32_t)__popc(beyond)));
}

#endif

/*
 * select.cuh - the k largest of a block, by a warp.
 *
 * The threshold is found by bisection on magnitudes as integers. The upper halves come first, two to a register: one
 * instruction of recent GPUs compares both with the threshold and leaves a one for each that reaches it. Most blocks
 * are settled there, when exactly k reach; the others go on with the lower halves, and ties go to the lower place.
 */
#ifndef FRUGI_SELECT_CUH
#define FRUGI_SELECT_CUH

#include "cuda/warp.cuh"

#define REACH        1024u /* without a guess, upper halves this far below the largest are tried: eight powers of two */
#define FIRST_STRIDE 6u    /* from a guess: some percent of a magnitude */

/* How many of the block's upper halves, two to a register, are at least t > 0. */
static __device__ inline uint32_t count_upper(const uint32_t pair[4], uint32_t t) {
    uint32_t less = ((1u - t) & 0xffffu) * 0x10001u, sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += __viaddmin_s16x2_relu(pair[i], less, 0x00010001u);
    sum = __reduce_add_sync(FRUGI_ALL_LANES, sum);
    return (sum & 0xffffu) + (sum >> 16);
}

static __device__ inline uint32_t count_whole(const int32_t m[8], int32_t t) {
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        sum += m[i] >= t;
    return __reduce_add_sync(FRUGI_ALL_LANES, sum);
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

/* Where the search ended: reach of the block's magnitudes are at least threshold, beyond of them above it. */
typedef struct found {
    int32_t threshold;
    uint32_t reach, beyond;
} found;

/*
 * The threshold in the upper halves. It tends to be near that of the block before (*guess), so the search starts there
 * and takes longer and longer steps until it has gone too far; then it halves. Only the time depends on the guess.
 */
static __device__ inline found search_upper(const int32_t m[8], uint32_t most, const frugi_spot &at, uint32_t *guess) {
    uint32_t pair[4], lo = 0, hi = (most >> 16) + 1, reach = at.length, beyond = 0, stride = FIRST_STRIDE;
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __byte_perm((uint32_t)m[2 * i], (uint32_t)m[2 * i + 1], 0x7632);
    uint32_t mid = *guess > 0 && *guess < hi ? *guess : hi > REACH ? hi - REACH : hi / 2;
    while (hi - lo > 1 && reach != at.k) {
        uint32_t count = count_upper(pair, mid), half;
        if (count >= at.k) {
            lo = mid, reach = count, half = (lo + hi) / 2;
            mid = min(half, lo + stride);
        } else {
            hi = mid, beyond = count, half = (lo + hi) / 2;
            mid = hi > stride ? max(half, hi - stride) : half;
        }
        stride = min(4 * stride, 0x10000u); /* no upper half is further away, and four times that is no overflow */
    }
    *guess = lo;
    return {(int32_t)(lo << 16), reach, beyond};
}

static __device__ inline void search_lower(const int32_t m[8], uint32_t k, found *f) {
    int32_t above = f->threshold + 0x10000;
    while (above - f->threshold > 1 && f->reach != k) {
        int32_t between = f->threshold + (above - f->threshold) / 2;
        uint32_t count = count_whole(m, between);
        if (count >= k)
            f->threshold = between, f->reach = count;
        else
            above = between, f->beyond = count;
    }
}

/*
 * The k largest of a block, as a mask of this lane's elements. m: magnitudes, -1 behind the last element; with hist
 * their lower halves are zero.
 */
static __device__ inline uint32_t select(const int32_t m[8], uint32_t most, const frugi_spot &at, bool hist,
                                         uint32_t *guess) {
    found f = search_upper(m, most, at, guess);
    if (f.reach != at.k && !hist)
        search_lower(m, at.k, &f);
    uint32_t over = 0, on = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        over |= (uint32_t)(m[i] >= f.threshold) << i;
    if (f.reach == at.k)
        return over;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        on |= (uint32_t)(m[i] == f.threshold) << i;
    return (over & ~on) | first_of(on, at.k - f.beyond);
}

#endif

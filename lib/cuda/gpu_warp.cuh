/*
 * gpu_warp.cuh - a stretch of 256 elements in the registers of a warp: a block, two blocks of 128 or four of 64.
 *
 * Lane l holds elements 4l .. 4l+3 and 128+4l .. 128+4l+3, so that every load and store of a warp is one run of memory.
 * Of a block of 256 it has all eight; of short blocks it has two, four elements of each, and their lanes are all lanes
 * (128) or half of them (64). Where a kernel counts for all blocks of a stretch at once, each has its own bits of a
 * number: 8, 16 or all 32 of them (a field).
 * Arithmetic is written with the functions that round once and are never fused: the CPU's bits are the measure.
 */
#ifndef FRUGI_WARP_CUH
#define FRUGI_WARP_CUH

#include "codec/block_index.h"
#include "codec/block_value.h"
#include "base/float_bits.h"
#include "base/block_count.h"
#include "cuda/gpu_launch.h"

/** Put a kernel onto a stream. tests/cuda/emulator runs it on a CPU instead, where there is no such syntax. */
#ifndef FRUGI_LAUNCH
#define FRUGI_LAUNCH(kernel, grid, threads, stream, ...) kernel<<<grid, threads, 0, stream>>>(__VA_ARGS__)
#endif

#define FRUGI_ALL_LANES 0xffffffffu
#define FRUGI_EACH      8 /* elements of a lane */

static __device__ inline uint32_t frugi_lane() {
    return threadIdx.x & 31u;
}

/** The place in the block of a lane's element i. */
static __device__ inline uint32_t frugi_place_of(uint32_t lane, int i) {
    return (uint32_t)(i >> 2) * 128u + lane * 4u + (uint32_t)(i & 3);
}

/** Blocks of a stretch; those that a lane has elements of, and how many of each; lanes that a block is in. */
template <int BLOCK> constexpr uint32_t FRUGI_BLOCKS = FRUGI_GPU_STRETCH / BLOCK;
template <int BLOCK> constexpr int FRUGI_OWN = BLOCK == 256 ? 1 : 2;
template <int BLOCK> constexpr int FRUGI_SHARE = FRUGI_EACH / FRUGI_OWN<BLOCK>;
template <int BLOCK> constexpr uint32_t FRUGI_SPAN = BLOCK == 64 ? 16 : 32;

/** Bits of a field. */
template <int BLOCK> constexpr int FRUGI_FIELD = BLOCK / 8;

/** The number in the stretch of a lane's block j < FRUGI_OWN. */
template <int BLOCK> static __device__ inline uint32_t frugi_own_block(int j) {
    return BLOCK == 64 ? frugi_lane() / 16u + 2u * (uint32_t)j : (uint32_t)j;
}

/** The slice that has stretch number n of a launch. */
static __device__ inline const frugi_gpu_slice *frugi_slice_of(const frugi_gpu_table &table, uint32_t n) {
    uint32_t lo = 0, hi = table.slices;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (table.slice[mid].stretches_before <= n)
            lo = mid;
        else
            hi = mid;
    }
    return &table.slice[lo];
}

/** Elements of the stretch that begins with block b. */
template <int BLOCK> static __device__ inline uint32_t frugi_length_of(const frugi_gpu_slice *s, uint32_t b) {
    if (BLOCK == 256)
        return b + 1 == s->blocks ? s->last + 1u : 256u;
    uint32_t left = s->blocks - b;
    return left > FRUGI_BLOCKS<BLOCK> ? FRUGI_GPU_STRETCH : (left - 1) * BLOCK + s->last + 1u;
}

/** Entries of all blocks before block b, as frugi_count_range() counts them. */
static __device__ inline uint64_t frugi_entries_before(const frugi_gpu_slice *s, uint32_t b) {
    uint32_t whole = (uint32_t)(s->kappa >> 32), part = (uint32_t)s->kappa;
    return (uint64_t)b * whole + (((uint64_t)b * part + s->carried) >> 32);
}

/** A stretch of a slice: where it stands in the section's arrays, and how many entries and elements it has. */
typedef struct frugi_spot {
    uint64_t before;
    uint32_t b, k, length; /* b: its first block */
    uint32_t below;        /* of the entries before it: what is below the point */
    uint32_t starts;       /* entries of the stretch before each block, in its field */
} frugi_spot;

/* Its entries and elements. The last block of a slice may be shorter than the others. */
template <int BLOCK> static __device__ inline void frugi_spot_end(const frugi_gpu_slice *s, frugi_spot *at) {
    uint32_t whole = (uint32_t)(s->kappa >> 32), part = (uint32_t)s->kappa, below = at->below;
    at->length = frugi_length_of<BLOCK>(s, at->b);
    at->k = at->starts = 0;
#pragma unroll
    for (uint32_t i = 0; i < FRUGI_BLOCKS<BLOCK>; i++) {
        uint32_t next = below + part, k = whole + (next < part);
        uint32_t here = i == 0 || at->length > i * BLOCK ? at->length - i * BLOCK : 0;
        below = next;
        if (i > 0)
            at->starts |= at->k << (int)i * FRUGI_FIELD<BLOCK> % 32;
        at->k += here < BLOCK ? frugi_tail_count(k, here, BLOCK) : k;
    }
}

template <int BLOCK> static __device__ inline frugi_spot frugi_spot_of(const frugi_gpu_slice *s, uint32_t b) {
    frugi_spot at = {frugi_entries_before(s, b), b, 0, 0, (uint32_t)s->kappa * b + s->carried, 0};
    frugi_spot_end<BLOCK>(s, &at);
    return at;
}

/** The stretch behind a whole one. */
template <int BLOCK> static __device__ inline void frugi_spot_next(const frugi_gpu_slice *s, frugi_spot *at) {
    at->before += at->k;
    at->b += FRUGI_BLOCKS<BLOCK>;
    at->below += (uint32_t)s->kappa * FRUGI_BLOCKS<BLOCK>;
    frugi_spot_end<BLOCK>(s, at);
}

/** The entries of each block of a stretch, in its field. */
template <int BLOCK> static __device__ inline uint32_t frugi_counts_of(const frugi_spot &at) {
    return BLOCK == 256 ? at.k : (at.starts >> FRUGI_FIELD<BLOCK> % 32 | at.k << (32 - FRUGI_FIELD<BLOCK>)) - at.starts;
}

/** The block of a stretch that has its entry e < k. */
template <int BLOCK> static __device__ inline uint32_t frugi_block_of(const frugi_spot &at, uint32_t e) {
    uint32_t block = 0;
#pragma unroll
    for (uint32_t i = 1; i < FRUGI_BLOCKS<BLOCK>; i++)
        block += e >= (at.starts >> (int)i * FRUGI_FIELD<BLOCK> % 32 & ((1u << FRUGI_FIELD<BLOCK> % 32) - 1u));
    return block;
}

static __device__ inline uint32_t frugi_gpu_value_bytes(uint32_t value) {
    return value == FRUGI_VALUE_F32 ? 4u : value == FRUGI_VALUE_INT8 ? 1u : 2u;
}

/** The power of two that the f16 of a block share, -126 .. 127. */
static __device__ inline float frugi_power_of_two(int e) {
    return frugi_bits_f32((uint32_t)(e + 127) << 23);
}

/** Four floats at an address that may be any multiple of four bytes. */
static __device__ inline void frugi_load_four(const float *p, bool aligned, float x[4]) {
    if (aligned) {
        float4 v = __ldcs(reinterpret_cast<const float4 *>(p));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
        for (int i = 0; i < 4; i++)
            x[i] = __ldcs(p + i);
    }
}

/** A lane's share of `length` floats at p, which may be any multiple of four bytes; zeros behind them. */
static __device__ inline void frugi_load_block(const float *p, uint32_t length, float x[FRUGI_EACH]) {
    uint32_t lane = frugi_lane();
    if (length == FRUGI_GPU_STRETCH && (reinterpret_cast<uintptr_t>(p) & 15u) == 0) {
        frugi_load_four(p + lane * 4, true, x);
        frugi_load_four(p + 128 + lane * 4, true, x + 4);
        return;
    }
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++) {
        uint32_t at = frugi_place_of(lane, i);
        x[i] = at < length ? __ldcs(p + at) : 0.0f;
    }
}

#endif

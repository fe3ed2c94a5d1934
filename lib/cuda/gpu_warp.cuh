/*
 * gpu_warp.cuh - a warp tile, 256 elements in the registers of a warp: a block of 256, two of 128, four of 64, or a
 * part of a long block.
 *
 * Lane l has elements 4l .. 4l+3 and 128+4l .. 128+4l+3, so that every load and store of a warp is contiguous. Of a
 * block of 256 a lane has eight elements; of short blocks it has four elements of each of two blocks, which are spread
 * over all lanes (128) or half of them (64). Where a kernel counts for all blocks of a tile at once, each block has its
 * own field of a register: 8, 16 or all 32 bits. Arithmetic uses the intrinsics that round once and are never fused, so
 * that results match the CPU's bit for bit.
 */
#ifndef FRUGI_GPU_WARP_CUH
#define FRUGI_GPU_WARP_CUH

#include "codec/block_index.h"
#include "codec/block_value.h"
#include "base/float_bits.h"
#include "base/block_count.h"
#include "cuda/gpu_launch.h"

/** Launch a kernel on a stream. tests/cuda/emulator runs it on a CPU instead, where this syntax does not exist. */
#ifndef FRUGI_LAUNCH
#define FRUGI_LAUNCH(kernel, grid, threads, stream, ...) kernel<<<grid, threads, 0, stream>>>(__VA_ARGS__)
#endif

#define FRUGI_ALL_LANES     0xffffffffu
#define FRUGI_LANE_ELEMENTS 8 /* elements per lane */

static __device__ inline uint32_t frugi_lane() {
    return threadIdx.x & 31u;
}

/** The index in the tile of a lane's element i. */
static __device__ inline uint32_t frugi_element_index(uint32_t lane, int i) {
    return (uint32_t)(i >> 2) * 128u + lane * 4u + (uint32_t)(i & 3);
}

/** Blocks per tile; blocks of which a lane has elements, and how many of each; lanes per block. */
template <int BLOCK> constexpr uint32_t FRUGI_TILE_BLOCKS = BLOCK > 256 ? 1 : FRUGI_GPU_WARP_TILE / BLOCK;
template <int BLOCK> constexpr int FRUGI_LANE_BLOCKS = BLOCK >= 256 ? 1 : 2;
template <int BLOCK> constexpr int FRUGI_LANE_BLOCK_ELEMENTS = FRUGI_LANE_ELEMENTS / FRUGI_LANE_BLOCKS<BLOCK>;
template <int BLOCK> constexpr uint32_t FRUGI_BLOCK_LANES = BLOCK == 64 ? 16 : 32;

/** Bytes of an index within a block. */
template <int BLOCK> constexpr uint32_t FRUGI_INDEX_BYTES = BLOCK > 256 ? 2 : 1;

/** Bits of a field. */
template <int BLOCK> constexpr int FRUGI_FIELD_BITS = BLOCK / 8;

/** The number in the tile of a lane's block j < FRUGI_LANE_BLOCKS. */
template <int BLOCK> static __device__ inline uint32_t frugi_lane_block(int j) {
    return BLOCK == 64 ? frugi_lane() / 16u + 2u * (uint32_t)j : (uint32_t)j;
}

/** The section that contains tile number n of a launch. */
static __device__ inline const frugi_gpu_section *frugi_find_section(const frugi_gpu_section_table &table, uint32_t n) {
    uint32_t lo = 0, hi = table.sections;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (table.section[mid].tiles_before <= n)
            lo = mid;
        else
            hi = mid;
    }
    return &table.section[lo];
}

/** Elements of the tile that begins with block b. */
template <int BLOCK> static __device__ inline uint32_t frugi_tile_length(const frugi_gpu_section *s, uint32_t b) {
    if (BLOCK >= 256)
        return b + 1 == s->blocks ? s->last + 1u : (uint32_t)BLOCK;
    uint32_t left = s->blocks - b;
    return left > FRUGI_TILE_BLOCKS<BLOCK> ? FRUGI_GPU_WARP_TILE : (left - 1) * BLOCK + s->last + 1u;
}

/** Entries of all blocks before block b, as counted by frugi_count_range(). */
static __device__ inline uint64_t frugi_entries_before(const frugi_gpu_section *s, uint32_t b) {
    uint32_t whole = (uint32_t)(s->kappa >> 32), part = (uint32_t)s->kappa;
    return (uint64_t)b * whole + (((uint64_t)b * part + s->carried) >> 32);
}

/** A tile of a section, or a long block: its position in the section's arrays, its numbers of entries and elements. */
typedef struct frugi_gpu_tile {
    uint64_t before;
    uint32_t b, k, length; /* b: first block; k: entries */
    uint32_t below;        /* fractional part of the number of entries before it */
    uint32_t starts;       /* entries of the tile before each block, in its field */
} frugi_gpu_tile;

/* Set entries and elements. The last block of a section may be shorter than the others. */
template <int BLOCK>
static __device__ inline void frugi_tile_measure(const frugi_gpu_section *s, frugi_gpu_tile *tile) {
    uint32_t whole = (uint32_t)(s->kappa >> 32), part = (uint32_t)s->kappa, below = tile->below;
    tile->length = frugi_tile_length<BLOCK>(s, tile->b);
    tile->k = tile->starts = 0;
#pragma unroll
    for (uint32_t i = 0; i < FRUGI_TILE_BLOCKS<BLOCK>; i++) {
        uint32_t next = below + part, k = whole + (next < part);
        uint32_t here = i == 0 || tile->length > i * BLOCK ? tile->length - i * BLOCK : 0;
        below = next;
        if (i > 0)
            tile->starts |= tile->k << (int)i * FRUGI_FIELD_BITS<BLOCK> % 32;
        tile->k += here < BLOCK ? frugi_tail_count(k, here, BLOCK) : k;
    }
}

template <int BLOCK> static __device__ inline frugi_gpu_tile frugi_tile_at(const frugi_gpu_section *s, uint32_t b) {
    frugi_gpu_tile tile = {frugi_entries_before(s, b), b, 0, 0, (uint32_t)s->kappa * b + s->carried, 0};
    frugi_tile_measure<BLOCK>(s, &tile);
    return tile;
}

/** The tile after a whole one. */
template <int BLOCK> static __device__ inline void frugi_tile_next(const frugi_gpu_section *s, frugi_gpu_tile *tile) {
    tile->before += tile->k;
    tile->b += FRUGI_TILE_BLOCKS<BLOCK>;
    tile->below += (uint32_t)s->kappa * FRUGI_TILE_BLOCKS<BLOCK>;
    frugi_tile_measure<BLOCK>(s, tile);
}

/** The entries of each block of a tile, in its field. */
template <int BLOCK> static __device__ inline uint32_t frugi_tile_counts(const frugi_gpu_tile &tile) {
    return BLOCK >= 256
               ? tile.k
               : (tile.starts >> FRUGI_FIELD_BITS<BLOCK> % 32 | tile.k << (32 - FRUGI_FIELD_BITS<BLOCK>)) - tile.starts;
}

/** The block of a tile that contains entry e < k. */
template <int BLOCK> static __device__ inline uint32_t frugi_entry_block(const frugi_gpu_tile &tile, uint32_t e) {
    uint32_t block = 0;
#pragma unroll
    for (uint32_t i = 1; i < FRUGI_TILE_BLOCKS<BLOCK>; i++)
        block +=
            e >= (tile.starts >> (int)i * FRUGI_FIELD_BITS<BLOCK> % 32 & ((1u << FRUGI_FIELD_BITS<BLOCK> % 32) - 1u));
    return block;
}

static __device__ inline uint32_t frugi_gpu_value_bytes(uint32_t value) {
    return value == FRUGI_VALUE_F32 ? 4u : value == FRUGI_VALUE_INT8 ? 1u : 2u;
}

/** 2^e, the scale of f16 values, for e from -126 to 127. */
static __device__ inline float frugi_power_of_two(int e) {
    return frugi_bits_f32((uint32_t)(e + 127) << 23);
}

/** Four floats at an address that is aligned to at least 4 bytes. */
static __device__ inline void frugi_load_four(const float *p, bool aligned, float x[4]) {
    if (aligned) {
        float4 v = __ldcs(reinterpret_cast<const float4 *>(p));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
        for (int i = 0; i < 4; i++)
            x[i] = __ldcs(p + i);
    }
}

/** A lane's elements of `length` floats at p, aligned to at least 4 bytes; zeros after them. */
static __device__ inline void frugi_load_tile(const float *p, uint32_t length, float x[FRUGI_LANE_ELEMENTS]) {
    uint32_t lane = frugi_lane();
    if (length == FRUGI_GPU_WARP_TILE && (reinterpret_cast<uintptr_t>(p) & 15u) == 0) {
        frugi_load_four(p + lane * 4, true, x);
        frugi_load_four(p + 128 + lane * 4, true, x + 4);
        return;
    }
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++) {
        uint32_t at = frugi_element_index(lane, i);
        x[i] = at < length ? __ldcs(p + at) : 0.0f;
    }
}

#endif

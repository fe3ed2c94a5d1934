/*
 * gpu_residual.cuh - load and store the residual of a warp tile in its four formats. Formats with fewer bits than float
 * are rounded stochastically. This is feedback/residual_format.c on a GPU.
 */
#ifndef FRUGI_GPU_RESIDUAL_CUH
#define FRUGI_GPU_RESIDUAL_CUH

#include "cuda/gpu_group.cuh"

#include "feedback/residual_format.h"

#define RESIDUAL_NONE 4

/* A tile as loaded: the gradient, and the residual in its storage format. */
template <int BLOCK> struct raw_tile {
    float grad[FRUGI_LANE_ELEMENTS];
    uint32_t residual[FRUGI_LANE_ELEMENTS];
    uint16_t scale[FRUGI_LANE_BLOCKS<BLOCK>];
};

/* Address of the residual of a tile, and of its blocks' scales, if the format has them. */
typedef struct residual_ptr {
    unsigned char *residual;
    uint16_t *scale;
} residual_ptr;

/* Bytes of a block's residual. */
template <int FORMAT, int BLOCK> static __device__ constexpr uint32_t residual_block_bytes() {
    return FORMAT == FRUGI_RESIDUAL_F32    ? 4u * BLOCK
           : FORMAT == FRUGI_RESIDUAL_BF16 ? 2u * BLOCK
           : FORMAT == FRUGI_RESIDUAL_INT8 ? 1u * BLOCK
           : FORMAT == FRUGI_RESIDUAL_INT4 ? BLOCK / 2u
                                           : 0u;
}

/* The address so many blocks later. */
template <int FORMAT, int BLOCK>
static __device__ inline residual_ptr advance_residual(const residual_ptr &first, uint64_t blocks) {
    return {first.residual + blocks * residual_block_bytes<FORMAT, BLOCK>(), first.scale + blocks};
}

/* Whether a tile of so many elements has a lane's block j; a block of 256 is alone and always exists. */
template <int BLOCK> static __device__ inline bool block_exists(int j, uint32_t length) {
    return BLOCK >= 256 || frugi_lane_block<BLOCK>(j) * BLOCK < length;
}

/* Load the residual of a tile of so many elements; zeros for blocks that do not exist. */
template <int FORMAT, int BLOCK>
static __device__ inline void load_residual(const residual_ptr &from, uint32_t length, raw_tile<BLOCK> *r) {
    uint32_t lane = frugi_lane();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (FORMAT == FRUGI_RESIDUAL_F32) {
            uint4 v = {};
            if (block_exists<BLOCK>(j, length))
                v = __ldcs(reinterpret_cast<const uint4 *>(from.residual) + j * 32 + lane);
            r->residual[4 * j] = v.x, r->residual[4 * j + 1] = v.y, r->residual[4 * j + 2] = v.z,
                            r->residual[4 * j + 3] = v.w;
        } else if (FORMAT == FRUGI_RESIDUAL_BF16) {
            uint2 v = {};
            if (block_exists<BLOCK>(j, length))
                v = __ldcs(reinterpret_cast<const uint2 *>(from.residual) + j * 32 + lane);
            r->residual[2 * j] = v.x, r->residual[2 * j + 1] = v.y;
        } else if (FORMAT == FRUGI_RESIDUAL_INT8) {
            r->residual[j] = 0;
            if (block_exists<BLOCK>(j, length))
                r->residual[j] = __ldcs(reinterpret_cast<const unsigned int *>(from.residual) + j * 32 + lane);
        } else if (FORMAT == FRUGI_RESIDUAL_INT4) {
            r->residual[j] = 0;
            if (block_exists<BLOCK>(j, length))
                r->residual[j] = __ldcs(reinterpret_cast<const unsigned short *>(from.residual) + j * 32 + lane);
        }
    }
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4)
#pragma unroll
        for (int j = 0; j < FRUGI_LANE_BLOCKS<BLOCK>; j++)
            r->scale[j] = block_exists<BLOCK>(j, length) ? from.scale[frugi_lane_block<BLOCK>(j)] : 0;
}

/* An 8-bit number plus 128, or a 4-bit number, as a float, without a conversion: 2^23 + n, minus 2^23 + zero. */
static __device__ inline float small_int_to_float(uint32_t n, float zero) {
    return __fsub_rn(frugi_bits_f32(0x4b000000u | n), zero);
}

/* The residual from small integers and their blocks' scales. */
template <int FORMAT, int BLOCK>
static __device__ inline void unpack_scaled_residual(const raw_tile<BLOCK> &r, float x[8]) {
#pragma unroll
    for (int j = 0; j < FRUGI_LANE_BLOCKS<BLOCK>; j++) {
        const int first = j * FRUGI_LANE_BLOCK_ELEMENTS<BLOCK>, end = first + FRUGI_LANE_BLOCK_ELEMENTS<BLOCK>;
        float scale = frugi_bf16_f32(r.scale[j]);
#pragma unroll
        for (int i = first; i < end; i++) {
            uint32_t v = r.residual[i / 4];
            float n = FORMAT == FRUGI_RESIDUAL_INT8
                          ? small_int_to_float(__byte_perm(v ^ 0x80808080u, 0, 0x4440u + i % 4), 8388736.0f)
                          : small_int_to_float(v >> 4 * (i % 4) & 15u, 8388616.0f);
            x[i] = __fmul_rn(n, scale);
        }
        if (r.scale[j] >= FRUGI_STORE_CLAMP_SCALE)
            for (int i = first; i < end; i++)
                x[i] = frugi_clamp_finite(x[i]);
    }
}

template <int FORMAT, int BLOCK> static __device__ inline void unpack_residual(const raw_tile<BLOCK> &r, float x[8]) {
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4) {
        unpack_scaled_residual<FORMAT, BLOCK>(r, x);
    } else {
#pragma unroll
        for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
            x[i] = FORMAT == RESIDUAL_NONE ? 0.0f
                                           : frugi_bits_f32(FORMAT == FRUGI_RESIDUAL_F32 ? r.residual[i]
                                                            : i % 2 ? r.residual[i / 2] & 0xffff0000u
                                                                    : r.residual[i / 2] << 16);
    }
}

/*
 * Maximum over the lanes that have elements of a block, given each lane's maximum for each of its blocks. Returns that
 * of block lane % FRUGI_TILE_BLOCKS, so that what depends on it is computed once.
 */
template <int BLOCK>
static __device__ inline uint32_t max_over_lanes(const uint32_t largest[FRUGI_LANE_BLOCKS<BLOCK>]) {
    uint32_t all[4], lane = frugi_lane();
#pragma unroll
    for (int i = 0; i < (int)FRUGI_TILE_BLOCKS<BLOCK>; i++) {
        uint32_t lane_scale = BLOCK > 64 || lane / 16 == (uint32_t)i % 2 ? largest[BLOCK > 64 ? i : i / 2] : 0u;
        all[i] = __reduce_max_sync(FRUGI_ALL_LANES, lane_scale);
    }
    uint32_t low = BLOCK < 256 && lane % 2 ? all[1] : all[0];
    return BLOCK == 64 && lane & 2u ? (lane % 2 ? all[3] : all[2]) : low;
}

/** The largest magnitude of a lane's elements in mask, for each of its blocks. */
template <int BLOCK>
static __device__ inline void lane_largest(const float x[8], uint32_t mask,
                                           uint32_t largest[FRUGI_LANE_BLOCKS<BLOCK>]) {
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_BLOCKS<BLOCK>; i++)
        largest[i] = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        largest[i / FRUGI_LANE_BLOCK_ELEMENTS<BLOCK>] =
            max(largest[i / FRUGI_LANE_BLOCK_ELEMENTS<BLOCK>], mask >> i & 1u ? frugi_magnitude(x[i]) : 0u);
}

/** The largest magnitude of block lane % FRUGI_TILE_BLOCKS of a tile, of the elements in mask. */
template <int BLOCK> static __device__ inline uint32_t largest_magnitude(const float x[8], uint32_t mask = 255u) {
    uint32_t largest[FRUGI_LANE_BLOCKS<BLOCK>];
    lane_largest<BLOCK>(x, mask, largest);
    return max_over_lanes<BLOCK>(largest);
}

/** The largest magnitude of the elements in mask of a block that a group processes. */
template <class GROUP>
static __device__ inline uint32_t largest_of_group(GROUP *group, const float x[8], uint32_t mask = 255u) {
    uint32_t largest[1];
    lane_largest<256>(x, mask, largest);
    return group->max(largest[0]);
}

/* x / scale in fixed point with 15 fractional bits, plus a random fraction, truncated: see residual_format.c. */
static __device__ inline uint32_t stochastic_round(float x, float inverse, uint32_t random) {
    return (frugi_f32_bits(__fadd_rn(__fmul_rn(x, inverse), FRUGI_ROUND_SHIFT)) + (random >> 17)) >> 15;
}

static __device__ inline uint32_t stochastic_round_bf16(float x, uint32_t random) {
    uint32_t u = frugi_f32_bits(x), r = u + (random >> 16);
    return ((r & FRUGI_ABS_MASK) >= FRUGI_INF_BITS ? u : r) >> 16;
}

/*
 * The scale of a block with this largest magnitude, and 32768 over it; both are 0 if the block is too small to store.
 */
template <int FORMAT> static __device__ inline uint16_t residual_scale(uint32_t largest, float *inverse) {
    const float levels = FORMAT == FRUGI_RESIDUAL_INT8 ? FRUGI_INT8_LEVELS : FRUGI_INT4_LEVELS;
    uint16_t scale = frugi_f32_bf16_up(__fdiv_rn(frugi_bits_f32(largest), levels));
    bool zero = scale < FRUGI_STORE_MIN_SCALE;
    *inverse = zero ? 0.0f : __fdiv_rn(32768.0f, frugi_bf16_f32(scale));
    return zero ? 0 : scale;
}

/* Store a lane's four elements of half j of a tile; random: the random number of the first of them. */
template <int FORMAT>
static __device__ inline void store_four(unsigned char *to, int j, uint32_t random, float inverse, const float x[4]) {
    uint32_t at = (uint32_t)j * 32 + frugi_lane(), q[4];
    if (FORMAT == FRUGI_RESIDUAL_F32) {
        __stcs(reinterpret_cast<float4 *>(to) + at, make_float4(x[0], x[1], x[2], x[3]));
        return;
    }
    const bool wide = FORMAT == FRUGI_RESIDUAL_INT8;
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t lane_scale = random + (uint32_t)i * FRUGI_WEYL;
        q[i] = FORMAT == FRUGI_RESIDUAL_BF16 ? stochastic_round_bf16(x[i], lane_scale)
                                             : stochastic_round(x[i], inverse, lane_scale);
        packed |= wide ? ((q[i] - 128u) & 255u) << (8 * i) : ((q[i] - 120u) & 15u) << (4 * i);
    }
    if (FORMAT == FRUGI_RESIDUAL_BF16)
        __stcs(reinterpret_cast<uint2 *>(to) + at, make_uint2(q[0] | q[1] << 16, q[2] | q[3] << 16));
    else if (wide)
        __stcs(reinterpret_cast<unsigned int *>(to) + at, inverse == 0.0f ? 0u : packed);
    else
        __stcs(reinterpret_cast<unsigned short *>(to) + at, (unsigned short)(inverse == 0.0f ? 0x8888u : packed));
}

/**
 * Store a tile; random: the random numbers of a lane's blocks; update: a bit for every block to write. The others do
 * not change. Call with all lanes.
 */
template <int FORMAT, int BLOCK>
static __device__ inline void store_residual(const residual_ptr &dst, const uint32_t random[FRUGI_LANE_BLOCKS<BLOCK>],
                                             uint32_t update, const float x[8]) {
    const int OWN = FRUGI_LANE_BLOCKS<BLOCK>;
    uint32_t lane = frugi_lane();
    float inverse = 0;
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4) {
        uint16_t scale = residual_scale<FORMAT>(largest_magnitude<BLOCK>(x), &inverse);
        if (lane < FRUGI_TILE_BLOCKS<BLOCK> && (BLOCK == 256 || update >> lane & 1u))
            dst.scale[lane] = scale;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t block = frugi_lane_block<BLOCK>(j % OWN), first_element = lane % FRUGI_BLOCK_LANES<BLOCK> * 4u;
        uint32_t first = random[j % OWN] + first_element * FRUGI_WEYL + (uint32_t)(OWN == 1 ? 128 * j : 0) * FRUGI_WEYL;
        float lane_scale = inverse;
        if (BLOCK < 256 && (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4))
            lane_scale = frugi_bits_f32(__shfl_sync(FRUGI_ALL_LANES, frugi_f32_bits(inverse), (int)block));
        if (BLOCK == 256 || update >> block & 1u)
            store_four<FORMAT>(dst.residual, j, first, lane_scale, x + 4 * j);
    }
}

/** Address of the residual of this warp's part of a long block. */
template <int FORMAT, int BLOCK>
static __device__ inline residual_ptr residual_part(const residual_ptr &first, uint64_t block) {
    const uint32_t WARPS_EACH = FRUGI_BLOCK_WARPS<BLOCK>;
    residual_ptr part =
        advance_residual<FORMAT, (int)FRUGI_GPU_WARP_TILE>(first, block * WARPS_EACH + threadIdx.x / 32);
    return {part.residual, first.scale + block};
}

/** Store this warp's part of a long block; random: the random number of the block. Call with all warps. */
template <int FORMAT, int BLOCK>
static __device__ inline void store_residual_part(frugi_block_group<BLOCK> *group, const residual_ptr &dst,
                                                  uint32_t random, const float x[8]) {
    float inverse = 0;
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4) {
        uint16_t scale = residual_scale<FORMAT>(largest_of_group(group, x), &inverse);
        if (threadIdx.x == 0)
            *dst.scale = scale;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t first_element = group->first_element() + frugi_element_index(frugi_lane(), 4 * j);
        store_four<FORMAT>(dst.residual, j, random + first_element * FRUGI_WEYL, inverse, x + 4 * j);
    }
}

#endif

/*
 * residual.cuh - a block of a gradient and what was left behind of it before, on their way into the registers of a
 * warp, and back. Residuals have four formats; those of fewer bits are rounded by dice: this is feedback/store.c on a
 * GPU.
 */
#ifndef FRUGI_RESIDUAL_CUH
#define FRUGI_RESIDUAL_CUH

#include "cuda/warp.cuh"

#include "feedback/store.h"

#define RESIDUAL_NONE 4

/* A block as it lies in memory: the gradient, and what was left behind in its format. */
typedef struct raw {
    float grad[FRUGI_EACH];
    uint32_t left[FRUGI_EACH];
    uint16_t scale;
} raw;

/* Where a block's residual lies, and its scale, where the format has one. */
typedef struct shelf {
    unsigned char *residual;
    uint16_t *scale;
} shelf;

/* Bytes of a block's residual. */
template <int FORMAT> static __device__ constexpr uint32_t shelf_bytes() {
    return FORMAT == FRUGI_RESIDUAL_F32    ? 1024u
           : FORMAT == FRUGI_RESIDUAL_BF16 ? 512u
           : FORMAT == FRUGI_RESIDUAL_INT8 ? 256u
           : FORMAT == FRUGI_RESIDUAL_INT4 ? 128u
                                           : 0u;
}

/* The shelf that is so many blocks behind another. */
template <int FORMAT> static __device__ inline shelf shelf_behind(const shelf &first, uint64_t blocks) {
    return {first.residual + blocks * shelf_bytes<FORMAT>(), first.scale + blocks};
}

template <int FORMAT> static __device__ inline void fetch_residual(const shelf &from, raw *r) {
    uint32_t lane = frugi_lane();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (FORMAT == FRUGI_RESIDUAL_F32) {
            uint4 v = __ldcs(reinterpret_cast<const uint4 *>(from.residual) + j * 32 + lane);
            r->left[4 * j] = v.x, r->left[4 * j + 1] = v.y, r->left[4 * j + 2] = v.z, r->left[4 * j + 3] = v.w;
        } else if (FORMAT == FRUGI_RESIDUAL_BF16) {
            uint2 v = __ldcs(reinterpret_cast<const uint2 *>(from.residual) + j * 32 + lane);
            r->left[2 * j] = v.x, r->left[2 * j + 1] = v.y;
        } else if (FORMAT == FRUGI_RESIDUAL_INT8) {
            r->left[j] = __ldcs(reinterpret_cast<const unsigned int *>(from.residual) + j * 32 + lane);
        } else if (FORMAT == FRUGI_RESIDUAL_INT4) {
            r->left[j] = __ldcs(reinterpret_cast<const unsigned short *>(from.residual) + j * 32 + lane);
        }
    }
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4)
        r->scale = *from.scale;
}

/* A number of eight bits with 128 added, or of four bits, as a float without a conversion: 2^23 + n, less 2^23 + zero.
 */
static __device__ inline float small(uint32_t n, float zero) {
    return __fsub_rn(frugi_bits_f32(0x4b000000u | n), zero);
}

template <int FORMAT> static __device__ inline void unpack(const raw &r, float x[8]) {
    if (FORMAT == RESIDUAL_NONE) {
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = 0.0f;
        return;
    }
    if (FORMAT == FRUGI_RESIDUAL_F32 || FORMAT == FRUGI_RESIDUAL_BF16) {
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = frugi_bits_f32(FORMAT == FRUGI_RESIDUAL_F32 ? r.left[i]
                                  : i % 2                      ? r.left[i / 2] & 0xffff0000u
                                                               : r.left[i / 2] << 16);
        return;
    }
    float scale = frugi_bf16_f32(r.scale);
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++) {
        uint32_t v = r.left[i / 4];
        float n = FORMAT == FRUGI_RESIDUAL_INT8 ? small(__byte_perm(v ^ 0x80808080u, 0, 0x4440u + i % 4), 8388736.0f)
                                                : small(v >> 4 * (i % 4) & 15u, 8388616.0f);
        x[i] = __fmul_rn(n, scale);
    }
    if (r.scale >= FRUGI_STORE_TAME)
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = frugi_tame(x[i]);
}

/** The largest magnitude of a block. */
static __device__ inline uint32_t largest(const float x[8]) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        most = max(most, frugi_magnitude(x[i]));
    return __reduce_max_sync(FRUGI_ALL_LANES, most);
}

/* x / scale with fifteen binary places, the dice added below the point, and cut off there: see store.c. */
static __device__ inline uint32_t roll(float x, float inverse, uint32_t dice) {
    return (frugi_f32_bits(__fadd_rn(__fmul_rn(x, inverse), FRUGI_ROLL)) + (dice >> 17)) >> 15;
}

static __device__ inline uint32_t upper_rolled(float x, uint32_t dice) {
    uint32_t u = frugi_f32_bits(x), r = u + (dice >> 16);
    return ((r & FRUGI_ABS_MASK) >= FRUGI_INF_BITS ? u : r) >> 16;
}

/** Keep a block, rounded at random; dice: the block's random number. */
template <int FORMAT>
static __device__ inline void save_residual(const shelf &where, uint32_t dice, const float x[8]) {
    uint32_t lane = frugi_lane();
    unsigned char *at = where.residual;
    if (FORMAT == FRUGI_RESIDUAL_F32) {
        float4 *to = reinterpret_cast<float4 *>(at);
        __stcs(to + lane, make_float4(x[0], x[1], x[2], x[3]));
        __stcs(to + 32 + lane, make_float4(x[4], x[5], x[6], x[7]));
        return;
    }
    dice += lane * (4u * FRUGI_WEYL);
    if (FORMAT == FRUGI_RESIDUAL_BF16) {
        uint2 *to = reinterpret_cast<uint2 *>(at);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t h[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                h[i] = upper_rolled(x[4 * j + i], dice + (uint32_t)(128 * j + i) * FRUGI_WEYL);
            __stcs(to + j * 32 + lane, make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16));
        }
        return;
    }
    const bool wide = FORMAT == FRUGI_RESIDUAL_INT8;
    uint16_t scale =
        frugi_f32_bf16_up(__fdiv_rn(frugi_bits_f32(largest(x)), wide ? FRUGI_INT8_LEVELS : FRUGI_INT4_LEVELS));
    bool nothing = scale < FRUGI_STORE_LEAST;
    float inverse = nothing ? 0.0f : __fdiv_rn(32768.0f, frugi_bf16_f32(scale));
    if (lane == 0)
        *where.scale = nothing ? 0 : scale;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t packed = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t q = roll(x[4 * j + i], inverse, dice + (uint32_t)(128 * j + i) * FRUGI_WEYL);
            packed |= wide ? ((q - 128u) & 255u) << (8 * i) : ((q - 120u) & 15u) << (4 * i);
        }
        if (wide)
            __stcs(reinterpret_cast<unsigned int *>(at) + j * 32 + lane, nothing ? 0u : packed);
        else
            __stcs(reinterpret_cast<unsigned short *>(at) + j * 32 + lane,
                   (unsigned short)(nothing ? 0x8888u : packed));
    }
}

#endif

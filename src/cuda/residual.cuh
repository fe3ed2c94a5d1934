/*
 * residual.cuh - what was left behind, between its four formats and the registers of a warp: feedback/store.c on a GPU.
 *
 * ARGS are the arguments of a kernel: residual and scale are looked for there.
 */
#ifndef FRUGI_RESIDUAL_CUH
#define FRUGI_RESIDUAL_CUH

#include "cuda/warp.cuh"

#include "feedback/store.h"

/** Block b as floats: a lane's share. */
template <int FORMAT, class ARGS> static __device__ inline void load_residual(const ARGS &p, uint64_t b, float x[8]) {
    uint32_t lane = frugi_lane();
    const unsigned char *at = p.residual;
    if (FORMAT == FRUGI_RESIDUAL_F32) {
        const float *from = reinterpret_cast<const float *>(at) + b * 256;
        frugi_load_four(from + lane * 4, true, x);
        frugi_load_four(from + 128 + lane * 4, true, x + 4);
        return;
    }
    if (FORMAT == FRUGI_RESIDUAL_BF16) {
        const uint2 *from = reinterpret_cast<const uint2 *>(at + b * 512);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint2 v = __ldcs(from + j * 32 + lane);
            x[4 * j] = frugi_bits_f32(v.x << 16), x[4 * j + 1] = frugi_bits_f32(v.x & 0xffff0000u);
            x[4 * j + 2] = frugi_bits_f32(v.y << 16), x[4 * j + 3] = frugi_bits_f32(v.y & 0xffff0000u);
        }
        return;
    }
    uint16_t bits = p.scale[b];
    float scale = frugi_bf16_f32(bits);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (FORMAT == FRUGI_RESIDUAL_INT8) {
            uint32_t v = __ldcs(reinterpret_cast<const unsigned int *>(at + b * 256) + j * 32 + lane);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[4 * j + i] = __fmul_rn((float)(signed char)(v >> (8 * i)), scale);
        } else {
            uint32_t v = __ldcs(reinterpret_cast<const unsigned short *>(at + b * 128) + j * 32 + lane);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[4 * j + i] = __fmul_rn((float)((int)((v >> (4 * i)) & 15u) - 8), scale);
        }
    }
    if (bits >= FRUGI_STORE_TAME)
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

/** Keep block b, rounded at random; dice: the block's random number. */
template <int FORMAT, class ARGS>
static __device__ inline void save_residual(const ARGS &p, uint64_t b, uint32_t dice, const float x[8]) {
    uint32_t lane = frugi_lane();
    unsigned char *at = p.residual;
    if (FORMAT == FRUGI_RESIDUAL_F32) {
        float4 *to = reinterpret_cast<float4 *>(at) + b * 64;
        __stcs(to + lane, make_float4(x[0], x[1], x[2], x[3]));
        __stcs(to + 32 + lane, make_float4(x[4], x[5], x[6], x[7]));
        return;
    }
    dice += lane * (4u * FRUGI_WEYL);
    if (FORMAT == FRUGI_RESIDUAL_BF16) {
        uint2 *to = reinterpret_cast<uint2 *>(at + b * 512);
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
        p.scale[b] = nothing ? 0 : scale;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t packed = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t q = roll(x[4 * j + i], inverse, dice + (uint32_t)(128 * j + i) * FRUGI_WEYL);
            packed |= wide ? ((q - 128u) & 255u) << (8 * i) : ((q - 120u) & 15u) << (4 * i);
        }
        if (wide)
            __stcs(reinterpret_cast<unsigned int *>(at + b * 256) + j * 32 + lane, nothing ? 0u : packed);
        else
            __stcs(reinterpret_cast<unsigned short *>(at + b * 128) + j * 32 + lane,
                   (unsigned short)(nothing ? 0x8888u : packed));
    }
}

#endif

/*
 * gpu_residual.cuh - a block of a gradient and what was left behind of it before, on their way into the registers of a
 * warp, and back. Residuals have four formats; those of fewer bits are rounded by dice: this is feedback/store.c on a
 * GPU.
 */
#ifndef FRUGI_RESIDUAL_CUH
#define FRUGI_RESIDUAL_CUH

#include "cuda/gpu_warp.cuh"

#include "residual/residual_format.h"

#define RESIDUAL_NONE 4

/* A stretch as it lies in memory: the gradient, and what was left behind in its format. */
template <int BLOCK> struct raw {
    float grad[FRUGI_EACH];
    uint32_t left[FRUGI_EACH];
    uint16_t scale[FRUGI_OWN<BLOCK>];
};

/* Where the residual of a stretch lies, and its blocks' scales, where the format has them. */
typedef struct shelf {
    unsigned char *residual;
    uint16_t *scale;
} shelf;

/* Bytes of a block's residual. */
template <int FORMAT, int BLOCK> static __device__ constexpr uint32_t shelf_bytes() {
    return FORMAT == FRUGI_RESIDUAL_F32    ? 4u * BLOCK
           : FORMAT == FRUGI_RESIDUAL_BF16 ? 2u * BLOCK
           : FORMAT == FRUGI_RESIDUAL_INT8 ? 1u * BLOCK
           : FORMAT == FRUGI_RESIDUAL_INT4 ? BLOCK / 2u
                                           : 0u;
}

/* The shelf that is so many blocks behind another. */
template <int FORMAT, int BLOCK> static __device__ inline shelf shelf_behind(const shelf &first, uint64_t blocks) {
    return {first.residual + blocks * shelf_bytes<FORMAT, BLOCK>(), first.scale + blocks};
}

/* Whether there is a lane's block j in a stretch of so many elements; a block of 256 is alone, and there. */
template <int BLOCK> static __device__ inline bool is_there(int j, uint32_t length) {
    return BLOCK == 256 || frugi_own_block<BLOCK>(j) * BLOCK < length;
}

/* What was left behind of a stretch of so many elements; zeros where there are no blocks. */
template <int FORMAT, int BLOCK>
static __device__ inline void fetch_residual(const shelf &from, uint32_t length, raw<BLOCK> *r) {
    uint32_t lane = frugi_lane();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (FORMAT == FRUGI_RESIDUAL_F32) {
            uint4 v = {};
            if (is_there<BLOCK>(j, length))
                v = __ldcs(reinterpret_cast<const uint4 *>(from.residual) + j * 32 + lane);
            r->left[4 * j] = v.x, r->left[4 * j + 1] = v.y, r->left[4 * j + 2] = v.z, r->left[4 * j + 3] = v.w;
        } else if (FORMAT == FRUGI_RESIDUAL_BF16) {
            uint2 v = {};
            if (is_there<BLOCK>(j, length))
                v = __ldcs(reinterpret_cast<const uint2 *>(from.residual) + j * 32 + lane);
            r->left[2 * j] = v.x, r->left[2 * j + 1] = v.y;
        } else if (FORMAT == FRUGI_RESIDUAL_INT8) {
            r->left[j] = 0;
            if (is_there<BLOCK>(j, length))
                r->left[j] = __ldcs(reinterpret_cast<const unsigned int *>(from.residual) + j * 32 + lane);
        } else if (FORMAT == FRUGI_RESIDUAL_INT4) {
            r->left[j] = 0;
            if (is_there<BLOCK>(j, length))
                r->left[j] = __ldcs(reinterpret_cast<const unsigned short *>(from.residual) + j * 32 + lane);
        }
    }
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4)
#pragma unroll
        for (int j = 0; j < FRUGI_OWN<BLOCK>; j++)
            r->scale[j] = is_there<BLOCK>(j, length) ? from.scale[frugi_own_block<BLOCK>(j)] : 0;
}

/* A number of eight bits with 128 added, or of four bits, as a float without a conversion: 2^23 + n, less 2^23 + zero.
 */
static __device__ inline float small(uint32_t n, float zero) {
    return __fsub_rn(frugi_bits_f32(0x4b000000u | n), zero);
}

/* What was left behind, from numbers of few bits and their blocks' scales. */
template <int FORMAT, int BLOCK> static __device__ inline void unpack_scaled(const raw<BLOCK> &r, float x[8]) {
#pragma unroll
    for (int j = 0; j < FRUGI_OWN<BLOCK>; j++) {
        const int first = j * FRUGI_SHARE<BLOCK>, end = first + FRUGI_SHARE<BLOCK>;
        float scale = frugi_bf16_f32(r.scale[j]);
#pragma unroll
        for (int i = first; i < end; i++) {
            uint32_t v = r.left[i / 4];
            float n = FORMAT == FRUGI_RESIDUAL_INT8
                          ? small(__byte_perm(v ^ 0x80808080u, 0, 0x4440u + i % 4), 8388736.0f)
                          : small(v >> 4 * (i % 4) & 15u, 8388616.0f);
            x[i] = __fmul_rn(n, scale);
        }
        if (r.scale[j] >= FRUGI_STORE_TAME)
            for (int i = first; i < end; i++)
                x[i] = frugi_tame(x[i]);
    }
}

template <int FORMAT, int BLOCK> static __device__ inline void unpack(const raw<BLOCK> &r, float x[8]) {
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4) {
        unpack_scaled<FORMAT, BLOCK>(r, x);
    } else {
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = FORMAT == RESIDUAL_NONE ? 0.0f
                                           : frugi_bits_f32(FORMAT == FRUGI_RESIDUAL_F32 ? r.left[i]
                                                            : i % 2                      ? r.left[i / 2] & 0xffff0000u
                                                                                         : r.left[i / 2] << 16);
    }
}

/*
 * What a lane brings for each of its blocks, as the largest of all lanes that have a part in the block: that of block
 * lane % FRUGI_BLOCKS of the stretch, so that what is made of it is made once.
 */
template <int BLOCK> static __device__ inline uint32_t most_of_lanes(const uint32_t most[FRUGI_OWN<BLOCK>]) {
    uint32_t all[4], lane = frugi_lane();
#pragma unroll
    for (int i = 0; i < (int)FRUGI_BLOCKS<BLOCK>; i++) {
        uint32_t mine = BLOCK > 64 || lane / 16 == (uint32_t)i % 2 ? most[BLOCK > 64 ? i : i / 2] : 0u;
        all[i] = __reduce_max_sync(FRUGI_ALL_LANES, mine);
    }
    uint32_t low = BLOCK < 256 && lane % 2 ? all[1] : all[0];
    return BLOCK == 64 && lane & 2u ? (lane % 2 ? all[3] : all[2]) : low;
}

/** The largest magnitude of block lane % FRUGI_BLOCKS of a stretch. */
template <int BLOCK> static __device__ inline uint32_t largest(const float x[8]) {
    uint32_t most[FRUGI_OWN<BLOCK>] = {};
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        most[i / FRUGI_SHARE<BLOCK>] = max(most[i / FRUGI_SHARE<BLOCK>], frugi_magnitude(x[i]));
    return most_of_lanes<BLOCK>(most);
}

/* x / scale with fifteen binary places, the dice added below the point, and cut off there: see residual_format.c. */
static __device__ inline uint32_t roll(float x, float inverse, uint32_t dice) {
    return (frugi_f32_bits(__fadd_rn(__fmul_rn(x, inverse), FRUGI_ROLL)) + (dice >> 17)) >> 15;
}

static __device__ inline uint32_t upper_rolled(float x, uint32_t dice) {
    uint32_t u = frugi_f32_bits(x), r = u + (dice >> 16);
    return ((r & FRUGI_ABS_MASK) >= FRUGI_INF_BITS ? u : r) >> 16;
}

/* The scale of a block with such a largest magnitude, and what its numbers are multiplied with; 0: nothing is kept. */
template <int FORMAT> static __device__ inline uint16_t scale_for(uint32_t most, float *inverse) {
    const float levels = FORMAT == FRUGI_RESIDUAL_INT8 ? FRUGI_INT8_LEVELS : FRUGI_INT4_LEVELS;
    uint16_t scale = frugi_f32_bf16_up(__fdiv_rn(frugi_bits_f32(most), levels));
    bool nothing = scale < FRUGI_STORE_LEAST;
    *inverse = nothing ? 0.0f : __fdiv_rn(32768.0f, frugi_bf16_f32(scale));
    return nothing ? 0 : scale;
}

/* Keep a lane's four elements of half j of a stretch, rounded at random from the dice of the first on. */
template <int FORMAT>
static __device__ inline void save_four(unsigned char *to, int j, uint32_t dice, float inverse, const float x[4]) {
    uint32_t at = (uint32_t)j * 32 + frugi_lane(), q[4];
    if (FORMAT == FRUGI_RESIDUAL_F32) {
        __stcs(reinterpret_cast<float4 *>(to) + at, make_float4(x[0], x[1], x[2], x[3]));
        return;
    }
    const bool wide = FORMAT == FRUGI_RESIDUAL_INT8;
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t mine = dice + (uint32_t)i * FRUGI_WEYL;
        q[i] = FORMAT == FRUGI_RESIDUAL_BF16 ? upper_rolled(x[i], mine) : roll(x[i], inverse, mine);
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
 * Keep a stretch; dice: the random numbers of a lane's blocks; keep: a bit for every block that is to be kept. The
 * others stay as they were. All lanes must come.
 */
template <int FORMAT, int BLOCK>
static __device__ inline void save_residual(const shelf &where, const uint32_t dice[FRUGI_OWN<BLOCK>], uint32_t keep,
                                            const float x[8]) {
    const int OWN = FRUGI_OWN<BLOCK>;
    uint32_t lane = frugi_lane();
    float inverse = 0;
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4) {
        uint16_t scale = scale_for<FORMAT>(largest<BLOCK>(x), &inverse);
        if (lane < FRUGI_BLOCKS<BLOCK> && (BLOCK == 256 || keep >> lane & 1u))
            where.scale[lane] = scale;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t block = frugi_own_block<BLOCK>(j % OWN), turns = lane % FRUGI_SPAN<BLOCK> * 4u;
        uint32_t first = dice[j % OWN] + turns * FRUGI_WEYL + (uint32_t)(OWN == 1 ? 128 * j : 0) * FRUGI_WEYL;
        float mine = inverse;
        if (BLOCK < 256 && (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4))
            mine = frugi_bits_f32(__shfl_sync(FRUGI_ALL_LANES, frugi_f32_bits(inverse), (int)block));
        if (BLOCK == 256 || keep >> block & 1u)
            save_four<FORMAT>(where.residual, j, first, mine, x + 4 * j);
    }
}

#endif

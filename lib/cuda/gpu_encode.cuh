/*
 * gpu_encode.cuh - encode the selected entries of a warp tile: scales of its blocks, indices, values.
 *
 * The position of an entry within the tile is a prefix sum over the lanes; gpu_writer.cuh writes the bytes to the
 * frame.
 */
#ifndef FRUGI_GPU_ENCODE_CUH
#define FRUGI_GPU_ENCODE_CUH

#include "cuda/gpu_writer.cuh"
#include "cuda/gpu_residual.cuh"
#include "cuda/gpu_select.cuh"

/* Bytes of the scale of a block. */
static __device__ inline uint32_t scale_bytes(uint32_t value) {
    return value == FRUGI_VALUE_INT8 ? 2u : value == FRUGI_VALUE_F16 ? 1u : 0u;
}

/* Encode one value; returns the encoding error. */
template <int VALUE>
static __device__ inline float encode_value(unsigned char *values, uint32_t rank, float x, float scale) {
    if (VALUE == FRUGI_VALUE_F32) {
        reinterpret_cast<float *>(values)[rank] = x;
        return 0.0f;
    }
    if (VALUE == FRUGI_VALUE_BF16) {
        uint16_t h = frugi_f32_bf16(x);
        reinterpret_cast<uint16_t *>(values)[rank] = h;
        return __fsub_rn(x, frugi_bf16_f32(h));
    }
    if (VALUE == FRUGI_VALUE_F16) {
        uint16_t top = scale < 0x1p113f ? 0x7800 : 0x77ff; /* 2^15, but 2^15 * 2^113 overflows a float */
        uint16_t h = frugi_f32_f16(__fmul_rn(x, __fdiv_rn(1.0f, scale)));
        h = (h & 0x7fff) > top ? (uint16_t)((h & 0x8000) | top) : h;
        reinterpret_cast<uint16_t *>(values)[rank] = h;
        return __fsub_rn(x, __fmul_rn(frugi_f16_f32(h), scale));
    }
    float n = __fsub_rn(__fadd_rn(__fdiv_rn(x, scale > 0 ? scale : 1.0f), FRUGI_ROUND), FRUGI_ROUND);
    n = n > 127.0f ? 127.0f : n < -127.0f ? -127.0f : n;
    values[rank] = (unsigned char)(signed char)n;
    return __fsub_rn(x, __fmul_rn(n, scale));
}

/* Write the indices of a tile as a bitmap: two lanes make a byte. */
static __device__ inline void write_bitmap(unsigned char *to, uint32_t mask) {
    uint32_t lane = frugi_lane(), next = __shfl_down_sync(FRUGI_ALL_LANES, mask, 1);
    if (lane % 2 == 0) {
        to[lane / 2] = (unsigned char)((mask & 15u) | (next & 15u) << 4);
        to[16 + lane / 2] = (unsigned char)((mask >> 4) | (next >> 4) << 4);
    }
}

/* Writers of the three arrays of a section. */
typedef struct section_writers {
    frugi_warp_writer scales, indices, values;
} section_writers;

/* Shared memory of a warp: a tile, the buffers of its writers, the scales of short blocks. */
typedef struct __align__(16) warp_smem {
    float stage[FRUGI_GPU_WARP_TILE];
    uint32_t scales[FRUGI_WRITER_WORDS(8)], indices[FRUGI_WRITER_WORDS(256)], values[FRUGI_WRITER_WORDS(1024)];
    float block_scale[4];
}
warp_smem;

/* The scale for values of which `largest` is the largest magnitude: encoded, into *bits, and as a float. */
template <int VALUE> static __device__ inline float value_scale(float largest, uint32_t *bits) {
    if (VALUE == FRUGI_VALUE_INT8) {
        uint16_t h = frugi_f32_bf16_up(__fdiv_rn(largest, 127.0f));
        h = h < FRUGI_INT8_MAX_SCALE ? h : FRUGI_INT8_MAX_SCALE;
        *bits = h;
        return frugi_bf16_f32(h);
    }
    int e = max((int)(frugi_f32_bits(largest) >> 23) - 127 - FRUGI_F16_MAX_EXPONENT, FRUGI_F16_MIN_EXPONENT);
    *bits = (uint32_t)e;
    return frugi_power_of_two(e);
}

/*
 * Encode the scale of each block of a tile; sent_share is the share of each value that is sent. The scale is returned
 * for a block of 256, and written to shared memory for short blocks, where a lane has entries of several. It depends on
 * the selected elements: with select=hist the largest of a block need not be one of them.
 */
template <int VALUE, int BLOCK>
static __device__ inline float encode_scales(const float x[8], uint32_t mask, uint32_t length, float sent_share,
                                             frugi_warp_writer *writers, warp_smem *smem) {
    if (scale_bytes(VALUE) == 0)
        return 0;
    unsigned char *to = reinterpret_cast<unsigned char *>(smem->scales) + writers->fill;
    uint32_t lane = frugi_lane(), bits;
    float scale = value_scale<VALUE>(__fmul_rn(sent_share, frugi_bits_f32(largest_magnitude<BLOCK>(x, mask))), &bits);
    writers->fill += scale_bytes(VALUE) * (BLOCK == 256 ? 1 : (length + BLOCK - 1) / BLOCK);
    if (lane < FRUGI_TILE_BLOCKS<BLOCK>) {
        if (VALUE == FRUGI_VALUE_INT8)
            reinterpret_cast<uint16_t *>(to)[lane] = (uint16_t)bits;
        else
            to[lane] = (unsigned char)bits;
        if (BLOCK < 256)
            smem->block_scale[lane] = scale;
    }
    return scale;
}

/* Write the indices within the tile of the selected elements, in ascending order. */
static __device__ inline void write_indices(unsigned char *to, uint32_t mask) {
    frugi_warp_group warp;
    uint32_t rank[2], lane = frugi_lane();
    rank_entries(&warp, mask, rank);
    unsigned char *half[2] = {to + rank[0], to + rank[1]};
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (mask >> i & 1u)
            *half[i >> 2]++ = (unsigned char)frugi_element_index(lane, i);
}

/* Encode one value, of which the residual, if there is one, may retain a share; returns the new residual. */
template <int VALUE>
static __device__ inline float encode_with_retention(const frugi_gpu_compress_args &p, bool has_residual,
                                                     unsigned char *values, uint32_t rank, float x, float scale) {
    if (has_residual && p.retention > 0.0f)
        return __fadd_rn(encode_value<VALUE>(values, rank, __fmul_rn(p.sent_share, x), scale),
                         __fmul_rn(p.retention, x));
    return encode_value<VALUE>(values, rank, x, scale);
}

/*
 * Encode all entries of a tile; x becomes the residual. The number of entries differs from lane to lane, so they are
 * redistributed: indices are written first, one byte each; then each lane encodes every 32nd entry and replaces its
 * index in the tile by its index in the block. (Encoding each entry in the lane that has it was slower, even for f32.)
 * Bitmaps overwrite the indices afterwards; the bitmaps of several blocks form one of the tile.
 */
template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline void encode_tile(const frugi_gpu_compress_args &p, uint32_t index, const frugi_gpu_tile &tile,
                                          uint32_t mask, float x[8], section_writers *writers, warp_smem *smem) {
    const bool HAS_RESIDUAL = FORMAT != RESIDUAL_NONE;
    uint32_t k = tile.k;
    float scale =
        encode_scales<VALUE, BLOCK>(x, mask, tile.length, HAS_RESIDUAL ? p.sent_share : 1.0f, &writers->scales, smem);
    unsigned char *indices = reinterpret_cast<unsigned char *>(smem->indices) + writers->indices.fill;
    unsigned char *values = reinterpret_cast<unsigned char *>(smem->values) + writers->values.fill;
    uint32_t lane = frugi_lane();
    float4 *four = reinterpret_cast<float4 *>(smem->stage);
    four[lane] = make_float4(x[0], x[1], x[2], x[3]);
    four[32 + lane] = make_float4(x[4], x[5], x[6], x[7]);
    write_indices(indices, mask);
    __syncwarp();
    for (uint32_t e = lane; e < k; e += 32) {
        uint32_t index_in_tile = indices[e];
        float *one = smem->stage + index_in_tile;
        if (BLOCK < 256 && scale_bytes(VALUE))
            scale = smem->block_scale[index_in_tile / BLOCK];
        if (BLOCK < 256)
            indices[e] = (unsigned char)(index_in_tile % BLOCK);
        *one = encode_with_retention<VALUE>(p, HAS_RESIDUAL, values, e, *one, scale);
    }
    __syncwarp();
    float4 a = four[lane], b = four[32 + lane];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    if (index == FRUGI_INDEX_CODE_BITMAP)
        write_bitmap(indices, mask);
    uint32_t map = BLOCK == 256 ? 32 : (tile.length + BLOCK - 1) / BLOCK * (BLOCK / 8);
    writers->indices.fill += index == FRUGI_INDEX_CODE_LOCAL ? k : index == FRUGI_INDEX_CODE_BITMAP ? map : 0;
    writers->values.fill += k * frugi_gpu_value_bytes(VALUE);
}

#endif

/*
 * gpu_encode.cuh - the entries of a stretch, encoded: what its blocks' values share, their places, the values themselves.
 * Ranks within the stretch are a prefix sum over the lanes; gpu_writer.cuh takes the bytes to the frame.
 */
#ifndef FRUGI_SAY_CUH
#define FRUGI_SAY_CUH

#include "cuda/gpu_writer.cuh"
#include "cuda/gpu_residual.cuh"
#include "cuda/gpu_select.cuh"

/* Of a block, for what its values share. */
static __device__ inline uint32_t scale_bytes(uint32_t value) {
    return value == FRUGI_VALUE_INT8 ? 2u : value == FRUGI_VALUE_F16 ? 1u : 0u;
}

/* One entry; returns what the code leaves over. */
template <int VALUE> static __device__ inline float say(unsigned char *values, uint32_t rank, float x, float scale) {
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
        uint16_t top = scale < 0x1p113f ? 0x7800 : 0x77ff; /* 2^15, but 2^15 * 2^113 is no float */
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

/* The places of a stretch as bits: two lanes make a byte. */
static __device__ inline void say_bitmap(unsigned char *to, uint32_t mask) {
    uint32_t lane = frugi_lane(), next = __shfl_down_sync(FRUGI_ALL_LANES, mask, 1);
    if (lane % 2 == 0) {
        to[lane / 2] = (unsigned char)((mask & 15u) | (next & 15u) << 4);
        to[16 + lane / 2] = (unsigned char)((mask >> 4) | (next >> 4) << 4);
    }
}

/*
 * The largest magnitude among the elements in mask, of block lane % FRUGI_BLOCKS. With hist that need not be the
 * block's: it may share its upper half with entries at lower places, which go first.
 */
template <int BLOCK> static __device__ inline uint32_t largest_of(const float x[8], uint32_t mask) {
    uint32_t most[FRUGI_OWN<BLOCK>] = {};
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        most[i / FRUGI_SHARE<BLOCK>] = max(most[i / FRUGI_SHARE<BLOCK>], mask >> i & 1u ? frugi_magnitude(x[i]) : 0u);
    return most_of_lanes<BLOCK>(most);
}

/* The arrays of a section, as far as a warp has written them. */
typedef struct pens {
    frugi_pen scales, places, values;
} pens;

/* What a warp has in shared memory: a stretch, and what waits to be written; the scales of short blocks. */
typedef struct __align__(16) paper {
    float stage[FRUGI_GPU_STRETCH];
    uint32_t scales[FRUGI_PEN_WORDS(8)], places[FRUGI_PEN_WORDS(256)], values[FRUGI_PEN_WORDS(1024)];
    float shared[4];
}
paper;

/* What values of which such a part is the largest share: as bits, into *bits, and as a number. */
template <int VALUE> static __device__ inline float scale_for_values(float most, uint32_t *bits) {
    if (VALUE == FRUGI_VALUE_INT8) {
        uint16_t h = frugi_f32_bf16_up(__fdiv_rn(most, 127.0f));
        h = h < FRUGI_INT8_MOST ? h : FRUGI_INT8_MOST;
        *bits = h;
        return frugi_bf16_f32(h);
    }
    int e = max((int)(frugi_f32_bits(most) >> 23) - 127 - FRUGI_F16_TOP, FRUGI_F16_LEAST);
    *bits = (uint32_t)e;
    return frugi_power_of_two(e);
}

/*
 * What the values of each block of a stretch share, said before them; of each, that part leaves. Returned for a block
 * of 256, and on paper for short ones, where a lane meets entries of all.
 */
template <int VALUE, int BLOCK>
static __device__ inline float say_scale(const float x[8], uint32_t mask, uint32_t length, float part, frugi_pen *pen,
                                         paper *page) {
    if (scale_bytes(VALUE) == 0)
        return 0;
    unsigned char *to = reinterpret_cast<unsigned char *>(page->scales) + pen->fill;
    uint32_t lane = frugi_lane(), bits;
    float scale = scale_for_values<VALUE>(__fmul_rn(part, frugi_bits_f32(largest_of<BLOCK>(x, mask))), &bits);
    pen->fill += scale_bytes(VALUE) * (BLOCK == 256 ? 1 : (length + BLOCK - 1) / BLOCK);
    if (lane < FRUGI_BLOCKS<BLOCK>) {
        if (VALUE == FRUGI_VALUE_INT8)
            reinterpret_cast<uint16_t *>(to)[lane] = (uint16_t)bits;
        else
            to[lane] = (unsigned char)bits;
        if (BLOCK < 256)
            page->shared[lane] = scale;
    }
    return scale;
}

/* The places in the stretch of a lane's elements in mask, in its order. */
static __device__ inline void say_places(unsigned char *to, uint32_t mask) {
    uint32_t total, sums = sum_before(__popc(mask & 15u) | __popc(mask >> 4) << 16, &total), lane = frugi_lane();
    unsigned char *half[2] = {to + (sums & 0xffffu), to + (total & 0xffffu) + (sums >> 16)};
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        if (mask >> i & 1u)
            *half[i >> 2]++ = (unsigned char)frugi_place_of(lane, i);
}

/* One entry, of which a share may stay; returns all that stays. */
template <int VALUE>
static __device__ inline float say_part(const frugi_gpu_press &p, unsigned char *values, uint32_t rank, float x,
                                        float scale) {
    if (p.hold > 0.0f)
        return __fadd_rn(say<VALUE>(values, rank, __fmul_rn(p.part, x), scale), __fmul_rn(p.hold, x));
    return say<VALUE>(values, rank, x, scale);
}

/*
 * All entries of a stretch; x keeps what stays. Lanes have unlike numbers of them, so they are shared out: first come
 * the places, as bytes, and by them each lane finds every 32nd entry, of which it leaves the place in its block.
 * Bitmaps are put over them afterwards; those of several blocks are one of the stretch.
 */
template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline void encode(const frugi_gpu_press &p, uint32_t index, const frugi_spot &at, uint32_t mask,
                                     float x[8], pens *pen, paper *page) {
    const bool KEPT = FORMAT != RESIDUAL_NONE;
    uint32_t k = at.k;
    float scale = say_scale<VALUE, BLOCK>(x, mask, at.length, KEPT ? p.part : 1.0f, &pen->scales, page);
    unsigned char *places = reinterpret_cast<unsigned char *>(page->places) + pen->places.fill;
    unsigned char *values = reinterpret_cast<unsigned char *>(page->values) + pen->values.fill;
    uint32_t lane = frugi_lane();
    float4 *four = reinterpret_cast<float4 *>(page->stage);
    four[lane] = make_float4(x[0], x[1], x[2], x[3]);
    four[32 + lane] = make_float4(x[4], x[5], x[6], x[7]);
    say_places(places, mask);
    __syncwarp();
    for (uint32_t e = lane; e < k; e += 32) {
        uint32_t place = places[e];
        float *one = page->stage + place;
        if (BLOCK < 256 && scale_bytes(VALUE))
            scale = page->shared[place / BLOCK];
        if (BLOCK < 256)
            places[e] = (unsigned char)(place % BLOCK);
        *one = KEPT ? say_part<VALUE>(p, values, e, *one, scale) : say<VALUE>(values, e, *one, scale);
    }
    __syncwarp();
    float4 a = four[lane], b = four[32 + lane];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    if (index == FRUGI_INDEX_CODE_BITMAP)
        say_bitmap(places, mask);
    uint32_t map = BLOCK == 256 ? 32 : (at.length + BLOCK - 1) / BLOCK * (BLOCK / 8);
    pen->places.fill += index == FRUGI_INDEX_CODE_LOCAL ? k : index == FRUGI_INDEX_CODE_BITMAP ? map : 0;
    pen->values.fill += k * frugi_gpu_value_bytes(VALUE);
}

#endif

/*
 * sum.cu - check the frames of several workers on a GPU, and add them up. A warp takes a block.
 *
 * A receiver knows beforehand how a frame of a step is cut, so it compares rather than parses: section headers must
 * be the very bytes it would write itself. Then no number in a frame is ever used as a length or a place before it was
 * checked, and nothing has to be read back by the host. Sums go in the order of the frames, as on the CPU.
 */
#include "cuda/warp.cuh"

#include "frugrad.h"

#define WARPS 8

static __device__ void accuse(frugi_gpu_verdict *verdict, int status, uint32_t frame) {
    if (atomicCAS(&verdict->status, 0, status) == 0)
        verdict->frame = frame;
}

static __device__ bool says(const unsigned char *at, uint64_t v, int bytes) {
    bool same = true;
    for (int i = 0; i < bytes; i++)
        same = same && at[i] == (unsigned char)(v >> (8 * i));
    return same;
}

static __device__ bool header_is(const frugi_gpu_slice *s, const unsigned char *h) {
    return h[0] == s->index && h[1] == s->value && says(h + 2, FRUGI_GPU_BLOCK, 2) && says(h + 4, s->tensor, 4) &&
           says(h + 8, s->begin, 8) && says(h + 16, s->count, 8) && says(h + 24, s->kappa, 8) &&
           says(h + 32, s->first, 8) && says(h + 40, s->bytes, 8);
}

static __device__ inline bool finite(const frugi_gpu_slice *s, const unsigned char *values, uint32_t e) {
    if (s->value == FRUGI_VALUE_F16)
        return (reinterpret_cast<const uint16_t *>(values)[e] & 0x7c00u) != 0x7c00u;
    uint32_t bits = s->value == FRUGI_VALUE_F32 ? reinterpret_cast<const uint32_t *>(values)[e]
                                                : (uint32_t) reinterpret_cast<const uint16_t *>(values)[e] << 16;
    return (bits & FRUGI_ABS_MASK) < FRUGI_INF_BITS;
}

/* Whether the places of a block rise and stay inside it, and its values are finite, as far as a lane sees. */
static __device__ inline bool block_is_sound(const frugi_gpu_slice *s, const frugi_spot &at, const unsigned char *payload) {
    const unsigned char *values = payload + s->value_at + at.before * frugi_gpu_value_bytes(s->value);
    uint32_t lane = frugi_lane();
    bool good = true;
    if (s->index == FRUGI_INDEX_CODE_LOCAL) {
        const unsigned char *index = payload + s->index_at + at.before;
#pragma unroll 4
        for (uint32_t e = lane; e < at.k; e += 32)
            good &= (index[e] < at.length) & (index[e > 0 ? e - 1 : 0] < index[e] + (e == 0));
    } else if (s->index == FRUGI_INDEX_CODE_BITMAP) {
        uint32_t byte = payload[s->index_at + (uint64_t)at.b * 32 + lane], first = lane * 8;
        uint32_t beyond = first >= at.length ? byte : at.length - first >= 8 ? 0 : byte >> (at.length - first);
        good = __reduce_add_sync(FRUGI_ALL_LANES, __popc(byte)) == at.k && beyond == 0;
    }
    if (s->value == FRUGI_VALUE_INT8)
        return good && reinterpret_cast<const uint16_t *>(payload)[at.b] <= FRUGI_INT8_MOST;
    if (s->value == FRUGI_VALUE_F16) {
        int power = (signed char)payload[at.b];
        good &= power >= FRUGI_F16_LEAST && power <= 127 - FRUGI_F16_TOP;
    }
#pragma unroll 4
    for (uint32_t e = lane; e < at.k; e += 32)
        good &= finite(s, values, e);
    return good;
}

/* Frames go four at a time, so that their loads need not wait for each other. */
static __global__ void __launch_bounds__(32 * WARPS) check_kernel(const __grid_constant__ frugi_gpu_sum sum) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < sum.table.blocks; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(sum.table, n);
        frugi_spot at = frugi_spot_of(s, n - s->blocks_before);
        for (uint32_t f = 0; f < sum.frames; f += 4) {
            bool good[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                good[i] = f + i >= sum.frames || block_is_sound(s, at, sum.frame[f + i] + s->payload_at);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (!good[i])
                    accuse(sum.verdict, FRUG_ERR_FORMAT, f + i);
        }
        if (at.b == 0)
            for (uint32_t f = frugi_lane(); f < sum.frames; f += 32)
                if (!header_is(s, sum.frame[f] + s->payload_at - FRUGI_GPU_HEADER))
                    accuse(sum.verdict, FRUG_ERR_MISMATCH, f);
    }
}

/* The places of a bitmap as bytes, in shared memory. */
static __device__ void list_bits(const unsigned char *bitmap, unsigned char *index) {
    uint32_t lane = frugi_lane(), byte = bitmap[lane], count = __popc(byte), before = count;
    for (int d = 1; d < 32; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, before, d);
        before += lane >= (uint32_t)d ? other : 0;
    }
    for (before -= count; byte; byte &= byte - 1)
        index[before++] = (unsigned char)(lane * 8 + (uint32_t)__ffs((int)byte) - 1);
    __syncwarp();
}

static __device__ inline float value_of(const frugi_gpu_slice *s, const unsigned char *values, uint32_t e, float scale) {
    if (s->value == FRUGI_VALUE_F32)
        return reinterpret_cast<const float *>(values)[e];
    if (s->value == FRUGI_VALUE_BF16)
        return frugi_bf16_f32(reinterpret_cast<const uint16_t *>(values)[e]);
    if (s->value == FRUGI_VALUE_F16)
        return __fmul_rn(frugi_f16_f32(reinterpret_cast<const uint16_t *>(values)[e]), scale);
    return __fmul_rn((float)(signed char)values[e], scale);
}

static __device__ inline float scale_of(const frugi_gpu_slice *s, const unsigned char *payload, uint32_t b) {
    if (s->value == FRUGI_VALUE_F16)
        return frugi_power_of_two((signed char)payload[b]);
    return s->value == FRUGI_VALUE_INT8 ? frugi_bf16_f32(reinterpret_cast<const uint16_t *>(payload)[b]) : 0.0f;
}

/* Add one frame's block to the sum in shared memory. Places of a block differ, so lanes never meet. */
static __device__ inline void add_block(const frugi_gpu_slice *s, const frugi_spot &at, const unsigned char *payload,
                                        float *sum, unsigned char *listed) {
    const unsigned char *values = payload + s->value_at + at.before * frugi_gpu_value_bytes(s->value);
    const unsigned char *index = payload + s->index_at + at.before;
    if (s->index == FRUGI_INDEX_CODE_BITMAP) {
        list_bits(payload + s->index_at + (uint64_t)at.b * 32, listed);
        index = listed;
    }
    float scale = scale_of(s, payload, at.b);
    for (uint32_t first = frugi_lane(); first < at.k; first += 128) { /* four loads at a time */
        uint32_t place[4];
        float v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t e = first + 32 * i;
            place[i] = e >= at.k ? 0 : s->index == FRUGI_INDEX_CODE_NONE ? e : index[e];
            v[i] = e < at.k ? value_of(s, values, e, scale) : 0.0f;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (first + 32 * i < at.k)
                sum[place[i]] = __fadd_rn(sum[place[i]], v[i]);
    }
    __syncwarp();
}

/* The same for four frames with at most 32 entries a block, and places as bytes: all are fetched before one is added. */
static __device__ inline void add_four(const frugi_gpu_slice *s, const frugi_spot &at,
                                       const unsigned char *const *frame, float *sum) {
    uint64_t value = s->value_at + at.before * frugi_gpu_value_bytes(s->value), index = s->index_at + at.before;
    uint32_t lane = frugi_lane(), place[4];
    bool mine = lane < at.k;
    float v[4];
#pragma unroll
    for (int f = 0; f < 4; f++) {
        const unsigned char *payload = frame[f] + s->payload_at;
        place[f] = mine ? payload[index + lane] : 0;
        v[f] = mine ? value_of(s, payload + value, lane, scale_of(s, payload, at.b)) : 0.0f;
    }
#pragma unroll
    for (int f = 0; f < 4; f++) {
        if (mine)
            sum[place[f]] = __fadd_rn(sum[place[f]], v[f]);
        __syncwarp();
    }
}

/* dst = keep * dst + gain * sum; sums start from the zero that changes no bits: decompress.c. */
static __global__ void __launch_bounds__(32 * WARPS) sum_kernel(const __grid_constant__ frugi_gpu_sum all) {
    __shared__ __align__(16) float sums[WARPS][FRUGI_GPU_BLOCK];
    __shared__ unsigned char lists[WARPS][FRUGI_GPU_BLOCK];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    float *sum = sums[threadIdx.x / 32], nothing = all.gain < 0 ? 0.0f : -0.0f;
    if (all.verdict->status != 0)
        return;
    for (uint32_t n = warp; n < all.table.blocks; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(all.table, n);
        frugi_spot at = frugi_spot_of(s, n - s->blocks_before);
        uint32_t length = at.length, f = 0;
        float *dst = all.dst + (s->begin - all.begin) + (uint64_t)at.b * 256;
        float x[FRUGI_EACH];
        if (all.keep != 0.0f)
            frugi_load_block(dst, length, x);
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            sum[frugi_place_of(lane, i)] = nothing;
        __syncwarp();
        if (at.k <= 32 && s->index == FRUGI_INDEX_CODE_LOCAL)
            for (; f + 4 <= all.frames; f += 4)
                add_four(s, at, all.frame + f, sum);
        for (; f < all.frames; f++)
            add_block(s, at, all.frame[f] + s->payload_at, sum, lists[threadIdx.x / 32]);
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++) {
            float base = all.keep == 0.0f ? 0.0f : all.keep == 1.0f ? x[i] : __fmul_rn(all.keep, x[i]);
            x[i] = __fadd_rn(base, __fmul_rn(all.gain, sum[frugi_place_of(lane, i)]));
        }
        bool whole = length == FRUGI_GPU_BLOCK && (reinterpret_cast<uintptr_t>(dst) & 15u) == 0;
        if (whole) {
            reinterpret_cast<float4 *>(dst)[lane] = make_float4(x[0], x[1], x[2], x[3]);
            reinterpret_cast<float4 *>(dst)[32 + lane] = make_float4(x[4], x[5], x[6], x[7]);
        } else {
#pragma unroll
            for (int i = 0; i < FRUGI_EACH; i++)
                if (frugi_place_of(lane, i) < length)
                    dst[frugi_place_of(lane, i)] = x[i];
        }
        __syncwarp();
    }
}

static uint32_t grid_for(const frugi_gpu_sum *sum, int processors) {
    uint32_t wanted = (sum->table.blocks + WARPS - 1) / WARPS, most = (uint32_t)processors * 8u;
    return wanted < most ? wanted : most;
}

cudaError_t frugi_gpu_check_launch(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(check_kernel, grid_for(sum, processors), 32 * WARPS, stream, *sum);
    return cudaGetLastError();
}

cudaError_t frugi_gpu_sum_launch(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    FRUGI_LAUNCH(sum_kernel, grid_for(sum, processors), 32 * WARPS, stream, *sum);
    return cudaGetLastError();
}

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
#define LEAST 4 /* thread blocks of a multiprocessor that registers must do for */

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
static __device__ inline bool block_is_sound(const frugi_gpu_slice *s, const frugi_spot &at,
                                             const unsigned char *payload) {
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

static __device__ __noinline__ void check_headers(const frugi_gpu_sum &sum, const frugi_gpu_slice *s) {
    for (uint32_t f = frugi_lane(); f < sum.frames; f += 32)
        if (!header_is(s, sum.frame[f] + s->payload_at - FRUGI_GPU_HEADER))
            accuse(sum.verdict, FRUG_ERR_MISMATCH, f);
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
            check_headers(sum, s);
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

static __device__ inline float value_of(const frugi_gpu_slice *s, const unsigned char *values, uint32_t e,
                                        float scale) {
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

/* The bits of a value, and the float it stands for. */
template <int VALUE> static __device__ inline uint32_t value_bits(const unsigned char *values, uint32_t e) {
    return VALUE == FRUGI_VALUE_F32    ? reinterpret_cast<const uint32_t *>(values)[e]
           : VALUE == FRUGI_VALUE_BF16 ? (uint32_t) reinterpret_cast<const uint16_t *>(values)[e] << 16
                                       : (uint32_t)values[e];
}

#define LOADS 4 /* of a lane before the first is used */

/*
 * The same for several frames with at most 32 entries a block, and places as bytes: all are fetched before one is
 * added. With EACH = 2 half a warp takes a frame of at most 16 entries. Returns a bit for every load that was wrong.
 */
template <int VALUE, int EACH>
static __device__ inline uint32_t add_many(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                           uint32_t first, float *sum) {
    uint64_t value = s->payload_at + s->value_at + at.before * frugi_gpu_value_bytes(VALUE);
    uint64_t index = s->payload_at + s->index_at + at.before;
    uint32_t half = frugi_lane() / (32 / EACH), e = frugi_lane() % (32 / EACH), place[LOADS], bits[LOADS], bad = 0;
    uint32_t scale[LOADS];
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t f = first + i * EACH + half;
        bool mine = e < at.k && f < all.frames;
        const unsigned char *frame = all.frame[mine ? f : 0];
        place[i] = mine ? frame[index + e] : 256;
        bits[i] = mine ? value_bits<VALUE>(frame + value, e) : 0;
        if (VALUE == FRUGI_VALUE_INT8)
            scale[i] = mine ? reinterpret_cast<const uint16_t *>(frame + s->payload_at)[at.b] : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t before = __shfl_up_sync(FRUGI_ALL_LANES, place[i], 1);
        bool mine = place[i] < 256, finite = VALUE == FRUGI_VALUE_INT8 ? scale[i] <= FRUGI_INT8_MOST
                                                                       : (bits[i] & FRUGI_ABS_MASK) < FRUGI_INF_BITS;
        float v = VALUE == FRUGI_VALUE_INT8 ? __fmul_rn((float)(signed char)bits[i], frugi_bf16_f32((uint16_t)scale[i]))
                                            : frugi_bits_f32(bits[i]);
        bad |= (uint32_t)(mine && !(finite && place[i] < at.length && (e == 0 || before < place[i]))) << i;
#pragma unroll
        for (uint32_t h = 0; h < EACH; h++) {
            if (mine && half == h)
                sum[place[i]] = __fadd_rn(sum[place[i]], v);
            __syncwarp();
        }
    }
    return bad;
}

template <int VALUE>
static __device__ inline void add_small(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                        float *sum) {
    bool halves = at.k <= 16; /* two frames share a load */
    uint32_t each = halves ? 2 : 1;
    for (uint32_t f = 0; f < all.frames; f += LOADS * each) {
        uint32_t bad = halves ? add_many<VALUE, 2>(all, s, at, f, sum) : add_many<VALUE, 1>(all, s, at, f, sum);
        if (bad)
            accuse(all.verdict, FRUG_ERR_FORMAT,
                   f + ((uint32_t)__ffs((int)bad) - 1) * each + (halves ? frugi_lane() / 16 : 0));
    }
}

/* All frames' parts of a block, onto the sum; sections' headers are looked at where they begin. */
template <bool CHECKED>
static __device__ inline void add_frames(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                         float *sum, unsigned char *listed) {
    if (!CHECKED && at.b == 0)
        check_headers(all, s);
    if (at.k <= 32 && s->index == FRUGI_INDEX_CODE_LOCAL && s->value != FRUGI_VALUE_F16) {
        if (s->value == FRUGI_VALUE_F32)
            add_small<FRUGI_VALUE_F32>(all, s, at, sum);
        else if (s->value == FRUGI_VALUE_BF16)
            add_small<FRUGI_VALUE_BF16>(all, s, at, sum);
        else
            add_small<FRUGI_VALUE_INT8>(all, s, at, sum);
        return;
    }
    for (uint32_t f = 0; f < all.frames; f++) {
        if (!CHECKED && !block_is_sound(s, at, all.frame[f] + s->payload_at))
            accuse(all.verdict, FRUG_ERR_FORMAT, f);
        add_block(s, at, all.frame[f] + s->payload_at, sum, listed);
    }
}

/*
 * dst = keep * dst + gain * sum; sums start from the zero that changes no bits: decompress.c. Places are bytes, so that
 * whatever an unchecked frame says stays within the block.
 */
template <bool CHECKED>
static __global__ void __launch_bounds__(32 * WARPS, LEAST) sum_kernel(const __grid_constant__ frugi_gpu_sum all) {
    __shared__ __align__(16) float sums[WARPS][FRUGI_GPU_BLOCK];
    __shared__ unsigned char lists[WARPS][FRUGI_GPU_BLOCK];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    float *sum = sums[threadIdx.x / 32], nothing = all.gain < 0 ? 0.0f : -0.0f;
    float4 *four = reinterpret_cast<float4 *>(sum);
    if (all.verdict->status != 0)
        return;
    for (uint32_t n = warp; n < all.table.blocks; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(all.table, n);
        frugi_spot at = frugi_spot_of(s, n - s->blocks_before);
        float *dst = all.dst + (s->begin - all.begin) + (uint64_t)at.b * 256;
        float x[FRUGI_EACH];
        if (all.keep != 0.0f)
            frugi_load_block(dst, at.length, x);
        four[lane] = four[32 + lane] = make_float4(nothing, nothing, nothing, nothing);
        __syncwarp();
        add_frames<CHECKED>(all, s, at, sum, lists[threadIdx.x / 32]);
        float4 low = four[lane], high = four[32 + lane];
        float y[FRUGI_EACH] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++) {
            float base = all.keep == 0.0f ? 0.0f : all.keep == 1.0f ? x[i] : __fmul_rn(all.keep, x[i]);
            x[i] = __fadd_rn(base, __fmul_rn(all.gain, y[i]));
        }
        if (at.length == FRUGI_GPU_BLOCK && (reinterpret_cast<uintptr_t>(dst) & 15u) == 0) {
            __stcs(reinterpret_cast<float4 *>(dst) + lane, make_float4(x[0], x[1], x[2], x[3]));
            __stcs(reinterpret_cast<float4 *>(dst) + 32 + lane, make_float4(x[4], x[5], x[6], x[7]));
        } else {
#pragma unroll
            for (int i = 0; i < FRUGI_EACH; i++)
                if (frugi_place_of(lane, i) < at.length)
                    dst[frugi_place_of(lane, i)] = x[i];
        }
        __syncwarp();
    }
}

typedef void kernel_of(const frugi_gpu_sum);

static cudaError_t launch(kernel_of *kernel, const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 32 * WARPS, 0);
    if (error != cudaSuccess)
        return error;
    uint32_t wanted = (sum->table.blocks + WARPS - 1) / WARPS, most = (uint32_t)(each * processors);
    FRUGI_LAUNCH(kernel, wanted < most ? wanted : most, 32 * WARPS, stream, *sum);
    return cudaGetLastError();
}

cudaError_t frugi_gpu_check_launch(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    return launch(check_kernel, sum, processors, stream);
}

cudaError_t frugi_gpu_sum_launch(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    return launch(sum->checked ? sum_kernel<true> : sum_kernel<false>, sum, processors, stream);
}

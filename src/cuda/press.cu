/*
 * press.cu - one pass over a gradient on a GPU: accumulate, select, encode, keep the rest. A warp takes a block.
 *
 * residual.cuh loads and keeps what stays, select.cuh says who leaves. Ranks within the block are a prefix sum over the
 * lanes, so each lane knows where its entries go. What is computed, and in which order, is what compress.c and its
 * kernels do, so that frames and residuals are the same bytes.
 */
#include "cuda/crc.cuh"
#include "cuda/residual.cuh"
#include "cuda/select.cuh"

#include "common/random.h"

#define LEAST 3   /* thread blocks of a multiprocessor that registers must do for; 4 and 5 were slower */
#define RUN   64u /* blocks that a warp takes one after the other, at most */
#define WARPS 8   /* of a thread block */
#define STAGE 12  /* floats of a lane in shared memory: eight, and room that spreads lanes over the banks */

/* ---- how it is said ---------------------------------------------------------------------------------- */

/* One entry into the frame; returns what the code leaves over. */
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

/* The places of a block as bits: two lanes make a byte. */
static __device__ inline void say_bitmap(unsigned char *to, uint32_t mask) {
    uint32_t lane = frugi_lane(), next = __shfl_down_sync(FRUGI_ALL_LANES, mask, 1);
    if (lane % 2 == 0) {
        to[lane / 2] = (unsigned char)((mask & 15u) | (next & 15u) << 4);
        to[16 + lane / 2] = (unsigned char)((mask >> 4) | (next >> 4) << 4);
    }
}

/*
 * The largest magnitude among the elements in mask. With hist that need not be the block's: it may share its upper half
 * with entries at lower places, which go first.
 */
static __device__ inline uint32_t largest_of(const float x[8], uint32_t mask) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        most = max(most, mask >> i & 1u ? frugi_magnitude(x[i]) : 0u);
    return __reduce_max_sync(FRUGI_ALL_LANES, most);
}

/*
 * All entries of a block into the frame; x keeps what stays. A lane has few of them, so it goes through those it has;
 * for that its elements lie in shared memory, where they can be found by number.
 */
template <int VALUE>
static __device__ inline void encode(const frugi_gpu_press &p, const frugi_gpu_slice *s, const frugi_spot &at,
                                     uint32_t mask, float x[8], float *stage) {
    unsigned char *payload = p.frame + s->payload_at, *index = payload + s->index_at;
    unsigned char *values = payload + s->value_at + at.before * frugi_gpu_value_bytes(VALUE);
    uint32_t lane = frugi_lane();
    float scale = 0;
    if (VALUE == FRUGI_VALUE_INT8) {
        uint16_t h = frugi_f32_bf16_up(__fdiv_rn(frugi_bits_f32(largest_of(x, mask)), 127.0f));
        h = h < FRUGI_INT8_MOST ? h : FRUGI_INT8_MOST;
        scale = frugi_bf16_f32(h);
        if (lane == 0)
            reinterpret_cast<uint16_t *>(payload)[at.b] = h;
    }
    if (VALUE == FRUGI_VALUE_F16) {
        int e = max((int)(largest_of(x, mask) >> 23) - 127 - FRUGI_F16_TOP, FRUGI_F16_LEAST);
        scale = frugi_power_of_two(e);
        if (lane == 0)
            payload[at.b] = (unsigned char)e;
    }
    if (s->index == FRUGI_INDEX_CODE_BITMAP)
        say_bitmap(index + (uint64_t)at.b * 32, mask);
    unsigned char *places = s->index == FRUGI_INDEX_CODE_LOCAL ? index + at.before : NULL;
    uint32_t total, sums = sum_before(__popc(mask & 15u) | __popc(mask >> 4) << 16, &total);
    uint32_t low = sums & 0xffffu, high = (total & 0xffffu) + (sums >> 16);
    float4 *four = reinterpret_cast<float4 *>(stage + lane * STAGE);
    four[0] = make_float4(x[0], x[1], x[2], x[3]);
    four[1] = make_float4(x[4], x[5], x[6], x[7]);
    for (; mask; mask &= mask - 1) {
        uint32_t i = (uint32_t)__ffs((int)mask) - 1, rank = i < 4 ? low++ : high++;
        if (places)
            places[rank] = (unsigned char)frugi_place_of(lane, (int)i);
        float *one = stage + lane * STAGE + i;
        *one = say<VALUE>(values, rank, *one, scale);
    }
    __syncwarp();
    float4 a = four[0], b = four[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* ---- a block ----------------------------------------------------------------------------------------- */

/* A block that holds a NaN or an infinity sends zeros at its first k places, and what was left behind stays as it was.
 */
static __device__ inline uint32_t hold(const frugi_gpu_press &p, uint32_t k, float x[8]) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++) {
        x[i] = 0.0f;
        mask |= (uint32_t)(frugi_place_of(frugi_lane(), i) < k) << i;
    }
    if (frugi_lane() == 0)
        atomicAdd(&p.desk->held, 1u);
    return mask;
}

/* What blocks are compared by. */
static __device__ inline void magnitudes(const float x[8], uint32_t length, bool hist, int32_t m[8]) {
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        m[i] = (int32_t)frugi_magnitude(x[i]);
    if (hist) {
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            m[i] &= (int32_t)0xffff0000;
    }
    if (length < FRUGI_GPU_BLOCK) {
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            m[i] = frugi_place_of(frugi_lane(), i) < length ? m[i] : -1;
    }
}

template <int VALUE, int FORMAT>
static __device__ inline void press_block(const frugi_gpu_press &p, const frugi_gpu_slice *s, const frugi_spot &at,
                                          const raw &r, uint32_t dice, float *stage, uint32_t *guess) {
    float x[FRUGI_EACH];
    int32_t m[FRUGI_EACH];
    if (FORMAT == RESIDUAL_NONE) {
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = __fadd_rn(r.grad[i], 0.0f); /* -0 becomes 0, as on the CPU */
    } else {
        unpack<FORMAT>(r, x);
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = __fadd_rn(__fmul_rn(p.beta, x[i]), r.grad[i]);
    }
    uint32_t most = largest(x), mask;
    bool held = most >= FRUGI_INF_BITS;
    if (held) {
        mask = hold(p, at.k, x);
    } else {
        magnitudes(x, at.length, p.hist, m);
        mask = select(m, most, at, p.hist, guess);
    }
    encode<VALUE>(p, s, at, mask, x, stage);
    if (FORMAT != RESIDUAL_NONE && !held)
        save_residual<FORMAT>(p, s->stored + at.b, dice, x);
}

/* Of a block, for what its values share. */
static __device__ inline uint32_t scale_bytes(uint32_t value) {
    return value == FRUGI_VALUE_INT8 ? 2u : value == FRUGI_VALUE_F16 ? 1u : 0u;
}

static __device__ inline void put(unsigned char *to, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(v >> (8 * i));
}

/* The header of a section, and zeros where its arrays are padded. */
static __device__ __noinline__ void write_header(const frugi_gpu_slice *s, unsigned char *frame) {
    unsigned char *payload = frame + s->payload_at, *h = payload - FRUGI_GPU_HEADER;
    frugi_spot end = frugi_spot_of(s, s->blocks - 1);
    uint64_t entries = end.before + end.k;
    uint64_t scales = (uint64_t)scale_bytes(s->value) * s->blocks;
    uint64_t indices = s->index == FRUGI_INDEX_CODE_LOCAL    ? entries
                       : s->index == FRUGI_INDEX_CODE_BITMAP ? 32ull * s->blocks
                                                             : 0;
    h[0] = s->index;
    h[1] = s->value;
    put(h + 2, FRUGI_GPU_BLOCK, 2);
    put(h + 4, s->tensor, 4);
    put(h + 8, s->begin, 8);
    put(h + 16, s->count, 8);
    put(h + 24, s->kappa, 8);
    put(h + 32, s->first, 8);
    put(h + 40, s->bytes, 8);
    for (uint64_t i = scales; i < s->index_at; i++)
        payload[i] = 0;
    for (uint64_t i = s->index_at + indices; i < s->value_at; i++)
        payload[i] = 0;
    for (uint64_t i = s->value_at + entries * frugi_gpu_value_bytes(s->value); i < s->bytes; i++)
        payload[i] = 0;
}

/* ---- a run of blocks ---------------------------------------------------------------------------------- */

/* What a warp has written of a section's arrays, as far as it is in the checksum. */
typedef struct tracks {
    frugi_track scales, places, values;
} tracks;

/* Where the arrays stand before block b. */
template <int VALUE> static __device__ inline tracks tracks_at(const frugi_gpu_slice *s, uint32_t b, uint32_t before) {
    uint32_t payload = (uint32_t)s->payload_at, index = payload + (uint32_t)s->index_at;
    index += s->index == FRUGI_INDEX_CODE_LOCAL ? before : s->index == FRUGI_INDEX_CODE_BITMAP ? 32 * b : 0;
    return {{0, payload + scale_bytes(VALUE) * b},
            {0, index},
            {0, payload + (uint32_t)s->value_at + before * frugi_gpu_value_bytes(VALUE)}};
}

typedef const uint32_t crc_table[4][256];

template <int VALUE>
static __device__ inline void tracks_on(tracks *t, const frugi_gpu_slice *s, crc_table &table,
                                        const unsigned char *frame, uint32_t b, uint32_t before) {
    tracks end = tracks_at<VALUE>(s, b, before);
    if (scale_bytes(VALUE))
        frugi_track_on(&t->scales, table, frame, end.scales.at);
    frugi_track_on(&t->places, table, frame, end.places.at);
    frugi_track_on(&t->values, table, frame, end.values.at);
}

template <int VALUE>
static __device__ inline uint32_t tracks_end(const frugi_gpu_press &p, const tracks &t, const frugi_gpu_slice *s,
                                             crc_table &table, uint32_t b, uint32_t before) {
    tracks end = tracks_at<VALUE>(s, b, before);
    uint32_t sum = 0;
    if (scale_bytes(VALUE))
        sum = frugi_track_end(t.scales, table, p.crc, p.frame, end.scales.at, p.bytes);
    sum ^= frugi_track_end(t.places, table, p.crc, p.frame, end.places.at, p.bytes);
    return sum ^ frugi_track_end(t.values, table, p.crc, p.frame, end.values.at, p.bytes);
}

static __device__ inline void clip(float gain, float x[8]) {
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        x[i] = __fmul_rn(gain, x[i]);
}

/* Blocks b .. end - 1 of a slice; returns what their bytes add to the frame's checksum. */
template <int VALUE, int FORMAT>
static __device__ inline uint32_t press_run(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b,
                                            uint32_t end, crc_table &table, float *stage, uint32_t *guess) {
    frugi_spot at = frugi_spot_of(s, b);
    tracks t = tracks_at<VALUE>(s, b, (uint32_t)at.before);
    const bool ROLLS = FORMAT != RESIDUAL_NONE && FORMAT != FRUGI_RESIDUAL_F32;
    uint32_t many = 0, rolled = 32; /* random numbers: each lane draws that of another block */
    raw next; /* on its way while this block is searched */
    fetch<FORMAT>(p, s, b, &next);
    for (;;) {
        raw now = next;
        if (b + 1 < end)
            fetch<FORMAT>(p, s, b + 1, &next);
        if (ROLLS && rolled == 32)
            many = frugi_random(p.seed, p.step, s->stored + b + frugi_lane()), rolled = 0;
        uint32_t dice = ROLLS ? __shfl_sync(FRUGI_ALL_LANES, many, (int)rolled++) : 0;
        if (p.gain)
            clip(*p.gain, now.grad);
        press_block<VALUE, FORMAT>(p, s, at, now, dice, stage, guess);
        __syncwarp();
        if (++b == end)
            break;
        at = frugi_spot_of(s, b);
        tracks_on<VALUE>(&t, s, table, p.frame, b, (uint32_t)at.before);
    }
    uint32_t after = (uint32_t)at.before + at.k;
    tracks_on<VALUE>(&t, s, table, p.frame, b, after);
    return tracks_end<VALUE>(p, t, s, table, b, after);
}

/* The same for blocks of which everything leaves. */
static __device__ __noinline__ uint32_t press_dense(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b,
                                                    uint32_t end, crc_table &table, float *stage) {
    uint32_t guess = 0;
    return press_run<FRUGI_VALUE_F32, RESIDUAL_NONE>(p, s, b, end, table, stage, &guess);
}

/* The header of a section; what it adds to the checksum. The padding is zeros, which add nothing. */
static __device__ __noinline__ uint32_t press_header(const frugi_gpu_press &p, const frugi_gpu_slice *s,
                                                     crc_table &table) {
    if (frugi_lane() == 0)
        write_header(s, p.frame);
    __syncwarp();
    frugi_track t = {0, (uint32_t)s->payload_at - FRUGI_GPU_HEADER};
    return frugi_track_end(t, table, p.crc, p.frame, (uint32_t)s->payload_at, p.bytes);
}

/* All that a warp of the grid takes. */
template <int VALUE, int FORMAT>
static __device__ inline uint32_t press_warp(const frugi_gpu_press &p, crc_table &table, float *stage) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, guess = 0, sum = 0;
    for (uint64_t first = (uint64_t)warp * p.run; first < p.table.blocks; first += (uint64_t)warps * p.run) {
        uint32_t left = p.table.blocks - (uint32_t)first, end = (uint32_t)first + (left < p.run ? left : p.run);
        for (uint32_t n = (uint32_t)first; n < end;) {
            const frugi_gpu_slice *s = frugi_slice_of(p.table, n);
            uint32_t b = n - s->blocks_before, most = s->blocks - b, take = end - n < most ? end - n : most;
            if (b == 0)
                sum ^= press_header(p, s, table);
            sum ^= s->dense ? press_dense(p, s, b, b + take, table, stage)
                            : press_run<VALUE, FORMAT>(p, s, b, b + take, table, stage, &guess);
            n += take;
        }
    }
    return sum;
}

/* The last thread block of the last launch writes the header. */
template <int VALUE, int FORMAT>
static __global__ void __launch_bounds__(32 * WARPS, LEAST)
    press_kernel(const __grid_constant__ frugi_gpu_press p) {
    __shared__ __align__(16) float stages[WARPS][32 * STAGE];
    __shared__ uint32_t table[4][256], sum, ticket;
    if (threadIdx.x == 0)
        sum = 0;
    frugi_crc_tables(table, p.crc);
    uint32_t part = press_warp<VALUE, FORMAT>(p, table, stages[threadIdx.x / 32]);
    if (frugi_lane() == 0)
        atomicXor(&sum, part);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicXor(&p.desk->crc[0], sum);
        __threadfence();
        ticket = p.last ? atomicAdd(&p.desk->done, 1u) : gridDim.x;
    }
    __syncthreads();
    if (ticket + 1 == gridDim.x && threadIdx.x < 32) {
        __threadfence();
        frugi_seal(p.what, p.frame, p.desk);
    }
}

template <int VALUE, int FORMAT>
static cudaError_t launch(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    auto kernel = press_kernel<VALUE, FORMAT>;
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 32 * WARPS, 0);
    if (error != cudaSuccess)
        return error;
    uint32_t wanted = (p->table.blocks + WARPS - 1) / WARPS, most = (uint32_t)(each * processors);
    uint32_t grid = wanted < most ? wanted : most, share = (wanted + grid - 1) / grid;
    uint32_t runs = (share + RUN - 1) / RUN; /* of equal length, so that warps end together */
    frugi_gpu_press whole = *p;
    whole.run = (share + runs - 1) / runs;
    FRUGI_LAUNCH(kernel, grid, 32 * WARPS, stream, whole);
    return cudaGetLastError();
}

template <int VALUE> static cudaError_t by_format(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    if (!p->kept)
        return launch<VALUE, RESIDUAL_NONE>(p, processors, stream);
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: return launch<VALUE, FRUGI_RESIDUAL_INT8>(p, processors, stream);
    case FRUGI_RESIDUAL_INT4: return launch<VALUE, FRUGI_RESIDUAL_INT4>(p, processors, stream);
    case FRUGI_RESIDUAL_BF16: return launch<VALUE, FRUGI_RESIDUAL_BF16>(p, processors, stream);
    default: return launch<VALUE, FRUGI_RESIDUAL_F32>(p, processors, stream);
    }
}

cudaError_t frugi_gpu_press_launch(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    switch (p->value) {
    case FRUGI_VALUE_BF16: return by_format<FRUGI_VALUE_BF16>(p, processors, stream);
    case FRUGI_VALUE_F16: return by_format<FRUGI_VALUE_F16>(p, processors, stream);
    case FRUGI_VALUE_INT8: return by_format<FRUGI_VALUE_INT8>(p, processors, stream);
    default: return by_format<FRUGI_VALUE_F32>(p, processors, stream);
    }
}

/*
 * gpu_compress.cuh - one pass over a gradient on a GPU: accumulate, select, encode, keep the rest. A warp takes a stretch: a
 * block of 256, or several short ones. press_*.cu make kernels of it, for one length of blocks each.
 *
 * gpu_residual.cuh loads and keeps what stays, gpu_select.cuh and gpu_select_short.cuh say who leaves, gpu_encode.cuh encodes it. What is
 * computed, and in which order, is what compress.c and its kernels do, so that frames and residuals are the same bytes.
 */
#ifndef FRUGI_PRESS_CUH
#define FRUGI_PRESS_CUH

#include "cuda/gpu_select_short.cuh"
#include "cuda/gpu_encode.cuh"

#include "base/philox.h"

#define LEAST 3   /* thread blocks of a multiprocessor that registers must do for; 4 and 5 were slower */
#define RUN   64u /* stretches that a warp takes one after the other, at most */
#define WARPS 8   /* of a thread block */

/* ---- a stretch --------------------------------------------------------------------------------------- */

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

/* Where a stretch and its residual lie. */
typedef struct source {
    const float *grad;
    shelf kept;
} source;

template <int FORMAT, int BLOCK>
static __device__ inline source source_of(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b) {
    return {p.grad + (s->begin - p.begin) + (uint64_t)b * BLOCK,
            shelf_behind<FORMAT, BLOCK>({p.residual, p.scale}, s->stored + b)};
}

template <int FORMAT, int BLOCK> static __device__ inline source source_behind(const source &first) {
    return {first.grad + FRUGI_GPU_STRETCH, shelf_behind<FORMAT, BLOCK>(first.kept, FRUGI_BLOCKS<BLOCK>)};
}

template <int FORMAT, int BLOCK>
static __device__ inline void fetch(const source &from, uint32_t length, raw<BLOCK> *r) {
    frugi_load_block(from.grad, length, r->grad);
    fetch_residual<FORMAT, BLOCK>(from.kept, length, r);
}

/* The gradient, and what was left behind before. */
template <int FORMAT, int BLOCK>
static __device__ inline void accumulate(const frugi_gpu_press &p, raw<BLOCK> *r, float x[8]) {
    if (p.gain) {
        float gain = *p.gain;
        __syncwarp(); /* a branch: otherwise everybody is made to multiply */
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            r->grad[i] = __fmul_rn(gain, r->grad[i]);
    }
    unpack<FORMAT, BLOCK>(*r, x);
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        x[i] = __fadd_rn(__fmul_rn(p.beta, x[i]), r->grad[i]);
}

/* Hold back those short blocks that must be: zeros, of which the first are the largest. A bit for each of them. */
template <int BLOCK> static __device__ inline uint32_t hold_each(const frugi_gpu_press &p, uint32_t most) {
    uint32_t mine = 0;
#pragma unroll
    for (int j = 0; j < 2; j++)
        mine |= (uint32_t)(half_of(most, j) >= FRUGI_INF_BITS >> 16) << frugi_own_block<BLOCK>(j);
    uint32_t held = __reduce_or_sync(FRUGI_ALL_LANES, mine);
    if (frugi_lane() == 0)
        atomicAdd(&p.desk->held, (uint32_t)__popc(held));
    return held;
}

/* The entries of a stretch of short blocks, as below. */
template <int BLOCK>
static __device__ inline uint32_t choose_each(const frugi_gpu_press &p, const frugi_spot &at, float x[8],
                                              uint32_t *keep, uint32_t *guess) {
    uint32_t upper[4], blocks = (at.length + BLOCK - 1) / BLOCK;
    upper_of(x, upper);
    uint32_t most = most_each<BLOCK>(__vmaxs2(__vmaxs2(upper[0], upper[1]), __vmaxs2(upper[2], upper[3])));
    *keep = (1u << blocks) - 1u;
    if (!__all_sync(FRUGI_ALL_LANES, reach_upper(most, less_of_each((FRUGI_INF_BITS >> 16) * BOTH)) == 0)) {
        uint32_t held = hold_each<BLOCK>(p, most);
        *keep &= ~held;
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            x[i] = held >> frugi_own_block<BLOCK>(i / 4) & 1u ? 0.0f : x[i];
        upper_of(x, upper);
        most = either(filled(reach_upper(most, less_of_each((FRUGI_INF_BITS >> 16) * BOTH))), 0, most);
    }
    return select_each<BLOCK>(x, upper, most, at, p.hist, guess);
}

/* The entries of a stretch as a mask of this lane's elements; keep: a bit for each block of which the rest is kept. */
template <int BLOCK>
static __device__ inline uint32_t choose(const frugi_gpu_press &p, const frugi_spot &at, float x[8], uint32_t *keep,
                                         uint32_t *guess) {
    if constexpr (BLOCK < 256) {
        return choose_each<BLOCK>(p, at, x, keep, guess);
    } else {
        uint32_t most = largest<256>(x);
        *keep = most < FRUGI_INF_BITS;
        return *keep ? select(x, most, at, p.hist, guess) : hold(p, at.k, x);
    }
}

template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline void press_stretch(const frugi_gpu_press &p, const frugi_gpu_slice *s, const frugi_spot &at,
                                            const shelf &kept, float x[8], const uint32_t *dice, pens *pen, paper *page,
                                            uint32_t *guess) {
    uint32_t keep, mask = choose<BLOCK>(p, at, x, &keep, guess);
    encode<VALUE, FORMAT, BLOCK>(p, s->index, at, mask, x, pen, page);
    if (FORMAT != RESIDUAL_NONE && keep)
        save_residual<FORMAT, BLOCK>(kept, dice, keep, x);
}

static __device__ inline void put(unsigned char *to, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(v >> (8 * i));
}

/* The header of a section, and zeros where its arrays are padded. */
template <int BLOCK> static __device__ __noinline__ void write_header(const frugi_gpu_slice *s, unsigned char *frame) {
    unsigned char *payload = frame + s->payload_at, *h = payload - FRUGI_GPU_HEADER;
    frugi_spot end = frugi_spot_of<BLOCK>(s, s->blocks - 1);
    uint64_t entries = end.before + end.k;
    uint64_t scales = (uint64_t)scale_bytes(s->value) * s->blocks;
    uint64_t indices = s->index == FRUGI_INDEX_CODE_LOCAL    ? entries
                       : s->index == FRUGI_INDEX_CODE_BITMAP ? BLOCK / 8ull * s->blocks
                                                             : 0;
    h[0] = s->index;
    h[1] = s->value;
    put(h + 2, BLOCK, 2);
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

/* ---- a run of stretches ------------------------------------------------------------------------------- */

typedef const uint32_t crc_table[4][256];

/* Where the arrays stand before block b. */
template <int VALUE, int BLOCK>
static __device__ inline pens pens_at(const frugi_gpu_slice *s, uint32_t b, uint32_t before, paper *page) {
    uint32_t payload = (uint32_t)s->payload_at, index = payload + (uint32_t)s->index_at;
    index += s->index == FRUGI_INDEX_CODE_LOCAL ? before : s->index == FRUGI_INDEX_CODE_BITMAP ? BLOCK / 8 * b : 0;
    uint32_t value = payload + (uint32_t)s->value_at + before * frugi_gpu_value_bytes(VALUE);
    pens all = {frugi_pen_at(payload + scale_bytes(VALUE) * b, page->scales), frugi_pen_at(index, page->places),
                frugi_pen_at(value, page->values)};
    __syncwarp();
    return all;
}

template <int VALUE>
static __device__ inline void pens_on(pens *pen, paper *page, crc_table &table, unsigned char *frame) {
    __syncwarp();
    if (scale_bytes(VALUE))
        frugi_pen_on(&pen->scales, page->scales, table, frame);
    frugi_pen_on(&pen->places, page->places, table, frame);
    frugi_pen_on(&pen->values, page->values, table, frame);
}

/* What all they have written adds to the frame's checksum. */
template <int VALUE>
static __device__ inline uint32_t pens_end(const frugi_gpu_press &p, const pens &pen, const paper *page,
                                           crc_table &table) {
    uint32_t sum = 0;
    if (scale_bytes(VALUE))
        sum = frugi_pen_end(pen.scales, page->scales, table, p.crc, p.frame, p.bytes);
    sum ^= frugi_pen_end(pen.places, page->places, table, p.crc, p.frame, p.bytes);
    return sum ^ frugi_pen_end(pen.values, page->values, table, p.crc, p.frame, p.bytes);
}

/* Random numbers of blocks: each lane draws that of another, for the stretches to come. */
typedef struct cup {
    uint32_t many, rolled;
} cup;

template <int BLOCK>
static __device__ inline void roll_next(const frugi_gpu_press &p, uint64_t block, cup *c,
                                        uint32_t dice[FRUGI_OWN<BLOCK>]) {
    if (c->rolled == 32)
        c->many = frugi_random(p.seed, p.step, block + frugi_lane()), c->rolled = 0;
#pragma unroll
    for (int j = 0; j < FRUGI_OWN<BLOCK>; j++)
        dice[j] = __shfl_sync(FRUGI_ALL_LANES, c->many, (int)(c->rolled + frugi_own_block<BLOCK>(j)));
    c->rolled += FRUGI_BLOCKS<BLOCK>;
}

/* The stretches with blocks b .. end - 1 of a slice; returns what their bytes add to the frame's checksum. */
template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline uint32_t press_run(const frugi_gpu_press &p, const frugi_gpu_slice *slice, uint32_t b,
                                            uint32_t end, crc_table &table, paper *page, uint32_t *guess) {
    const frugi_gpu_slice mine = *slice, *s = &mine; /* in registers: stores may not change it */
    frugi_spot at = frugi_spot_of<BLOCK>(s, b);
    pens pen = pens_at<VALUE, BLOCK>(s, b, (uint32_t)at.before, page);
    const bool ROLLS = FORMAT != RESIDUAL_NONE && FORMAT != FRUGI_RESIDUAL_F32;
    const uint32_t BLOCKS = FRUGI_BLOCKS<BLOCK>;
    cup rolls = {0, 32};
    source from = source_of<FORMAT, BLOCK>(p, s, b);
    raw<BLOCK> next; /* on its way while the stretch before is searched */
    fetch<FORMAT, BLOCK>(from, at.length, &next);
    for (;;) {
        float x[FRUGI_EACH];
        uint32_t dice[FRUGI_OWN<BLOCK>] = {};
        accumulate<FORMAT, BLOCK>(p, &next, x);
        source behind = source_behind<FORMAT, BLOCK>(from);
        if (b + BLOCKS < end)
            fetch<FORMAT, BLOCK>(behind, frugi_length_of<BLOCK>(s, b + BLOCKS), &next);
        if (ROLLS)
            roll_next<BLOCK>(p, s->stored + b, &rolls, dice);
        press_stretch<VALUE, FORMAT, BLOCK>(p, s, at, from.kept, x, dice, &pen, page, guess);
        pens_on<VALUE>(&pen, page, table, p.frame);
        b += BLOCKS;
        if (b >= end)
            return pens_end<VALUE>(p, pen, page, table);
        frugi_spot_next<BLOCK>(s, &at);
        from = behind;
    }
}

/* The same for blocks of which everything leaves. */
template <int BLOCK>
static __device__ __noinline__ uint32_t press_dense(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b,
                                                    uint32_t end, crc_table &table, paper *page) {
    uint32_t guess = 0;
    return press_run<FRUGI_VALUE_F32, RESIDUAL_NONE, BLOCK>(p, s, b, end, table, page, &guess);
}

/* The header of a section; what it adds to the checksum. The padding is zeros, which add nothing. */
template <int BLOCK>
static __device__ __noinline__ uint32_t press_header(const frugi_gpu_press &p, const frugi_gpu_slice *s,
                                                     crc_table &table) {
    if (frugi_lane() == 0)
        write_header<BLOCK>(s, p.frame);
    __syncwarp();
    frugi_track t = {0, (uint32_t)s->payload_at - FRUGI_GPU_HEADER};
    return frugi_track_end(t, table, p.crc, p.frame, (uint32_t)s->payload_at, p.bytes);
}

/* All that a warp of the grid takes. */
template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline uint32_t press_warp(const frugi_gpu_press &p, crc_table &table, paper *page) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, guess = 0, sum = 0;
    for (uint64_t first = (uint64_t)warp * p.run; first < p.table.stretches; first += (uint64_t)warps * p.run) {
        uint32_t left = p.table.stretches - (uint32_t)first, end = (uint32_t)first + (left < p.run ? left : p.run);
        for (uint32_t n = (uint32_t)first; n < end;) {
            const frugi_gpu_slice *s = frugi_slice_of(p.table, n);
            uint32_t at = n - s->stretches_before, most = s->stretches - at, take = end - n < most ? end - n : most;
            uint32_t b = at * FRUGI_BLOCKS<BLOCK>, behind = (at + take) * FRUGI_BLOCKS<BLOCK>;
            if (b == 0)
                sum ^= press_header<BLOCK>(p, s, table);
            sum ^= s->dense ? press_dense<BLOCK>(p, s, b, behind, table, page)
                            : press_run<VALUE, FORMAT, BLOCK>(p, s, b, behind, table, page, &guess);
            n += take;
        }
    }
    return sum;
}

/* The last thread block of the last launch writes the header. */
template <int VALUE, int FORMAT, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS, LEAST) press_kernel(const __grid_constant__ frugi_gpu_press p) {
    __shared__ paper pages[WARPS];
    __shared__ uint32_t table[4][256], sum, ticket;
    if (threadIdx.x == 0)
        sum = 0;
    frugi_crc_tables(table, p.crc);
    uint32_t part = press_warp<VALUE, FORMAT, BLOCK>(p, table, &pages[threadIdx.x / 32]);
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

template <int VALUE, int FORMAT, int BLOCK>
static cudaError_t launch(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    auto kernel = press_kernel<VALUE, FORMAT, BLOCK>;
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 32 * WARPS, 0);
    if (error != cudaSuccess)
        return error;
    uint32_t wanted = (p->table.stretches + WARPS - 1) / WARPS, most = (uint32_t)(each * processors);
    uint32_t grid = wanted < most ? wanted : most, share = (wanted + grid - 1) / grid;
    uint32_t runs = (share + RUN - 1) / RUN; /* of equal length, so that warps end together */
    frugi_gpu_press whole = *p;
    whole.run = (share + runs - 1) / runs;
    FRUGI_LAUNCH(kernel, grid, 32 * WARPS, stream, whole);
    return cudaGetLastError();
}

template <int VALUE, int BLOCK>
static cudaError_t by_format(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    if (!p->kept)
        return launch<VALUE, RESIDUAL_NONE, BLOCK>(p, processors, stream);
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: return launch<VALUE, FRUGI_RESIDUAL_INT8, BLOCK>(p, processors, stream);
    case FRUGI_RESIDUAL_INT4: return launch<VALUE, FRUGI_RESIDUAL_INT4, BLOCK>(p, processors, stream);
    case FRUGI_RESIDUAL_BF16: return launch<VALUE, FRUGI_RESIDUAL_BF16, BLOCK>(p, processors, stream);
    default: return launch<VALUE, FRUGI_RESIDUAL_F32, BLOCK>(p, processors, stream);
    }
}

template <int BLOCK> static cudaError_t by_value(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    switch (p->value) {
    case FRUGI_VALUE_BF16: return by_format<FRUGI_VALUE_BF16, BLOCK>(p, processors, stream);
    case FRUGI_VALUE_F16: return by_format<FRUGI_VALUE_F16, BLOCK>(p, processors, stream);
    case FRUGI_VALUE_INT8: return by_format<FRUGI_VALUE_INT8, BLOCK>(p, processors, stream);
    default: return by_format<FRUGI_VALUE_F32, BLOCK>(p, processors, stream);
    }
}

#endif

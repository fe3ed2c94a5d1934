/*
 * press.cuh - one pass over a gradient on a GPU: accumulate, select, encode, keep the rest. A warp takes a stretch: a
 * block of 256, or several short ones. press_*.cu make kernels of it, for one length of blocks each.
 *
 * residual.cuh loads and keeps what stays, select.cuh and narrow.cuh say who leaves, pen.cuh writes it. Ranks within
 * the stretch are a prefix sum over the lanes. What is computed, and in which order, is what compress.c and its kernels
 * do, so that frames and residuals are the same bytes.
 */
#ifndef FRUGI_PRESS_CUH
#define FRUGI_PRESS_CUH

#include "cuda/narrow.cuh"
#include "cuda/pen.cuh"
#include "cuda/residual.cuh"
#include "cuda/select.cuh"

#include "common/random.h"

#define LEAST 3   /* thread blocks of a multiprocessor that registers must do for; 4 and 5 were slower */
#define RUN   64u /* stretches that a warp takes one after the other, at most */
#define WARPS 8   /* of a thread block */

/* ---- how it is said ---------------------------------------------------------------------------------- */

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

/*
 * press.cu - one pass over a gradient on a GPU: accumulate, select, encode, keep the rest. A warp takes a block.
 *
 * The threshold is found by bisection on magnitudes as integers. The upper halves come first, two to a register: one
 * instruction of recent GPUs compares both with the threshold and leaves a one for each that reaches it. Most blocks
 * are settled there, when exactly k reach; the others go on with the lower halves, and ties go to the lower place.
 * Ranks within the block are a prefix sum over the lanes, so each lane knows where its entries go. What is computed,
 * and in which order, is what compress.c and its kernels do, so that frames and residuals are the same bytes.
 */
#include "cuda/crc.cuh"
#include "cuda/residual.cuh"

#include "common/random.h"

#ifdef __CUDACC__
#include <cuda_pipeline.h>
#endif

#ifndef PRESS_AHEAD
#define PRESS_AHEAD                                                                                                    \
    2 /* the next block is fetched before this one is searched: 0 not, 1 into registers, 2 shared memory */
#endif
#ifndef PRESS_LEAST
#define PRESS_LEAST 4 /* thread blocks of a multiprocessor that registers must do for */
#endif
#ifndef PRESS_RUN
#define PRESS_RUN 64u /* blocks that a warp takes one after the other, at most */
#endif
#define TRAY          (PRESS_AHEAD == 2 ? 128 : 1) /* a block's gradient and residual, of a warp */
#define WARPS         8                            /* of a thread block */
#define RESIDUAL_NONE 4
#define REACH         1024u /* without a guess, upper halves this far below the largest are tried: eight powers of two */
#define FIRST_STRIDE  6u    /* from a guess: some percent of a magnitude */
#define STAGE         12    /* floats of a lane in shared memory: eight, and room that spreads lanes over the banks */

/* ---- what was left behind ----------------------------------------------------------------------- */

/* A block as it lies in memory: the gradient, and what was left behind in its format. */
typedef struct raw {
    float grad[FRUGI_EACH];
    uint32_t left[FRUGI_EACH];
    uint16_t scale;
} raw;

template <int FORMAT> static __device__ inline void fetch_residual(const frugi_gpu_press &p, uint64_t b, raw *r) {
    uint32_t lane = frugi_lane();
    const unsigned char *at = p.residual;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (FORMAT == FRUGI_RESIDUAL_F32) {
            uint4 v = __ldcs(reinterpret_cast<const uint4 *>(at + b * 1024) + j * 32 + lane);
            r->left[4 * j] = v.x, r->left[4 * j + 1] = v.y, r->left[4 * j + 2] = v.z, r->left[4 * j + 3] = v.w;
        } else if (FORMAT == FRUGI_RESIDUAL_BF16) {
            uint2 v = __ldcs(reinterpret_cast<const uint2 *>(at + b * 512) + j * 32 + lane);
            r->left[2 * j] = v.x, r->left[2 * j + 1] = v.y;
        } else if (FORMAT == FRUGI_RESIDUAL_INT8) {
            r->left[j] = __ldcs(reinterpret_cast<const unsigned int *>(at + b * 256) + j * 32 + lane);
        } else {
            r->left[j] = __ldcs(reinterpret_cast<const unsigned short *>(at + b * 128) + j * 32 + lane);
        }
    }
    if (FORMAT == FRUGI_RESIDUAL_INT8 || FORMAT == FRUGI_RESIDUAL_INT4)
        r->scale = p.scale[b];
}

template <int FORMAT>
static __device__ inline void fetch(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b, raw *r) {
    frugi_load_block(p.grad + (s->begin - p.begin) + (uint64_t)b * 256, frugi_length_of(s, b), r->grad);
    if (FORMAT != RESIDUAL_NONE)
        fetch_residual<FORMAT>(p, s->stored + b, r);
}

/* The same by way of shared memory, where nothing has to wait for it: order now, receive later. A lane reads what it
 * ordered itself. */
static __device__ inline bool can_order(const float *grad, uint32_t length) {
    return length == FRUGI_GPU_BLOCK && (reinterpret_cast<uintptr_t>(grad) & 15u) == 0;
}

template <int FORMAT>
static __device__ inline void order(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b, uint4 *tray) {
    const float *grad = p.grad + (s->begin - p.begin) + (uint64_t)b * 256;
    const unsigned char *left = p.residual + (s->stored + b) * (FORMAT == FRUGI_RESIDUAL_F32    ? 1024
                                                                : FORMAT == FRUGI_RESIDUAL_BF16 ? 512
                                                                                                : 256);
    uint32_t lane = frugi_lane();
    if (can_order(grad, frugi_length_of(s, b))) {
#pragma unroll
        for (uint32_t j = lane; j < 64; j += 32) {
            __pipeline_memcpy_async(tray + j, grad + 4 * j, 16);
            if (FORMAT == FRUGI_RESIDUAL_F32)
                __pipeline_memcpy_async(tray + 64 + j, left + 16 * j, 16);
            if (FORMAT == FRUGI_RESIDUAL_BF16)
                __pipeline_memcpy_async(reinterpret_cast<uint2 *>(tray + 64) + j, left + 8 * j, 8);
            if (FORMAT == FRUGI_RESIDUAL_INT8)
                __pipeline_memcpy_async(reinterpret_cast<uint32_t *>(tray + 64) + j, left + 4 * j, 4);
        }
    }
    __pipeline_commit();
}

template <int FORMAT>
static __device__ inline void receive(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b, const uint4 *tray,
                                      raw *r) {
    if (!can_order(p.grad + (s->begin - p.begin) + (uint64_t)b * 256, frugi_length_of(s, b))) {
        fetch<FORMAT>(p, s, b, r);
        return;
    }
    uint32_t lane = frugi_lane();
    if (FORMAT == FRUGI_RESIDUAL_INT4)
        fetch_residual<FORMAT>(p, s->stored + b, r);
    if (FORMAT == FRUGI_RESIDUAL_INT8)
        r->scale = p.scale[s->stored + b];
    __pipeline_wait_prior(0);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t j = 32 * i + lane;
        float4 g = reinterpret_cast<const float4 *>(tray)[j];
        r->grad[4 * i] = g.x, r->grad[4 * i + 1] = g.y, r->grad[4 * i + 2] = g.z, r->grad[4 * i + 3] = g.w;
        if (FORMAT == FRUGI_RESIDUAL_F32) {
            uint4 v = tray[64 + j];
            r->left[4 * i] = v.x, r->left[4 * i + 1] = v.y, r->left[4 * i + 2] = v.z, r->left[4 * i + 3] = v.w;
        }
        if (FORMAT == FRUGI_RESIDUAL_BF16) {
            uint2 v = reinterpret_cast<const uint2 *>(tray + 64)[j];
            r->left[2 * i] = v.x, r->left[2 * i + 1] = v.y;
        }
        if (FORMAT == FRUGI_RESIDUAL_INT8)
            r->left[i] = reinterpret_cast<const uint32_t *>(tray + 64)[j];
    }
}

/* A number of eight bits with 128 added, or of four bits, as a float without a conversion: 2^23 + n, less 2^23 + zero.
 */
static __device__ inline float small(uint32_t n, float zero) {
    return __fsub_rn(frugi_bits_f32(0x4b000000u | n), zero);
}

template <int FORMAT> static __device__ inline void unpack(const raw &r, float x[8]) {
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

/* ---- who leaves ------------------------------------------------------------------------------------ */

/* How many of the block's upper halves, two to a register, are at least t > 0. */
static __device__ inline uint32_t count_upper(const uint32_t pair[4], uint32_t t) {
    uint32_t less = ((1u - t) & 0xffffu) * 0x10001u, sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += __viaddmin_s16x2_relu(pair[i], less, 0x00010001u);
    sum = __reduce_add_sync(FRUGI_ALL_LANES, sum);
    return (sum & 0xffffu) + (sum >> 16);
}

static __device__ inline uint32_t count_whole(const int32_t m[8], int32_t t) {
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        sum += m[i] >= t;
    return __reduce_add_sync(FRUGI_ALL_LANES, sum);
}

/* Sums over the lanes before this one, of two numbers below 2^16 at once; *total: of all lanes. */
static __device__ inline uint32_t sum_before(uint32_t two, uint32_t *total) {
    uint32_t sum = two, lane = frugi_lane();
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, sum, d);
        sum += lane >= (uint32_t)d ? other : 0;
    }
    *total = __shfl_sync(FRUGI_ALL_LANES, sum, 31);
    return sum - two;
}

/* Of the elements in mask, those with the lowest places, `most` of them in the block. */
static __device__ inline uint32_t first_of(uint32_t mask, uint32_t most) {
    uint32_t total, before = sum_before(__popc(mask & 15u) | __popc(mask >> 4) << 16, &total), kept = 0;
    uint32_t rank[2] = {before & 0xffffu, (total & 0xffffu) + (before >> 16)};
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        if (mask >> i & 1u)
            kept |= (uint32_t)(rank[i >> 2]++ < most) << i;
    return kept;
}

/* Where the search ended: reach of the block's magnitudes are at least threshold, beyond of them above it. */
typedef struct found {
    int32_t threshold;
    uint32_t reach, beyond;
} found;

/*
 * The threshold in the upper halves. It tends to be near that of the block before (*guess), so the search starts there
 * and takes longer and longer steps until it has gone too far; then it halves. Only the time depends on the guess.
 */
static __device__ inline found search_upper(const int32_t m[8], uint32_t most, const frugi_spot &at, uint32_t *guess) {
    uint32_t pair[4], lo = 0, hi = (most >> 16) + 1, reach = at.length, beyond = 0, stride = FIRST_STRIDE;
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __byte_perm((uint32_t)m[2 * i], (uint32_t)m[2 * i + 1], 0x7632);
    uint32_t mid = *guess > 0 && *guess < hi ? *guess : hi > REACH ? hi - REACH : hi / 2;
    while (hi - lo > 1 && reach != at.k) {
        uint32_t count = count_upper(pair, mid), half;
        if (count >= at.k) {
            lo = mid, reach = count, half = (lo + hi) / 2;
            mid = min(half, lo + stride);
        } else {
            hi = mid, beyond = count, half = (lo + hi) / 2;
            mid = hi > stride ? max(half, hi - stride) : half;
        }
        stride = min(4 * stride, 0x10000u); /* no upper half is further away, and four times that is no overflow */
    }
    *guess = lo;
    return {(int32_t)(lo << 16), reach, beyond};
}

static __device__ inline void search_lower(const int32_t m[8], uint32_t k, found *f) {
    int32_t above = f->threshold + 0x10000;
    while (above - f->threshold > 1 && f->reach != k) {
        int32_t between = f->threshold + (above - f->threshold) / 2;
        uint32_t count = count_whole(m, between);
        if (count >= k)
            f->threshold = between, f->reach = count;
        else
            above = between, f->beyond = count;
    }
}

/*
 * The k largest of a block, as a mask of this lane's elements. m: magnitudes, -1 behind the last element; with hist
 * their lower halves are zero.
 */
static __device__ inline uint32_t select(const int32_t m[8], uint32_t most, const frugi_spot &at, bool hist,
                                         uint32_t *guess) {
    found f = search_upper(m, most, at, guess);
    if (f.reach != at.k && !hist)
        search_lower(m, at.k, &f);
    uint32_t over = 0, on = 0;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        over |= (uint32_t)(m[i] >= f.threshold) << i;
    if (f.reach == at.k)
        return over;
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        on |= (uint32_t)(m[i] == f.threshold) << i;
    return (over & ~on) | first_of(on, at.k - f.beyond);
}

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
                                            uint32_t end, crc_table &table, float *stage, uint4 *tray,
                                            uint32_t *guess) {
    frugi_spot at = frugi_spot_of(s, b);
    tracks t = tracks_at<VALUE>(s, b, (uint32_t)at.before);
    const bool ROLLS = FORMAT != RESIDUAL_NONE && FORMAT != FRUGI_RESIDUAL_F32;
    uint32_t many = 0, rolled = 32; /* random numbers: each lane draws that of another block */
    raw next;
    if (PRESS_AHEAD == 1)
        fetch<FORMAT>(p, s, b, &next);
    if (PRESS_AHEAD == 2)
        order<FORMAT>(p, s, b, tray);
    for (;;) {
        raw now = next;
        if (PRESS_AHEAD == 0)
            fetch<FORMAT>(p, s, b, &now);
        if (PRESS_AHEAD == 1 && b + 1 < end)
            fetch<FORMAT>(p, s, b + 1, &next);
        if (PRESS_AHEAD == 2) {
            receive<FORMAT>(p, s, b, tray, &now);
            if (b + 1 < end)
                order<FORMAT>(p, s, b + 1, tray);
        }
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
                                                    uint32_t end, crc_table &table, float *stage, uint4 *tray) {
    uint32_t guess = 0;
    return press_run<FRUGI_VALUE_F32, RESIDUAL_NONE>(p, s, b, end, table, stage, tray, &guess);
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
static __device__ inline uint32_t press_warp(const frugi_gpu_press &p, crc_table &table, float *stage, uint4 *tray) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, guess = 0, sum = 0;
    for (uint64_t first = (uint64_t)warp * p.run; first < p.table.blocks; first += (uint64_t)warps * p.run) {
        uint32_t left = p.table.blocks - (uint32_t)first, end = (uint32_t)first + (left < p.run ? left : p.run);
        for (uint32_t n = (uint32_t)first; n < end;) {
            const frugi_gpu_slice *s = frugi_slice_of(p.table, n);
            uint32_t b = n - s->blocks_before, most = s->blocks - b, take = end - n < most ? end - n : most;
            if (b == 0)
                sum ^= press_header(p, s, table);
            sum ^= s->dense ? press_dense(p, s, b, b + take, table, stage, tray)
                            : press_run<VALUE, FORMAT>(p, s, b, b + take, table, stage, tray, &guess);
            n += take;
        }
    }
    return sum;
}

/* The last thread block of the last launch writes the header. */
template <int VALUE, int FORMAT>
static __global__ void __launch_bounds__(32 * WARPS, PRESS_LEAST)
    press_kernel(const __grid_constant__ frugi_gpu_press p) {
    __shared__ __align__(16) float stages[WARPS][32 * STAGE];
    __shared__ __align__(16) uint4 trays[WARPS][TRAY];
    __shared__ uint32_t table[4][256], sum, ticket;
    if (threadIdx.x == 0)
        sum = 0;
    frugi_crc_tables(table, p.crc);
    uint32_t part = press_warp<VALUE, FORMAT>(p, table, stages[threadIdx.x / 32], trays[threadIdx.x / 32]);
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
    uint32_t runs = (share + PRESS_RUN - 1) / PRESS_RUN; /* of equal length, so that warps end together */
    frugi_gpu_press whole = *p;
    whole.run = (share + runs - 1) / runs;
    FRUGI_LAUNCH(kernel, grid, 32 * WARPS, stream, whole);
    return cudaGetLastError();
}

template <int VALUE> static cudaError_t by_format(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
#ifdef PRESS_FEW /* for bench/cuda_variants.sh */
    return p->residual_format == FRUGI_RESIDUAL_INT8 ? launch<VALUE, FRUGI_RESIDUAL_INT8>(p, processors, stream)
                                                     : launch<VALUE, FRUGI_RESIDUAL_F32>(p, processors, stream);
#else
    if (!p->kept)
        return launch<VALUE, RESIDUAL_NONE>(p, processors, stream);
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: return launch<VALUE, FRUGI_RESIDUAL_INT8>(p, processors, stream);
    case FRUGI_RESIDUAL_INT4: return launch<VALUE, FRUGI_RESIDUAL_INT4>(p, processors, stream);
    case FRUGI_RESIDUAL_BF16: return launch<VALUE, FRUGI_RESIDUAL_BF16>(p, processors, stream);
    default: return launch<VALUE, FRUGI_RESIDUAL_F32>(p, processors, stream);
    }
#endif
}

cudaError_t frugi_gpu_press_launch(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    switch (p->value) {
    case FRUGI_VALUE_BF16: return by_format<FRUGI_VALUE_BF16>(p, processors, stream);
#ifndef PRESS_FEW
    case FRUGI_VALUE_F16: return by_format<FRUGI_VALUE_F16>(p, processors, stream);
    case FRUGI_VALUE_INT8: return by_format<FRUGI_VALUE_INT8>(p, processors, stream);
#endif
    default: return by_format<FRUGI_VALUE_F32>(p, processors, stream);
    }
}

/*
 * gpu_decode.cuh - check the frames of several workers on a GPU, and add them up. A warp takes a stretch: a block of
 * 256, or several short ones, whose entries follow each other as those of one block do.
 *
 * A receiver knows beforehand how a frame of a step is cut, so it compares rather than parses: section headers must
 * be the very bytes it would write itself. Then no number in a frame is ever used as a length or a place before it was
 * checked, and nothing has to be read back by the host. Sums go in the order of the frames, as on the CPU. sum_*.cu
 * make kernels of it, for one length of blocks each.
 */
#ifndef FRUGI_SUM_CUH
#define FRUGI_SUM_CUH

#include "cuda/gpu_warp.cuh"

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

template <int BLOCK> static __device__ bool header_is(const frugi_gpu_slice *s, const unsigned char *h) {
    return h[0] == s->index && h[1] == s->value && says(h + 2, BLOCK, 2) && says(h + 4, s->tensor, 4) &&
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

/* Whether bitmaps have the right number of bits for each block, and none behind the last element. */
template <int BLOCK> static __device__ inline bool bitmaps_are_sound(const frugi_spot &at, const unsigned char *index) {
    uint32_t lane = frugi_lane(), first = lane * 8, block = first / BLOCK, byte = 0;
    if (BLOCK == 256 || block * BLOCK < at.length)
        byte = index[(uint64_t)at.b * (BLOCK / 8) + lane];
    uint32_t beyond = first >= at.length ? byte : at.length - first >= 8 ? 0 : byte >> (at.length - first);
    uint32_t bits = (uint32_t)__popc(byte) << block * (BLOCK / 8) % 32;
    return __reduce_add_sync(FRUGI_ALL_LANES, bits) == frugi_counts_of<BLOCK>(at) && beyond == 0;
}

/* Whether entry e has a place within its block, behind that of the entry before. */
template <int BLOCK>
static __device__ inline bool place_is_sound(const frugi_spot &at, const unsigned char *index, uint32_t e) {
    if (BLOCK == 256)
        return (index[e] < at.length) & (index[e > 0 ? e - 1 : 0] < index[e] + (e == 0));
    uint32_t first = frugi_block_of<BLOCK>(at, e) * BLOCK,
             before = e > 0 ? frugi_block_of<BLOCK>(at, e - 1) * BLOCK : 0;
    bool rises = e == 0 || before != first || index[e - 1] < index[e];
    return (index[e] < BLOCK) & (first + index[e] < at.length) & rises;
}

/* Whether the scale of a block, or of several, is one, as far as a lane sees. */
template <int BLOCK>
static __device__ inline bool scales_are_sound(const frugi_gpu_slice *s, const frugi_spot &at,
                                               const unsigned char *payload) {
    uint32_t last = BLOCK == 256 ? 0 : (at.length - 1) / BLOCK, b = at.b + min(frugi_lane(), last);
    if (s->value == FRUGI_VALUE_INT8)
        return reinterpret_cast<const uint16_t *>(payload)[b] <= FRUGI_INT8_MOST;
    int power = (signed char)payload[b];
    return power >= FRUGI_F16_LEAST && power <= 127 - FRUGI_F16_TOP;
}

/* Whether the places of a stretch rise and stay inside it, and its values are finite, as far as a lane sees. */
template <int BLOCK>
static __device__ inline bool stretch_is_sound(const frugi_gpu_slice *s, const frugi_spot &at,
                                               const unsigned char *payload) {
    const unsigned char *values = payload + s->value_at + at.before * frugi_gpu_value_bytes(s->value);
    uint32_t lane = frugi_lane();
    bool good = true;
    if (s->index == FRUGI_INDEX_CODE_LOCAL) {
        const unsigned char *index = payload + s->index_at + at.before;
#pragma unroll 4
        for (uint32_t e = lane; e < at.k; e += 32)
            good &= place_is_sound<BLOCK>(at, index, e);
    } else if (s->index == FRUGI_INDEX_CODE_BITMAP) {
        good = bitmaps_are_sound<BLOCK>(at, payload + s->index_at);
    }
    if (s->value == FRUGI_VALUE_INT8 || s->value == FRUGI_VALUE_F16)
        good &= scales_are_sound<BLOCK>(s, at, payload);
    if (s->value == FRUGI_VALUE_INT8)
        return good;
#pragma unroll 4
    for (uint32_t e = lane; e < at.k; e += 32)
        good &= finite(s, values, e);
    return good;
}

template <int BLOCK>
static __device__ __noinline__ void check_headers(const frugi_gpu_sum &sum, const frugi_gpu_slice *s) {
    for (uint32_t f = frugi_lane(); f < sum.frames; f += 32)
        if (!header_is<BLOCK>(s, sum.frame[f] + s->payload_at - FRUGI_GPU_HEADER))
            accuse(sum.verdict, FRUG_ERR_MISMATCH, f);
}

/* Frames go four at a time, so that their loads need not wait for each other. */
template <int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS) check_kernel(const __grid_constant__ frugi_gpu_sum sum) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < sum.table.stretches; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(sum.table, n);
        frugi_spot at = frugi_spot_of<BLOCK>(s, (n - s->stretches_before) * FRUGI_BLOCKS<BLOCK>);
        for (uint32_t f = 0; f < sum.frames; f += 4) {
            bool good[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                good[i] = f + i >= sum.frames || stretch_is_sound<BLOCK>(s, at, sum.frame[f + i] + s->payload_at);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (!good[i])
                    accuse(sum.verdict, FRUG_ERR_FORMAT, f + i);
        }
        if (at.b == 0)
            check_headers<BLOCK>(sum, s);
    }
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

/* Add a sound stretch of one frame to the sum in shared memory. Its places differ, so lanes never meet. */
template <int BLOCK>
static __device__ inline void add_stretch(const frugi_gpu_slice *s, const frugi_spot &at, const unsigned char *payload,
                                          float *sum) {
    const unsigned char *values = payload + s->value_at + at.before * frugi_gpu_value_bytes(s->value);
    const unsigned char *index = payload + s->index_at + at.before;
    float scale = BLOCK == 256 ? scale_of(s, payload, at.b) : 0.0f;
    for (uint32_t first = frugi_lane(); first < at.k; first += 128) { /* four loads at a time */
        uint32_t place[4];
        float v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t e = first + 32 * i, block = frugi_block_of<BLOCK>(at, e < at.k ? e : 0);
            if (BLOCK < 256)
                scale = scale_of(s, payload, at.b + block);
            place[i] = e >= at.k ? 0 : s->index == FRUGI_INDEX_CODE_NONE ? e : block * BLOCK + index[e] % BLOCK;
            v[i] = e < at.k ? value_of(s, values, e, scale) : 0.0f;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (first + 32 * i < at.k)
                sum[place[i]] = __fadd_rn(sum[place[i]], v[i]);
    }
    __syncwarp();
}

/* The bits of a value and of its block's scale; what they stand for, and whether that is a number. */
template <int VALUE> static __device__ inline uint32_t value_bits(const unsigned char *values, uint32_t e) {
    return VALUE == FRUGI_VALUE_F32    ? reinterpret_cast<const uint32_t *>(values)[e]
           : VALUE == FRUGI_VALUE_INT8 ? (uint32_t)values[e]
           : VALUE == FRUGI_VALUE_F16  ? (uint32_t) reinterpret_cast<const uint16_t *>(values)[e]
                                       : (uint32_t) reinterpret_cast<const uint16_t *>(values)[e] << 16;
}

template <int VALUE> static __device__ inline uint32_t scale_bits(const unsigned char *payload, uint32_t b) {
    return VALUE == FRUGI_VALUE_INT8  ? (uint32_t) reinterpret_cast<const uint16_t *>(payload)[b]
           : VALUE == FRUGI_VALUE_F16 ? (uint32_t)payload[b]
                                      : 0;
}

template <int VALUE> static __device__ inline float value_from(uint32_t bits, uint32_t scale) {
    return VALUE == FRUGI_VALUE_INT8  ? __fmul_rn((float)(signed char)bits, frugi_bf16_f32((uint16_t)scale))
           : VALUE == FRUGI_VALUE_F16 ? __fmul_rn(frugi_f16_f32((uint16_t)bits), frugi_power_of_two((signed char)scale))
                                      : frugi_bits_f32(bits);
}

template <int VALUE> static __device__ inline bool is_number(uint32_t bits, uint32_t scale) {
    int power = (signed char)scale;
    return VALUE == FRUGI_VALUE_INT8 ? scale <= FRUGI_INT8_MOST
           : VALUE == FRUGI_VALUE_F16
               ? (bits & 0x7c00u) != 0x7c00u && power >= FRUGI_F16_LEAST && power <= 127 - FRUGI_F16_TOP
               : (bits & FRUGI_ABS_MASK) < FRUGI_INF_BITS;
}

#define LOADS 4 /* of a lane before the first is used */

/*
 * The same for several frames with at most 32 entries a stretch, and places as bytes: all are fetched before one is
 * added. With EACH = 2 half a warp takes a frame of at most 16 entries. Returns a bit for every load that was wrong;
 * then nothing is added, because in such a frame places may be the same.
 */
template <int VALUE, int EACH, int BLOCK>
static __device__ inline uint32_t add_many(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                           uint32_t first, float *sum) {
    uint64_t value = s->payload_at + s->value_at + at.before * frugi_gpu_value_bytes(VALUE);
    uint64_t index = s->payload_at + s->index_at + at.before;
    uint32_t half = frugi_lane() / (32 / EACH), e = frugi_lane() % (32 / EACH), place[LOADS], bits[LOADS], bad = 0;
    uint32_t scale[LOADS], block = frugi_block_of<BLOCK>(at, e), from = block * BLOCK;
    const uint32_t nowhere = BLOCK == 256 ? 256 : 1024; /* beyond all that a byte can say */
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t f = first + i * EACH + half;
        bool mine = e < at.k && f < all.frames;
        const unsigned char *frame = all.frame[mine ? f : 0];
        place[i] = mine ? from + frame[index + e] : nowhere;
        bits[i] = mine ? value_bits<VALUE>(frame + value, e) : 0;
        scale[i] = mine ? scale_bits<VALUE>(frame + s->payload_at, at.b + block) : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t before = __shfl_up_sync(FRUGI_ALL_LANES, place[i], 1);
        bool mine = place[i] < nowhere, number = is_number<VALUE>(bits[i], scale[i]);
        bool inside = place[i] < at.length && (BLOCK == 256 || place[i] < from + BLOCK);
        bad |= (uint32_t)(mine && !(number && inside && (e == 0 || before < place[i]))) << i;
    }
    if (!__all_sync(FRUGI_ALL_LANES, bad == 0))
        return bad;
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        float v = value_from<VALUE>(bits[i], scale[i]);
#pragma unroll
        for (uint32_t h = 0; h < EACH; h++) {
            if (place[i] < nowhere && half == h)
                sum[place[i]] = __fadd_rn(sum[place[i]], v);
            __syncwarp();
        }
    }
    return bad;
}

template <int VALUE, int BLOCK>
static __device__ inline void add_small(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                        float *sum) {
    bool halves = at.k <= 16; /* two frames share a load */
    uint32_t each = halves ? 2 : 1;
    for (uint32_t f = 0; f < all.frames; f += LOADS * each) {
        uint32_t bad =
            halves ? add_many<VALUE, 2, BLOCK>(all, s, at, f, sum) : add_many<VALUE, 1, BLOCK>(all, s, at, f, sum);
        if (bad)
            accuse(all.verdict, FRUG_ERR_FORMAT,
                   f + ((uint32_t)__ffs((int)bad) - 1) * each + (halves ? frugi_lane() / 16 : 0));
    }
}

/* The bitmaps of a stretch in four frames, a word to a lane, and the entries before each word. */
#define MAPS 4
typedef struct maps {
    __align__(16) uint32_t word[MAPS][8];
    __align__(16) uint32_t before[MAPS][8];
} maps;

/* Put them there; whether this lane's word stays inside the stretch and, if it is a block's last, there are as many
 * entries up to it as there must be. */
template <int BLOCK> static __device__ inline bool take_maps(maps *m, uint32_t word, const frugi_spot &at) {
    uint32_t lane = frugi_lane(), w = lane % 8, count = (uint32_t)__popc(word), before = count;
#pragma unroll
    for (uint32_t d = 1; d < 8; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, before, d);
        before += w >= d ? other : 0;
    }
    uint32_t room = at.length > 32 * w ? at.length - 32 * w : 0;
    uint32_t next = 32 * w / BLOCK + 1, due = at.k; /* entries before the next block */
    if (BLOCK < 256 && next < FRUGI_BLOCKS<BLOCK>)
        due = at.starts >> next * (BLOCK / 8) % 32 & ((1u << BLOCK / 8 % 32) - 1u);
    bool inside = room >= 32 || word >> room == 0, all = (w + 1) * 32 % BLOCK != 0 || before == due;
    m->word[lane / 8][w] = word;
    m->before[lane / 8][w] = before - count;
    return inside && all;
}

/* Add a stretch's entries, which are on the stage, where its bitmap says: lane l has elements l, 32 + l, .. */
static __device__ inline void add_map(const maps *m, uint32_t i, const float *stage, float sum[FRUGI_EACH]) {
    uint32_t lane = frugi_lane(), below = (1u << lane) - 1;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 four = reinterpret_cast<const uint4 *>(m->word[i])[half];
        uint4 first = reinterpret_cast<const uint4 *>(m->before[i])[half];
        const uint32_t word[4] = {four.x, four.y, four.z, four.w}, before[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (word[j] >> lane & 1u)
                sum[4 * half + j] = __fadd_rn(sum[4 * half + j], stage[before[j] + (uint32_t)__popc(word[j] & below)]);
    }
}

/* The scales of short blocks in four frames, one to a lane, in the order of the frames; zeros where there are none. */
template <int VALUE, int BLOCK>
static __device__ inline uint32_t take_scales(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                              uint32_t first) {
    uint32_t i = frugi_lane() / FRUGI_BLOCKS<BLOCK>, block = frugi_lane() % FRUGI_BLOCKS<BLOCK>;
    if (i >= MAPS || first + i >= all.frames || block * BLOCK >= at.length)
        return 0;
    return scale_bits<VALUE>(all.frame[first + i] + s->payload_at, at.b + block);
}

/*
 * The stretches of four frames with bitmaps, and at most 32 * ROWS entries: what is needed is fetched together, as it
 * lies in memory, before the first is added. Returns a bit for every frame that was wrong.
 */
template <int VALUE, int ROWS, int BLOCK>
static __device__ inline uint32_t add_maps(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                           uint32_t first, float sum[FRUGI_EACH], float *stage, maps *m) {
    constexpr uint32_t few = ROWS > 4 ? 2 : MAPS; /* frames, so that registers suffice */
    constexpr bool SHORT = BLOCK < 256 && (VALUE == FRUGI_VALUE_INT8 || VALUE == FRUGI_VALUE_F16);
    uint64_t value = s->payload_at + s->value_at + at.before * frugi_gpu_value_bytes(VALUE);
    uint32_t lane = frugi_lane(), mine = first + lane / 8, bits[few][ROWS], scale[few], bad = 0;
    const unsigned char *map =
        all.frame[mine < all.frames ? mine : 0] + s->payload_at + s->index_at + at.b * (BLOCK / 8ull);
    uint32_t word = 0;
    if (BLOCK == 256 || lane % 8 * 32 / BLOCK * BLOCK < at.length)
        word = reinterpret_cast<const uint32_t *>(map)[lane % 8];
    uint32_t scales = SHORT ? take_scales<VALUE, BLOCK>(all, s, at, first) : 0, blocks = 0; /* of this lane's rows */
#pragma unroll
    for (uint32_t r = 0; r < ROWS && SHORT; r++)
        blocks |= frugi_block_of<BLOCK>(at, lane + 32 * r) << 2 * r;
#pragma unroll
    for (uint32_t i = 0; i < MAPS; i++) {
        if (first + i >= all.frames)
            break;
#pragma unroll
        for (uint32_t j = 0; j < few && i % few == 0; j++) {
            bool here = first + i + j < all.frames;
            const unsigned char *frame = all.frame[here ? first + i + j : 0];
            scale[j] = SHORT ? 0 : scale_bits<VALUE>(frame + s->payload_at, at.b);
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++)
                bits[j][r] = here && lane + 32 * r < at.k ? value_bits<VALUE>(frame + value, lane + 32 * r) : 0;
        }
        if (i == 0)
            bad = (uint32_t)(!take_maps<BLOCK>(m, word, at) && mine < all.frames) << lane / 8;
        bool number = true;
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            if (SHORT)
                scale[i % few] =
                    __shfl_sync(FRUGI_ALL_LANES, scales, (int)(i * FRUGI_BLOCKS<BLOCK> + (blocks >> 2 * r & 3u)));
            number &= is_number<VALUE>(bits[i % few][r], scale[i % few]);
            stage[lane + 32 * r] = value_from<VALUE>(bits[i % few][r], scale[i % few]);
        }
        bad |= (uint32_t)!number << i;
        __syncwarp();
        add_map(m, i, stage, sum);
        __syncwarp();
    }
    return bad;
}

/* The same for all frames: sums are in registers, and the memory where they will be is the stage. */
template <int VALUE, int BLOCK>
static __device__ inline void add_mapped(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                         float *stage, maps *m) {
    float sum[FRUGI_EACH];
#pragma unroll
    for (uint32_t j = 0; j < FRUGI_EACH; j++)
        sum[j] = stage[32 * j + frugi_lane()];
    __syncwarp();
    for (uint32_t f = 0; f < all.frames; f += MAPS) {
        uint32_t bad = at.k <= 64    ? add_maps<VALUE, 2, BLOCK>(all, s, at, f, sum, stage, m)
                       : at.k <= 128 ? add_maps<VALUE, 4, BLOCK>(all, s, at, f, sum, stage, m)
                                     : add_maps<VALUE, 8, BLOCK>(all, s, at, f, sum, stage, m);
        if (bad)
            accuse(all.verdict, FRUG_ERR_FORMAT, f + (uint32_t)__ffs((int)bad) - 1);
    }
#pragma unroll
    for (uint32_t j = 0; j < FRUGI_EACH; j++)
        stage[32 * j + frugi_lane()] = sum[j];
    __syncwarp();
}

template <int VALUE, bool MAPPED, int BLOCK>
static __device__ inline void add_together(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                           float *sum, maps *m) {
    if (MAPPED && s->index == FRUGI_INDEX_CODE_BITMAP)
        add_mapped<VALUE, BLOCK>(all, s, at, sum, m);
    else
        add_small<VALUE, BLOCK>(all, s, at, sum);
}

/* All frames' parts of a stretch, onto the sum; sections' headers are looked at where they begin. */
template <bool CHECKED, bool MAPPED, int BLOCK>
static __device__ inline void add_frames(const frugi_gpu_sum &all, const frugi_gpu_slice *s, const frugi_spot &at,
                                         float *sum, maps *m) {
    if (!CHECKED && at.b == 0)
        check_headers<BLOCK>(all, s);
    if ((MAPPED && s->index == FRUGI_INDEX_CODE_BITMAP) || (s->index == FRUGI_INDEX_CODE_LOCAL && at.k <= 32)) {
        switch (s->value) {
        case FRUGI_VALUE_F32: return add_together<FRUGI_VALUE_F32, MAPPED, BLOCK>(all, s, at, sum, m);
        case FRUGI_VALUE_BF16: return add_together<FRUGI_VALUE_BF16, MAPPED, BLOCK>(all, s, at, sum, m);
        case FRUGI_VALUE_F16: return add_together<FRUGI_VALUE_F16, MAPPED, BLOCK>(all, s, at, sum, m);
        default: return add_together<FRUGI_VALUE_INT8, MAPPED, BLOCK>(all, s, at, sum, m);
        }
    }
    for (uint32_t f = 0; f < all.frames; f++) {
        bool good = CHECKED || stretch_is_sound<BLOCK>(s, at, all.frame[f] + s->payload_at);
        if (!good)
            accuse(all.verdict, FRUG_ERR_FORMAT, f);
        if (CHECKED || __all_sync(FRUGI_ALL_LANES, good))
            add_stretch<BLOCK>(s, at, all.frame[f] + s->payload_at, sum);
    }
}

/*
 * dst = keep * dst + gain * sum; sums start from the zero that changes no bits: decompress.c. Places are bytes, so that
 * whatever an unchecked frame says stays within the stretch.
 */
template <bool CHECKED, bool MAPPED, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS, LEAST) sum_kernel(const __grid_constant__ frugi_gpu_sum all) {
    __shared__ __align__(16) float sums[WARPS][FRUGI_GPU_STRETCH];
    __shared__ maps all_maps[MAPPED ? WARPS : 1];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    float *sum = sums[threadIdx.x / 32], nothing = all.gain < 0 ? 0.0f : -0.0f;
    float4 *four = reinterpret_cast<float4 *>(sum);
    if (all.verdict->status != 0)
        return;
    for (uint32_t n = warp; n < all.table.stretches; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(all.table, n);
        frugi_spot at = frugi_spot_of<BLOCK>(s, (n - s->stretches_before) * FRUGI_BLOCKS<BLOCK>);
        float *dst = all.dst + (s->begin - all.begin) + (uint64_t)at.b * BLOCK;
        float x[FRUGI_EACH] = {};
        if (all.keep != 0.0f && !MAPPED)
            frugi_load_block(dst, at.length, x);
        four[lane] = four[32 + lane] = make_float4(nothing, nothing, nothing, nothing);
        __syncwarp();
        add_frames<CHECKED, MAPPED, BLOCK>(all, s, at, sum, &all_maps[MAPPED ? threadIdx.x / 32 : 0]);
        if (all.keep != 0.0f && MAPPED) /* not before: registers are for what comes from frames */
            frugi_load_block(dst, at.length, x);
        float4 low = four[lane], high = four[32 + lane];
        float y[FRUGI_EACH] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++) {
            float base = all.keep == 0.0f ? 0.0f : all.keep == 1.0f ? x[i] : __fmul_rn(all.keep, x[i]);
            x[i] = __fadd_rn(base, __fmul_rn(all.gain, y[i]));
        }
        if (at.length == FRUGI_GPU_STRETCH && (reinterpret_cast<uintptr_t>(dst) & 15u) == 0) {
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
    uint32_t wanted = (sum->table.stretches + WARPS - 1) / WARPS, most = (uint32_t)(each * processors);
    FRUGI_LAUNCH(kernel, wanted < most ? wanted : most, 32 * WARPS, stream, *sum);
    return cudaGetLastError();
}

template <int BLOCK> static cudaError_t check_blocks(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    return launch(check_kernel<BLOCK>, sum, processors, stream);
}

template <int BLOCK> static cudaError_t sum_blocks(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    bool mapped = false;
    for (uint32_t i = 0; i < sum->table.slices; i++)
        mapped |= sum->table.slice[i].index == FRUGI_INDEX_CODE_BITMAP;
    if (mapped)
        return launch(sum->checked ? sum_kernel<true, true, BLOCK> : sum_kernel<false, true, BLOCK>, sum, processors,
                      stream);
    return launch(sum->checked ? sum_kernel<true, false, BLOCK> : sum_kernel<false, false, BLOCK>, sum, processors,
                  stream);
}

#endif

/*
 * gpu_decode.cuh - kernels that check the frames of several workers and sum them.
 *
 * One warp processes one warp tile: a block of 256, or several shorter blocks, whose entries are consecutive like those
 * of one block. A receiver knows the sections of a frame of a step beforehand, so it compares instead of parsing:
 * section headers must be the bytes that it would write itself. So no number of a frame is used as a length or an index
 * before it was checked, and the host need not read anything back. Sums are computed in the order of the frames, as on
 * the CPU. gpu_decode_64.cu and the other files instantiate the kernels, each for one block length.
 */
#ifndef FRUGI_GPU_DECODE_CUH
#define FRUGI_GPU_DECODE_CUH

#include "cuda/gpu_warp.cuh"

#include "frugrad.h"

#define WARPS             8
#define MIN_BLOCKS_PER_SM 4 /* limits registers */

static __device__ void set_error(frugi_gpu_error *error, int status, uint32_t frame) {
    if (atomicCAS(&error->status, 0, status) == 0)
        error->frame = frame;
}

static __device__ bool matches_le(const unsigned char *at, uint64_t v, int bytes) {
    bool same = true;
    for (int i = 0; i < bytes; i++)
        same = same && at[i] == (unsigned char)(v >> (8 * i));
    return same;
}

template <int BLOCK> static __device__ bool header_matches(const frugi_gpu_section *s, const unsigned char *h) {
    return h[0] == s->index && h[1] == s->value && matches_le(h + 2, BLOCK, 2) && matches_le(h + 4, s->tensor, 4) &&
           matches_le(h + 8, s->begin, 8) && matches_le(h + 16, s->count, 8) && matches_le(h + 24, s->kappa, 8) &&
           matches_le(h + 32, s->first, 8) && matches_le(h + 40, s->bytes, 8);
}

static __device__ inline bool value_is_finite(const frugi_gpu_section *s, const unsigned char *values, uint32_t e) {
    if (s->value == FRUGI_VALUE_F16)
        return (reinterpret_cast<const uint16_t *>(values)[e] & 0x7c00u) != 0x7c00u;
    uint32_t bits = s->value == FRUGI_VALUE_F32 ? reinterpret_cast<const uint32_t *>(values)[e]
                                                : (uint32_t) reinterpret_cast<const uint16_t *>(values)[e] << 16;
    return (bits & FRUGI_ABS_MASK) < FRUGI_INF_BITS;
}

/* Whether bitmaps have the right number of bits for each block, and none after the last element. */
template <int BLOCK> static __device__ inline bool bitmap_is_valid(const frugi_gpu_tile &tile, const unsigned char *index) {
    uint32_t lane = frugi_lane(), first = lane * 8, block = first / BLOCK, byte = 0;
    if (BLOCK == 256 || block * BLOCK < tile.length)
        byte = index[(uint64_t)tile.b * (BLOCK / 8) + lane];
    uint32_t beyond = first >= tile.length ? byte : tile.length - first >= 8 ? 0 : byte >> (tile.length - first);
    uint32_t bits = (uint32_t)__popc(byte) << block * (BLOCK / 8) % 32;
    return __reduce_add_sync(FRUGI_ALL_LANES, bits) == frugi_tile_counts<BLOCK>(tile) && beyond == 0;
}

/* Whether the index of entry e is within its block and above that of the entry before. */
template <int BLOCK>
static __device__ inline bool index_is_valid(const frugi_gpu_tile &tile, const unsigned char *index, uint32_t e) {
    if (BLOCK == 256)
        return (index[e] < tile.length) & (index[e > 0 ? e - 1 : 0] < index[e] + (e == 0));
    uint32_t first = frugi_entry_block<BLOCK>(tile, e) * BLOCK,
             before = e > 0 ? frugi_entry_block<BLOCK>(tile, e - 1) * BLOCK : 0;
    bool rises = e == 0 || before != first || index[e - 1] < index[e];
    return (index[e] < BLOCK) & (first + index[e] < tile.length) & rises;
}

/* Whether the scales of a tile's blocks are in the valid range; each lane checks one. */
template <int BLOCK>
static __device__ inline bool scales_are_valid(const frugi_gpu_section *s, const frugi_gpu_tile &tile,
                                               const unsigned char *payload) {
    uint32_t last = BLOCK == 256 ? 0 : (tile.length - 1) / BLOCK, b = tile.b + min(frugi_lane(), last);
    if (s->value == FRUGI_VALUE_INT8)
        return reinterpret_cast<const uint16_t *>(payload)[b] <= FRUGI_INT8_MAX_SCALE;
    int power = (signed char)payload[b];
    return power >= FRUGI_F16_MIN_EXPONENT && power <= 127 - FRUGI_F16_MAX_EXPONENT;
}

/*
 * Whether the indices of a tile ascend and are inside it, and its values are finite; each lane checks its own entries.
 */
template <int BLOCK>
static __device__ inline bool tile_is_valid(const frugi_gpu_section *s, const frugi_gpu_tile &tile,
                                            const unsigned char *payload) {
    const unsigned char *values = payload + s->value_at + tile.before * frugi_gpu_value_bytes(s->value);
    uint32_t lane = frugi_lane();
    bool valid = true;
    if (s->index == FRUGI_INDEX_CODE_LOCAL) {
        const unsigned char *index = payload + s->index_at + tile.before;
#pragma unroll 4
        for (uint32_t e = lane; e < tile.k; e += 32)
            valid &= index_is_valid<BLOCK>(tile, index, e);
    } else if (s->index == FRUGI_INDEX_CODE_BITMAP) {
        valid = bitmap_is_valid<BLOCK>(tile, payload + s->index_at);
    }
    if (s->value == FRUGI_VALUE_INT8 || s->value == FRUGI_VALUE_F16)
        valid &= scales_are_valid<BLOCK>(s, tile, payload);
    if (s->value == FRUGI_VALUE_INT8)
        return valid;
#pragma unroll 4
    for (uint32_t e = lane; e < tile.k; e += 32)
        valid &= value_is_finite(s, values, e);
    return valid;
}

template <int BLOCK>
static __device__ __noinline__ void check_headers(const frugi_gpu_sum_args &sum, const frugi_gpu_section *s) {
    for (uint32_t f = frugi_lane(); f < sum.frames; f += 32)
        if (!header_matches<BLOCK>(s, sum.frame[f] + s->payload_at - FRUGI_GPU_HEADER))
            set_error(sum.error, FRUG_ERR_MISMATCH, f);
}

/* Frames are checked four at a time, so that their loads overlap. */
template <int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS) check_kernel(const __grid_constant__ frugi_gpu_sum_args sum) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < sum.table.tiles; n += warps) {
        const frugi_gpu_section *s = frugi_find_section(sum.table, n);
        frugi_gpu_tile tile = frugi_tile_at<BLOCK>(s, (n - s->tiles_before) * FRUGI_TILE_BLOCKS<BLOCK>);
        for (uint32_t f = 0; f < sum.frames; f += 4) {
            bool valid[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                valid[i] = f + i >= sum.frames || tile_is_valid<BLOCK>(s, tile, sum.frame[f + i] + s->payload_at);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (!valid[i])
                    set_error(sum.error, FRUG_ERR_FORMAT, f + i);
        }
        if (tile.b == 0)
            check_headers<BLOCK>(sum, s);
    }
}

static __device__ inline float value_of(const frugi_gpu_section *s, const unsigned char *values, uint32_t e,
                                        float scale) {
    if (s->value == FRUGI_VALUE_F32)
        return reinterpret_cast<const float *>(values)[e];
    if (s->value == FRUGI_VALUE_BF16)
        return frugi_bf16_f32(reinterpret_cast<const uint16_t *>(values)[e]);
    if (s->value == FRUGI_VALUE_F16)
        return __fmul_rn(frugi_f16_f32(reinterpret_cast<const uint16_t *>(values)[e]), scale);
    return __fmul_rn((float)(signed char)values[e], scale);
}

static __device__ inline float scale_of(const frugi_gpu_section *s, const unsigned char *payload, uint32_t b) {
    if (s->value == FRUGI_VALUE_F16)
        return frugi_power_of_two((signed char)payload[b]);
    return s->value == FRUGI_VALUE_INT8 ? frugi_bf16_f32(reinterpret_cast<const uint16_t *>(payload)[b]) : 0.0f;
}

/* Add a valid tile of one frame to the sum in shared memory. Its indices differ, so lanes never collide. */
template <int BLOCK>
static __device__ inline void add_tile(const frugi_gpu_section *s, const frugi_gpu_tile &tile, const unsigned char *payload,
                                       float *sum) {
    const unsigned char *values = payload + s->value_at + tile.before * frugi_gpu_value_bytes(s->value);
    const unsigned char *index = payload + s->index_at + tile.before;
    float scale = BLOCK == 256 ? scale_of(s, payload, tile.b) : 0.0f;
    for (uint32_t first = frugi_lane(); first < tile.k; first += 128) { /* four loads in flight */
        uint32_t element[4];
        float v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t e = first + 32 * i, block = frugi_entry_block<BLOCK>(tile, e < tile.k ? e : 0);
            if (BLOCK < 256)
                scale = scale_of(s, payload, tile.b + block);
            element[i] = e >= tile.k ? 0 : s->index == FRUGI_INDEX_CODE_NONE ? e : block * BLOCK + index[e] % BLOCK;
            v[i] = e < tile.k ? value_of(s, values, e, scale) : 0.0f;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (first + 32 * i < tile.k)
                sum[element[i]] = __fadd_rn(sum[element[i]], v[i]);
    }
    __syncwarp();
}

/* The bits of a value and of its block's scale; the decoded value; whether it is valid. */
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

template <int VALUE> static __device__ inline float decode_value(uint32_t bits, uint32_t scale) {
    return VALUE == FRUGI_VALUE_INT8  ? __fmul_rn((float)(signed char)bits, frugi_bf16_f32((uint16_t)scale))
           : VALUE == FRUGI_VALUE_F16 ? __fmul_rn(frugi_f16_f32((uint16_t)bits), frugi_power_of_two((signed char)scale))
                                      : frugi_bits_f32(bits);
}

template <int VALUE> static __device__ inline bool value_is_valid(uint32_t bits, uint32_t scale) {
    int power = (signed char)scale;
    return VALUE == FRUGI_VALUE_INT8 ? scale <= FRUGI_INT8_MAX_SCALE
           : VALUE == FRUGI_VALUE_F16
               ? (bits & 0x7c00u) != 0x7c00u && power >= FRUGI_F16_MIN_EXPONENT && power <= 127 - FRUGI_F16_MAX_EXPONENT
               : (bits & FRUGI_ABS_MASK) < FRUGI_INF_BITS;
}

#define LOADS 4 /* loads of a lane that are issued before the first result is used */

/*
 * Sum a tile of several frames, with at most 32 entries and local indices (one byte each): all loads are issued before
 * the first value is added. With EACH = 2, half a warp processes a frame of at most 16 entries. Returns a bit for every
 * invalid load; then nothing is added, because such a frame may have duplicate indices.
 */
template <int VALUE, int EACH, int BLOCK>
static __device__ inline uint32_t add_small_tiles(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                  const frugi_gpu_tile &tile, uint32_t first, float *sum) {
    uint64_t values_at = s->payload_at + s->value_at + tile.before * frugi_gpu_value_bytes(VALUE);
    uint64_t indices_at = s->payload_at + s->index_at + tile.before;
    uint32_t half = frugi_lane() / (32 / EACH), e = frugi_lane() % (32 / EACH), element[LOADS], bits[LOADS],
             invalid = 0;
    uint32_t scale[LOADS], block = frugi_entry_block<BLOCK>(tile, e), from = block * BLOCK;
    const uint32_t no_index = BLOCK == 256 ? 256 : 1024; /* above everything that a byte can encode */
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t f = first + i * EACH + half;
        bool mine = e < tile.k && f < all.frames;
        const unsigned char *frame = all.frame[mine ? f : 0];
        element[i] = mine ? from + frame[indices_at + e] : no_index;
        bits[i] = mine ? value_bits<VALUE>(frame + values_at, e) : 0;
        scale[i] = mine ? scale_bits<VALUE>(frame + s->payload_at, tile.b + block) : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t before = __shfl_up_sync(FRUGI_ALL_LANES, element[i], 1);
        bool mine = element[i] < no_index, is_valid = value_is_valid<VALUE>(bits[i], scale[i]);
        bool inside = element[i] < tile.length && (BLOCK == 256 || element[i] < from + BLOCK);
        invalid |= (uint32_t)(mine && !(is_valid && inside && (e == 0 || before < element[i]))) << i;
    }
    if (!__all_sync(FRUGI_ALL_LANES, invalid == 0))
        return invalid;
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        float v = decode_value<VALUE>(bits[i], scale[i]);
#pragma unroll
        for (uint32_t h = 0; h < EACH; h++) {
            if (element[i] < no_index && half == h)
                sum[element[i]] = __fadd_rn(sum[element[i]], v);
            __syncwarp();
        }
    }
    return invalid;
}

template <int VALUE, int BLOCK>
static __device__ inline void add_small_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                               const frugi_gpu_tile &tile, float *sum) {
    bool halves = tile.k <= 16; /* two frames per load */
    uint32_t each = halves ? 2 : 1;
    for (uint32_t f = 0; f < all.frames; f += LOADS * each) {
        uint32_t invalid = halves ? add_small_tiles<VALUE, 2, BLOCK>(all, s, tile, f, sum)
                                  : add_small_tiles<VALUE, 1, BLOCK>(all, s, tile, f, sum);
        if (invalid)
            set_error(all.error, FRUG_ERR_FORMAT,
                      f + ((uint32_t)__ffs((int)invalid) - 1) * each + (halves ? frugi_lane() / 16 : 0));
    }
}

/* The bitmaps of a tile in four frames, one word per lane, and the number of entries before each word. */
#define BITMAP_FRAMES 4
typedef struct bitmap_group {
    __align__(16) uint32_t word[BITMAP_FRAMES][8];
    __align__(16) uint32_t before[BITMAP_FRAMES][8];
} bitmap_group;

/*
 * Stage the bitmaps in shared memory. Returns whether this lane's word has no bit outside the tile and, if it is the
 * last word of a block, the number of entries up to it is right.
 */
template <int BLOCK>
static __device__ inline bool stage_bitmaps(bitmap_group *m, uint32_t word, const frugi_gpu_tile &tile) {
    uint32_t lane = frugi_lane(), w = lane % 8, count = (uint32_t)__popc(word), before = count;
#pragma unroll
    for (uint32_t d = 1; d < 8; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, before, d);
        before += w >= d ? other : 0;
    }
    uint32_t room = tile.length > 32 * w ? tile.length - 32 * w : 0;
    uint32_t next = 32 * w / BLOCK + 1, due = tile.k; /* entries before the next block */
    if (BLOCK < 256 && next < FRUGI_TILE_BLOCKS<BLOCK>)
        due = tile.starts >> next * (BLOCK / 8) % 32 & ((1u << BLOCK / 8 % 32) - 1u);
    bool inside = room >= 32 || word >> room == 0, all = (w + 1) * 32 % BLOCK != 0 || before == due;
    m->word[lane / 8][w] = word;
    m->before[lane / 8][w] = before - count;
    return inside && all;
}

/* Add a tile's staged values at the indices of its bitmap: lane l has elements l, 32 + l, ... */
static __device__ inline void add_bitmap_values(const bitmap_group *m, uint32_t i, const float *stage,
                                                float sum[FRUGI_LANE_ELEMENTS]) {
    uint32_t lane = frugi_lane(), below = (1u << lane) - 1;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 vec4 = reinterpret_cast<const uint4 *>(m->word[i])[half];
        uint4 first = reinterpret_cast<const uint4 *>(m->before[i])[half];
        const uint32_t word[4] = {vec4.x, vec4.y, vec4.z, vec4.w}, before[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (word[j] >> lane & 1u)
                sum[4 * half + j] = __fadd_rn(sum[4 * half + j], stage[before[j] + (uint32_t)__popc(word[j] & below)]);
    }
}

/* The scales of short blocks in four frames, one per lane, in the order of the frames; 0 where there is none. */
template <int VALUE, int BLOCK>
static __device__ inline uint32_t load_short_scales(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                    const frugi_gpu_tile &tile, uint32_t first) {
    uint32_t i = frugi_lane() / FRUGI_TILE_BLOCKS<BLOCK>, block = frugi_lane() % FRUGI_TILE_BLOCKS<BLOCK>;
    if (i >= BITMAP_FRAMES || first + i >= all.frames || block * BLOCK >= tile.length)
        return 0;
    return scale_bits<VALUE>(all.frame[first + i] + s->payload_at, tile.b + block);
}

/*
 * Sum a tile of four frames with bitmaps and at most 32 * ROWS entries: everything is loaded in memory order before the
 * first value is added. Returns a bit for every invalid frame.
 */
template <int VALUE, int ROWS, int BLOCK>
static __device__ inline uint32_t add_bitmap_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                    const frugi_gpu_tile &tile, uint32_t first,
                                                    float sum[FRUGI_LANE_ELEMENTS], float *stage, bitmap_group *m) {
    constexpr uint32_t batch = ROWS > 4 ? 2 : BITMAP_FRAMES; /* frames whose values are in registers at a time */
    constexpr bool SHORT = BLOCK < 256 && (VALUE == FRUGI_VALUE_INT8 || VALUE == FRUGI_VALUE_F16);
    uint64_t values_at = s->payload_at + s->value_at + tile.before * frugi_gpu_value_bytes(VALUE);
    uint32_t lane = frugi_lane(), mine = first + lane / 8, bits[batch][ROWS], scale[batch], invalid = 0;
    const unsigned char *map =
        all.frame[mine < all.frames ? mine : 0] + s->payload_at + s->index_at + tile.b * (BLOCK / 8ull);
    uint32_t word = 0;
    if (BLOCK == 256 || lane % 8 * 32 / BLOCK * BLOCK < tile.length)
        word = reinterpret_cast<const uint32_t *>(map)[lane % 8];
    uint32_t scales = SHORT ? load_short_scales<VALUE, BLOCK>(all, s, tile, first) : 0,
             blocks = 0; /* blocks of this lane's rows */
#pragma unroll
    for (uint32_t r = 0; r < ROWS && SHORT; r++)
        blocks |= frugi_entry_block<BLOCK>(tile, lane + 32 * r) << 2 * r;
#pragma unroll
    for (uint32_t i = 0; i < BITMAP_FRAMES; i++) {
        if (first + i >= all.frames)
            break;
#pragma unroll
        for (uint32_t j = 0; j < batch && i % batch == 0; j++) {
            bool exists = first + i + j < all.frames;
            const unsigned char *frame = all.frame[exists ? first + i + j : 0];
            scale[j] = SHORT ? 0 : scale_bits<VALUE>(frame + s->payload_at, tile.b);
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++)
                bits[j][r] = exists && lane + 32 * r < tile.k ? value_bits<VALUE>(frame + values_at, lane + 32 * r) : 0;
        }
        if (i == 0)
            invalid = (uint32_t)(!stage_bitmaps<BLOCK>(m, word, tile) && mine < all.frames) << lane / 8;
        bool is_valid = true;
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            if (SHORT)
                scale[i % batch] =
                    __shfl_sync(FRUGI_ALL_LANES, scales, (int)(i * FRUGI_TILE_BLOCKS<BLOCK> + (blocks >> 2 * r & 3u)));
            is_valid &= value_is_valid<VALUE>(bits[i % batch][r], scale[i % batch]);
            stage[lane + 32 * r] = decode_value<VALUE>(bits[i % batch][r], scale[i % batch]);
        }
        invalid |= (uint32_t)!is_valid << i;
        __syncwarp();
        add_bitmap_values(m, i, stage, sum);
        __syncwarp();
    }
    return invalid;
}

/* The same for all frames: sums are in registers, and the shared memory for the result is used to stage values. */
template <int VALUE, int BLOCK>
static __device__ inline void add_all_bitmap_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                    const frugi_gpu_tile &tile, float *stage, bitmap_group *m) {
    float sum[FRUGI_LANE_ELEMENTS];
#pragma unroll
    for (uint32_t j = 0; j < FRUGI_LANE_ELEMENTS; j++)
        sum[j] = stage[32 * j + frugi_lane()];
    __syncwarp();
    for (uint32_t f = 0; f < all.frames; f += BITMAP_FRAMES) {
        uint32_t invalid = tile.k <= 64    ? add_bitmap_frames<VALUE, 2, BLOCK>(all, s, tile, f, sum, stage, m)
                           : tile.k <= 128 ? add_bitmap_frames<VALUE, 4, BLOCK>(all, s, tile, f, sum, stage, m)
                                           : add_bitmap_frames<VALUE, 8, BLOCK>(all, s, tile, f, sum, stage, m);
        if (invalid)
            set_error(all.error, FRUG_ERR_FORMAT, f + (uint32_t)__ffs((int)invalid) - 1);
    }
#pragma unroll
    for (uint32_t j = 0; j < FRUGI_LANE_ELEMENTS; j++)
        stage[32 * j + frugi_lane()] = sum[j];
    __syncwarp();
}

template <int VALUE, bool HAS_BITMAP, int BLOCK>
static __device__ inline void add_frames_by_index(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                  const frugi_gpu_tile &tile, float *sum, bitmap_group *m) {
    if (HAS_BITMAP && s->index == FRUGI_INDEX_CODE_BITMAP)
        add_all_bitmap_frames<VALUE, BLOCK>(all, s, tile, sum, m);
    else
        add_small_frames<VALUE, BLOCK>(all, s, tile, sum);
}

/* Add a tile of all frames to the sum; section headers are checked with the first tile. */
template <bool CHECKED, bool HAS_BITMAP, int BLOCK>
static __device__ inline void add_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                         const frugi_gpu_tile &tile, float *sum, bitmap_group *m) {
    if (!CHECKED && tile.b == 0)
        check_headers<BLOCK>(all, s);
    if ((HAS_BITMAP && s->index == FRUGI_INDEX_CODE_BITMAP) || (s->index == FRUGI_INDEX_CODE_LOCAL && tile.k <= 32)) {
        switch (s->value) {
        case FRUGI_VALUE_F32: return add_frames_by_index<FRUGI_VALUE_F32, HAS_BITMAP, BLOCK>(all, s, tile, sum, m);
        case FRUGI_VALUE_BF16: return add_frames_by_index<FRUGI_VALUE_BF16, HAS_BITMAP, BLOCK>(all, s, tile, sum, m);
        case FRUGI_VALUE_F16: return add_frames_by_index<FRUGI_VALUE_F16, HAS_BITMAP, BLOCK>(all, s, tile, sum, m);
        default: return add_frames_by_index<FRUGI_VALUE_INT8, HAS_BITMAP, BLOCK>(all, s, tile, sum, m);
        }
    }
    for (uint32_t f = 0; f < all.frames; f++) {
        bool valid = CHECKED || tile_is_valid<BLOCK>(s, tile, all.frame[f] + s->payload_at);
        if (!valid)
            set_error(all.error, FRUG_ERR_FORMAT, f);
        if (CHECKED || __all_sync(FRUGI_ALL_LANES, valid))
            add_tile<BLOCK>(s, tile, all.frame[f] + s->payload_at, sum);
    }
}

/*
 * dst = keep * dst + gain * sum. Sums start from the zero that changes no bits: see decoder.c. Indices are bytes, so
 * an unchecked frame cannot write outside the tile.
 */
template <bool CHECKED, bool HAS_BITMAP, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS, MIN_BLOCKS_PER_SM)
    sum_kernel(const __grid_constant__ frugi_gpu_sum_args all) {
    __shared__ __align__(16) float sums[WARPS][FRUGI_GPU_WARP_TILE];
    __shared__ bitmap_group bitmaps[HAS_BITMAP ? WARPS : 1];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, lane = frugi_lane();
    float *sum = sums[threadIdx.x / 32], zero = all.gain < 0 ? 0.0f : -0.0f;
    float4 *vec4 = reinterpret_cast<float4 *>(sum);
    if (all.error->status != 0)
        return;
    for (uint32_t n = warp; n < all.table.tiles; n += warps) {
        const frugi_gpu_section *s = frugi_find_section(all.table, n);
        frugi_gpu_tile tile = frugi_tile_at<BLOCK>(s, (n - s->tiles_before) * FRUGI_TILE_BLOCKS<BLOCK>);
        float *dst = all.dst + (s->begin - all.begin) + (uint64_t)tile.b * BLOCK;
        float x[FRUGI_LANE_ELEMENTS] = {};
        if (all.keep != 0.0f && !HAS_BITMAP)
            frugi_load_tile(dst, tile.length, x);
        vec4[lane] = vec4[32 + lane] = make_float4(zero, zero, zero, zero);
        __syncwarp();
        add_frames<CHECKED, HAS_BITMAP, BLOCK>(all, s, tile, sum, &bitmaps[HAS_BITMAP ? threadIdx.x / 32 : 0]);
        if (all.keep != 0.0f && HAS_BITMAP) /* not earlier: registers are needed for the frames */
            frugi_load_tile(dst, tile.length, x);
        float4 low = vec4[lane], high = vec4[32 + lane];
        float y[FRUGI_LANE_ELEMENTS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++) {
            float base = all.keep == 0.0f ? 0.0f : all.keep == 1.0f ? x[i] : __fmul_rn(all.keep, x[i]);
            x[i] = __fadd_rn(base, __fmul_rn(all.gain, y[i]));
        }
        if (tile.length == FRUGI_GPU_WARP_TILE && (reinterpret_cast<uintptr_t>(dst) & 15u) == 0) {
            __stcs(reinterpret_cast<float4 *>(dst) + lane, make_float4(x[0], x[1], x[2], x[3]));
            __stcs(reinterpret_cast<float4 *>(dst) + 32 + lane, make_float4(x[4], x[5], x[6], x[7]));
        } else {
#pragma unroll
            for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
                if (frugi_element_index(lane, i) < tile.length)
                    dst[frugi_element_index(lane, i)] = x[i];
        }
        __syncwarp();
    }
}

typedef void sum_kernel_fn(const frugi_gpu_sum_args);

static cudaError_t launch(sum_kernel_fn *kernel, const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 32 * WARPS, 0);
    if (error != cudaSuccess)
        return error;
    uint32_t wanted = (sum->table.tiles + WARPS - 1) / WARPS, most = (uint32_t)(each * processors);
    FRUGI_LAUNCH(kernel, wanted < most ? wanted : most, 32 * WARPS, stream, *sum);
    return cudaGetLastError();
}

template <int BLOCK>
static cudaError_t check_blocks(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return launch(check_kernel<BLOCK>, sum, processors, stream);
}

template <int BLOCK> static cudaError_t sum_blocks(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    bool has_bitmap = false;
    for (uint32_t i = 0; i < sum->table.sections; i++)
        has_bitmap |= sum->table.section[i].index == FRUGI_INDEX_CODE_BITMAP;
    if (has_bitmap)
        return launch(sum->checked ? sum_kernel<true, true, BLOCK> : sum_kernel<false, true, BLOCK>, sum, processors,
                      stream);
    return launch(sum->checked ? sum_kernel<true, false, BLOCK> : sum_kernel<false, false, BLOCK>, sum, processors,
                  stream);
}

#endif

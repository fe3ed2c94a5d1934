/*
 * gpu_decode.cuh - kernels that check the frames of several workers and sum them.
 *
 * One warp processes one warp tile: a block of 256, or several shorter blocks, whose entries are consecutive like those
 * of one block. For long blocks see gpu_decode_long.cu. A receiver knows the sections of a frame of a step beforehand,
 * so it compares instead of parsing: section headers must be the bytes that it would write itself. So no number of a
 * frame is used as a length or an index before it was checked, and the host need not read anything back. Sums are
 * computed in the order of the frames, as on the CPU. gpu_decode_64.cu and the other files instantiate the kernels,
 * each for one block length.
 */
#ifndef FRUGI_GPU_DECODE_CUH
#define FRUGI_GPU_DECODE_CUH

#include "cuda/gpu_group.cuh"

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
template <int BLOCK>
static __device__ inline bool bitmap_is_valid(const frugi_gpu_tile &tile, const unsigned char *index) {
    const unsigned char *map = index + (uint64_t)tile.b * (BLOCK / 8);
    uint32_t bits = 0, beyond = 0;
    for (uint32_t at = frugi_lane(); at < max(BLOCK, 256) / 8; at += 32) {
        uint32_t first = at * 8, block = first / BLOCK,
                 byte = BLOCK >= 256 || block * BLOCK < tile.length ? map[at] : 0;
        beyond |= first >= tile.length ? byte : tile.length - first >= 8 ? 0 : byte >> (tile.length - first);
        bits += (uint32_t)__popc(byte) << block * (BLOCK / 8) % 32;
    }
    return __reduce_add_sync(FRUGI_ALL_LANES, bits) == frugi_tile_counts<BLOCK>(tile) && beyond == 0;
}

/* Index number e of an array of indices within blocks. */
template <int BLOCK> static __device__ inline uint32_t load_index(const unsigned char *index, uint32_t e) {
    return FRUGI_INDEX_BYTES<BLOCK> == 2 ? reinterpret_cast<const uint16_t *>(index)[e] : index[e];
}

/* Whether the index of entry e is within its block and above that of the entry before. */
template <int BLOCK>
static __device__ inline bool index_is_valid(const frugi_gpu_tile &tile, const unsigned char *index, uint32_t e) {
    uint32_t here = load_index<BLOCK>(index, e);
    if (BLOCK >= 256)
        return (here < tile.length) & (load_index<BLOCK>(index, e > 0 ? e - 1 : 0) < here + (e == 0));
    uint32_t first = frugi_entry_block<BLOCK>(tile, e) * BLOCK,
             before = e > 0 ? frugi_entry_block<BLOCK>(tile, e - 1) * BLOCK : 0;
    bool rises = e == 0 || before != first || index[e - 1] < here;
    return (here < BLOCK) & (first + here < tile.length) & rises;
}

/* Whether the scale of a block is in the valid range. */
static __device__ inline bool scale_is_valid(const frugi_gpu_section *s, const unsigned char *payload, uint32_t b) {
    if (s->value == FRUGI_VALUE_INT8)
        return reinterpret_cast<const uint16_t *>(payload)[b] <= FRUGI_INT8_MAX_SCALE;
    int power = (signed char)payload[b];
    return power >= FRUGI_F16_MIN_EXPONENT && power <= 127 - FRUGI_F16_MAX_EXPONENT;
}

/* Whether the scales of a tile's blocks are; each lane checks one. */
template <int BLOCK>
static __device__ inline bool scales_are_valid(const frugi_gpu_section *s, const frugi_gpu_tile &tile,
                                               const unsigned char *payload) {
    uint32_t last = BLOCK >= 256 ? 0 : (tile.length - 1) / BLOCK;
    return scale_is_valid(s, payload, tile.b + min(frugi_lane(), last));
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
        const unsigned char *index = payload + s->index_at + FRUGI_INDEX_BYTES<BLOCK> * tile.before;
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
static __device__ inline void add_tile(const frugi_gpu_section *s, const frugi_gpu_tile &tile,
                                       const unsigned char *payload, float *sum) {
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

#define BITMAP_FRAMES 4                          /* frames whose bitmaps a warp loads at once, 8 words each */
#define STAGE_WORDS   (FRUGI_GPU_WARP_TILE + 4u) /* of values that may begin anywhere in 16 bytes */

/** Frames whose values a warp stages at once: all four, if there is enough shared memory. */
template <int BLOCK> constexpr uint32_t STAGE_FRAMES = BLOCK > 1024 ? 2 : BITMAP_FRAMES;

/* The values of a warp tile in some frames, as they are in the frames, in shared memory of a warp. */
template <int BLOCK> struct __align__(16) value_stage {
    uint32_t word[STAGE_FRAMES<BLOCK>][STAGE_WORDS];
};

/*
 * A lane's word of the bitmap of a warp tile, in one of four frames: lane l has word l % 8 of frame l / 8. before: the
 * tile's entries before the word.
 */
typedef struct bitmap_word {
    uint32_t bits, before;
} bitmap_word;

/* Load this lane's word, of frame f. Words after the last block of a tile are zeros. */
template <int BLOCK>
static __device__ inline bitmap_word load_bitmap_word(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                      const frugi_gpu_tile &tile, uint32_t f, uint32_t first_element) {
    uint32_t w = frugi_lane() % 8, bits = 0;
    const unsigned char *map = all.frame[f < all.frames ? f : 0] + s->payload_at + s->index_at +
                               (tile.b * (uint64_t)BLOCK + first_element) / 8;
    if (BLOCK >= 256 || 32 * w / BLOCK * BLOCK < tile.length)
        bits = reinterpret_cast<const uint32_t *>(map)[w];
    uint32_t before = (uint32_t)__popc(bits);
#pragma unroll
    for (uint32_t d = 1; d < 8; d *= 2) {
        uint32_t other = __shfl_up_sync(FRUGI_ALL_LANES, before, d);
        before += w >= d ? other : 0;
    }
    return {bits, before - (uint32_t)__popc(bits)};
}

/*
 * Whether a word has no bit after the tile's last element, and entries up to it are not too many or, at the end of a
 * block, the right number.
 */
template <int BLOCK>
static __device__ inline bool word_is_valid(const frugi_gpu_tile &tile, const bitmap_word &word, uint32_t warps_before,
                                            uint32_t first_element) {
    uint32_t first = first_element + frugi_lane() % 8 * 32, left = tile.length > first ? tile.length - first : 0;
    uint32_t next = first / BLOCK + 1, due = tile.k; /* entries before the next block */
    if (BLOCK < 256 && next < FRUGI_TILE_BLOCKS<BLOCK>)
        due = tile.starts >> next * (BLOCK / 8) % 32 & ((1u << BLOCK / 8 % 32) - 1u);
    uint32_t entries = warps_before + word.before + (uint32_t)__popc(word.bits);
    bool inside = left >= 32 || word.bits >> left == 0;
    return inside && ((first + 32) % BLOCK == 0 ? entries == due : entries <= due);
}

/* The larger of two words, each with one or two values, by the bits that are all ones in an infinity or a NaN. */
template <int VALUE> static __device__ inline uint32_t larger_exponents(uint32_t most, uint32_t word) {
    return VALUE == FRUGI_VALUE_F32    ? max(most, word & FRUGI_ABS_MASK)
           : VALUE == FRUGI_VALUE_BF16 ? __vmaxu2(most, word & 0x7fff7fffu)
           : VALUE == FRUGI_VALUE_F16  ? __vmaxu2(most, word & 0x7c007c00u)
                                       : 0;
}

template <int VALUE> static __device__ inline bool exponents_are_finite(uint32_t most) {
    uint32_t infinity = VALUE == FRUGI_VALUE_F16 ? 0x7c00u : FRUGI_INF_BITS >> 16;
    return VALUE == FRUGI_VALUE_F32 ? most < FRUGI_INF_BITS : (most & 0xffffu) < infinity && most >> 16 < infinity;
}

/*
 * The values of a warp tile in a frame: the chunks of 16 bytes that contain them, and the first one's offset in its
 * chunk. Chunk c begins at byte offset + 16 c of the section's values, of which there are `limit` bytes, with padding.
 */
typedef struct value_chunks {
    const uint4 *chunk;
    uint32_t chunks, shift, offset, limit;
} value_chunks;

static __device__ inline value_chunks find_chunks(const frugi_gpu_section *s, const unsigned char *payload, uint32_t at,
                                                  uint32_t bytes) {
    const unsigned char *first = payload + s->value_at + at;
    uint32_t shift = (uint32_t) reinterpret_cast<uintptr_t>(first) & 15u;
    return {reinterpret_cast<const uint4 *>(first - shift), (shift + bytes + 15u) / 16u, shift, at - shift,
            (uint32_t)(s->bytes - s->value_at)};
}

/* Load a chunk, but nothing outside of the section's values: zeros there. */
static __device__ inline uint4 load_chunk(const value_chunks &from, uint32_t c) {
    uint32_t offset = from.offset + 16 * c; /* wraps before the first value */
    uint4 v = {};
    if (offset < from.limit && from.limit - offset >= 16)
        return __ldcs(from.chunk + c);
    const uint32_t *word = reinterpret_cast<const uint32_t *>(from.chunk + c);
    v.x = offset < from.limit ? word[0] : 0;
    v.y = offset + 4 < from.limit ? word[1] : 0;
    v.z = offset + 8 < from.limit ? word[2] : 0;
    v.w = offset + 12 < from.limit ? word[3] : 0;
    return v;
}

/* Stage the values of some frames. Returns a bit for every frame with a value that is not finite. */
template <int VALUE, int BLOCK>
static __device__ inline uint32_t stage_values(const value_chunks from[STAGE_FRAMES<BLOCK>],
                                               value_stage<BLOCK> *stage) {
    uint32_t most[STAGE_FRAMES<BLOCK>] = {}, chunks = 0, invalid = 0;
#pragma unroll
    for (uint32_t i = 0; i < STAGE_FRAMES<BLOCK>; i++)
        chunks = max(chunks, from[i].chunks);
    for (uint32_t c = frugi_lane(); c < chunks; c += 32) {
        uint4 v[STAGE_FRAMES<BLOCK>] = {};
#pragma unroll
        for (uint32_t i = 0; i < STAGE_FRAMES<BLOCK>; i++)
            if (BLOCK <= 256 || c < from[i].chunks)
                v[i] = load_chunk(from[i], c);
#pragma unroll
        for (uint32_t i = 0; i < STAGE_FRAMES<BLOCK>; i++) {
            most[i] = larger_exponents<VALUE>(larger_exponents<VALUE>(most[i], v[i].x), v[i].y);
            most[i] = larger_exponents<VALUE>(larger_exponents<VALUE>(most[i], v[i].z), v[i].w);
            reinterpret_cast<uint4 *>(stage->word[i])[c] = v[i];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < STAGE_FRAMES<BLOCK>; i++)
        invalid |= (uint32_t)!exponents_are_finite<VALUE>(most[i]) << i;
    return invalid;
}

/* Add the staged values of frame number i of four to the elements of a lane that are in its bitmap. */
template <int VALUE>
static __device__ inline void add_staged(const uint32_t *stage, uint32_t shift, const bitmap_word &word, uint32_t i,
                                         const uint32_t scale[2], float sum[FRUGI_LANE_ELEMENTS]) {
    const uint32_t size = VALUE == FRUGI_VALUE_F32 ? 4 : VALUE == FRUGI_VALUE_INT8 ? 1 : 2;
    uint32_t lane = frugi_lane(), bit = lane % 8 * 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int from = (int)(8 * i + 4 * (uint32_t)j + lane / 8);
        uint32_t bits = __shfl_sync(FRUGI_ALL_LANES, word.bits, from);
        uint32_t e = __shfl_sync(FRUGI_ALL_LANES, word.before, from) + (uint32_t)__popc(bits & ((1u << bit) - 1u));
        const unsigned char *at = reinterpret_cast<const unsigned char *>(stage) + shift + e * size;
#pragma unroll
        for (int q = 0; q < 4; q++)
            if (bits >> bit & 1u << q) {
                sum[4 * j + q] = __fadd_rn(sum[4 * j + q], decode_value<VALUE>(value_bits<VALUE>(at, 0), scale[j]));
                at += size;
            }
    }
}

/* The scales of a lane's two halves. Returns whether those of blocks that exist are valid. */
template <int VALUE, int BLOCK>
static __device__ inline bool load_scales(const unsigned char *payload, const frugi_gpu_tile &tile, uint32_t scale[2]) {
    bool valid = true;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t block = frugi_lane_block<BLOCK>(j % FRUGI_LANE_BLOCKS<BLOCK>);
        scale[j] = BLOCK >= 256 || block * BLOCK < tile.length ? scale_bits<VALUE>(payload, tile.b + block) : 0;
        valid &= value_is_valid<VALUE>(0, scale[j]);
    }
    return valid;
}

/*
 * Add frames f + i, f + i + 1, ... of the four whose bitmaps are in `word`: their values in a warp tile are staged in
 * shared memory, all loads at once; then each lane reads those of its elements. warps_before: entries of the block
 * before this warp's.
 */
template <int VALUE, int BLOCK>
static __device__ inline void add_staged_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                const frugi_gpu_tile &tile, uint32_t f, uint32_t i,
                                                const bitmap_word &word, uint32_t warps_before,
                                                value_stage<BLOCK> *stage, float sum[FRUGI_LANE_ELEMENTS]) {
    const uint32_t size = VALUE == FRUGI_VALUE_F32 ? 4 : VALUE == FRUGI_VALUE_INT8 ? 1 : 2;
    value_chunks from[STAGE_FRAMES<BLOCK>];
    uint32_t scale[STAGE_FRAMES<BLOCK>][2], invalid = 0;
#pragma unroll
    for (uint32_t j = 0; j < STAGE_FRAMES<BLOCK>; j++) {
        const unsigned char *payload = all.frame[f + i + j < all.frames ? f + i + j : f] + s->payload_at;
        uint32_t before = 0, entries = tile.k;
        if (BLOCK > 256) { /* the warp has a part of the block, with any number of entries */
            before = __shfl_sync(FRUGI_ALL_LANES, warps_before, (int)(8 * (i + j)));
            entries = __shfl_sync(FRUGI_ALL_LANES, word.before + (uint32_t)__popc(word.bits), (int)(8 * (i + j) + 7));
        }
        from[j] = find_chunks(s, payload, ((uint32_t)tile.before + before) * size, entries * size);
        invalid |= (uint32_t)!load_scales<VALUE, BLOCK>(payload, tile, scale[j]) << j;
    }
    invalid |= stage_values<VALUE, BLOCK>(from, stage);
    __syncwarp();
#pragma unroll
    for (uint32_t j = 0; j < STAGE_FRAMES<BLOCK>; j++)
        if (f + i + j < all.frames) {
            add_staged<VALUE>(stage->word[j], from[j].shift, word, i + j, scale[j], sum);
            if (invalid >> j & 1u)
                set_error(all.error, FRUG_ERR_FORMAT, f + i + j);
        }
    __syncwarp();
}

/*
 * Add the values of a warp tile with bitmaps, of all frames, to the sums of a lane's elements. group: the lanes of the
 * tile's block.
 */
template <int VALUE, int BLOCK, class GROUP>
static __device__ inline void add_bitmap_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                                const frugi_gpu_tile &tile, GROUP *group, value_stage<BLOCK> *stage,
                                                float sum[FRUGI_LANE_ELEMENTS]) {
    for (uint32_t f = 0; f < all.frames; f += BITMAP_FRAMES) {
        uint32_t own = f + frugi_lane() / 8;
        bitmap_word word = load_bitmap_word<BLOCK>(all, s, tile, own, group->first_element());
        uint32_t warps_before = group->sum_before_by_eights(word.before + (uint32_t)__popc(word.bits));
        bool valid = own >= all.frames || word_is_valid<BLOCK>(tile, word, warps_before, group->first_element());
        if (!valid)
            set_error(all.error, FRUG_ERR_FORMAT, own);
        if (!__all_sync(FRUGI_ALL_LANES, valid)) /* there may be fewer values than bits */
            continue;
#pragma unroll
        for (uint32_t i = 0; i < BITMAP_FRAMES; i += STAGE_FRAMES<BLOCK>)
            if (f + i < all.frames)
                add_staged_frames<VALUE, BLOCK>(all, s, tile, f, i, word, warps_before, stage, sum);
    }
}

template <int BLOCK, class GROUP>
static __device__ inline void add_bitmap_tile(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                              const frugi_gpu_tile &tile, GROUP *group, value_stage<BLOCK> *stage,
                                              float sum[FRUGI_LANE_ELEMENTS]) {
    switch (s->value) {
    case FRUGI_VALUE_F32: return add_bitmap_frames<FRUGI_VALUE_F32, BLOCK>(all, s, tile, group, stage, sum);
    case FRUGI_VALUE_BF16: return add_bitmap_frames<FRUGI_VALUE_BF16, BLOCK>(all, s, tile, group, stage, sum);
    case FRUGI_VALUE_F16: return add_bitmap_frames<FRUGI_VALUE_F16, BLOCK>(all, s, tile, group, stage, sum);
    default: return add_bitmap_frames<FRUGI_VALUE_INT8, BLOCK>(all, s, tile, group, stage, sum);
    }
}

/* Add a tile of all frames to the sum in shared memory. */
template <int BLOCK>
static __device__ inline void add_frames(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                         const frugi_gpu_tile &tile, float *sum) {
    if (s->index == FRUGI_INDEX_CODE_LOCAL && tile.k <= 32) {
        switch (s->value) {
        case FRUGI_VALUE_F32: return add_small_frames<FRUGI_VALUE_F32, BLOCK>(all, s, tile, sum);
        case FRUGI_VALUE_BF16: return add_small_frames<FRUGI_VALUE_BF16, BLOCK>(all, s, tile, sum);
        case FRUGI_VALUE_F16: return add_small_frames<FRUGI_VALUE_F16, BLOCK>(all, s, tile, sum);
        default: return add_small_frames<FRUGI_VALUE_INT8, BLOCK>(all, s, tile, sum);
        }
    }
    for (uint32_t f = 0; f < all.frames; f++) {
        bool valid = all.checked || tile_is_valid<BLOCK>(s, tile, all.frame[f] + s->payload_at);
        if (!valid)
            set_error(all.error, FRUG_ERR_FORMAT, f);
        if (__all_sync(FRUGI_ALL_LANES, valid))
            add_tile<BLOCK>(s, tile, all.frame[f] + s->payload_at, sum);
    }
}

/* A lane's elements of the destination, a warp tile of `length` elements, if they influence the result. */
static __device__ inline void load_destination(const frugi_gpu_sum_args &all, const float *dst, uint32_t length,
                                               float x[FRUGI_LANE_ELEMENTS]) {
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        x[i] = 0.0f;
    if (all.keep != 0.0f)
        frugi_load_tile(dst, length, x);
}

/* Store keep * x + gain * sum to a warp tile of `length` elements. */
static __device__ inline void store_sums(const frugi_gpu_sum_args &all, float *dst, uint32_t length,
                                         float x[FRUGI_LANE_ELEMENTS], const float sum[FRUGI_LANE_ELEMENTS]) {
    uint32_t lane = frugi_lane();
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++) {
        float base = all.keep == 0.0f ? 0.0f : all.keep == 1.0f ? x[i] : __fmul_rn(all.keep, x[i]);
        x[i] = __fadd_rn(base, __fmul_rn(all.gain, sum[i]));
    }
    if (length == FRUGI_GPU_WARP_TILE && (reinterpret_cast<uintptr_t>(dst) & 15u) == 0) {
        __stcs(reinterpret_cast<float4 *>(dst) + lane, make_float4(x[0], x[1], x[2], x[3]));
        __stcs(reinterpret_cast<float4 *>(dst) + 32 + lane, make_float4(x[4], x[5], x[6], x[7]));
    } else {
#pragma unroll
        for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
            if (frugi_element_index(lane, i) < length)
                dst[frugi_element_index(lane, i)] = x[i];
    }
}

/* The zero that a sum starts from and that changes no bits: see decoder.c. */
static __device__ inline float zero_sum(const frugi_gpu_sum_args &all) {
    return all.gain < 0 ? 0.0f : -0.0f;
}

/* A lane's elements of a warp tile in shared memory. */
static __device__ inline void read_tile(const float *tile, float x[FRUGI_LANE_ELEMENTS]) {
    const float4 *four = reinterpret_cast<const float4 *>(tile);
    float4 low = four[frugi_lane()], high = four[32 + frugi_lane()];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

/* Shared memory of a warp. */
template <int BLOCK> union __align__(16) warp_shared {
    float sum[FRUGI_GPU_WARP_TILE];
    value_stage<BLOCK> stage;
};

/* Sum a tile with bitmaps, in registers. */
template <int BLOCK, class GROUP>
static __device__ inline void sum_bitmap_tile(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                              const frugi_gpu_tile &tile, GROUP *group, float *dst, uint32_t length,
                                              value_stage<BLOCK> *stage) {
    float sum[FRUGI_LANE_ELEMENTS], x[FRUGI_LANE_ELEMENTS];
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        sum[i] = zero_sum(all);
    add_bitmap_tile<BLOCK>(all, s, tile, group, stage, sum);
    load_destination(all, dst, length, x); /* not earlier: registers are needed for the frames */
    store_sums(all, dst, length, x, sum);
}

/* Sum other tiles, in shared memory. Indices are bytes, so an unchecked frame cannot write outside the tile. */
template <int BLOCK>
static __device__ inline void sum_tile(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                       const frugi_gpu_tile &tile, float *dst, float *sum) {
    float zero = zero_sum(all), x[FRUGI_LANE_ELEMENTS], total[FRUGI_LANE_ELEMENTS];
    float4 *four = reinterpret_cast<float4 *>(sum);
    load_destination(all, dst, tile.length, x);
    four[frugi_lane()] = four[32 + frugi_lane()] = make_float4(zero, zero, zero, zero);
    __syncwarp();
    add_frames<BLOCK>(all, s, tile, sum);
    read_tile(sum, total);
    store_sums(all, dst, tile.length, x, total);
    __syncwarp();
}

/* dst = keep * dst + gain * sum. Section headers are checked with the first tile. */
template <bool HAS_BITMAP, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS, MIN_BLOCKS_PER_SM)
    sum_kernel(const __grid_constant__ frugi_gpu_sum_args all) {
    __shared__ warp_shared<BLOCK> shared[HAS_BITMAP ? WARPS : 1];
    __shared__ __align__(16) float sums[HAS_BITMAP ? 1 : WARPS][FRUGI_GPU_WARP_TILE];
    uint32_t own = threadIdx.x / 32, warp = blockIdx.x * WARPS + own, warps = gridDim.x * WARPS;
    frugi_warp_group group;
    if (!__all_sync(FRUGI_ALL_LANES, all.error->status == 0)) /* together: another warp may set it meanwhile */
        return;
    for (uint32_t n = warp; n < all.table.tiles; n += warps) {
        const frugi_gpu_section *s = frugi_find_section(all.table, n);
        frugi_gpu_tile tile = frugi_tile_at<BLOCK>(s, (n - s->tiles_before) * FRUGI_TILE_BLOCKS<BLOCK>);
        float *dst = all.dst + (s->begin - all.begin) + (uint64_t)tile.b * BLOCK;
        if (!all.checked && tile.b == 0)
            check_headers<BLOCK>(all, s);
        if (HAS_BITMAP && s->index == FRUGI_INDEX_CODE_BITMAP)
            sum_bitmap_tile<BLOCK>(all, s, tile, &group, dst, tile.length, &shared[own].stage);
        else
            sum_tile<BLOCK>(all, s, tile, dst, HAS_BITMAP ? shared[own].sum : sums[own]);
    }
}

typedef void sum_kernel_fn(const frugi_gpu_sum_args);

/* Launch a kernel whose thread blocks process so many tiles at a time. */
static cudaError_t launch(sum_kernel_fn *kernel, uint32_t threads, uint32_t tiles_at_once,
                          const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, (int)threads, 0);
    if (error != cudaSuccess)
        return error;
    uint32_t wanted = (sum->table.tiles + tiles_at_once - 1) / tiles_at_once, most = (uint32_t)(each * processors);
    FRUGI_LAUNCH(kernel, wanted < most ? wanted : most, threads, stream, *sum);
    return cudaGetLastError();
}

template <int BLOCK>
static cudaError_t check_blocks(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return launch(check_kernel<BLOCK>, 32 * WARPS, WARPS, sum, processors, stream);
}

template <int BLOCK> static cudaError_t sum_blocks(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    bool has_bitmap = false;
    for (uint32_t i = 0; i < sum->table.sections; i++)
        has_bitmap |= sum->table.section[i].index == FRUGI_INDEX_CODE_BITMAP;
    return launch(has_bitmap ? sum_kernel<true, BLOCK> : sum_kernel<false, BLOCK>, 32 * WARPS, WARPS, sum, processors,
                  stream);
}

#endif

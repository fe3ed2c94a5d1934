/*
 * gpu_compress.cuh - compression kernel: accumulate, select, encode and update the residual in one pass over a
 * gradient.
 *
 * One warp processes one warp tile at a time: a block of 256, or several shorter blocks. gpu_compress_64.cu and the
 * other files instantiate the kernel, each for one block length.
 *
 * gpu_residual.cuh loads and stores residuals, gpu_select.cuh and gpu_select_short.cuh select entries, gpu_encode.cuh
 * encodes them. Operations and their order are those of compress.c and its CPU kernels, so frames and residuals are
 * identical byte for byte.
 */
#ifndef FRUGI_GPU_COMPRESS_CUH
#define FRUGI_GPU_COMPRESS_CUH

#include "cuda/gpu_select_short.cuh"
#include "cuda/gpu_encode.cuh"

#include "base/philox.h"

#define MIN_BLOCKS_PER_SM 3   /* limits registers; 4 and 5 were slower */
#define MAX_WARP_TILES    64u /* most consecutive tiles that a warp processes without a break */
#define WARPS             8   /* per thread block */

/* ---- one tile ---------------------------------------------------------------------------------------- */

/*
 * A block that contains a NaN or an infinity is skipped: zeros are sent at its first k indices, and its residual does
 * not change.
 */
template <class GROUP>
static __device__ inline uint32_t skip_block(const GROUP *group, const frugi_gpu_compress_args &p, uint32_t k,
                                             float x[8]) {
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        x[i] = 0.0f;
    if (frugi_lane() == 0 && group->first_element() == 0)
        atomicAdd(&p.workspace->skipped, 1u);
    return valid_elements(k, group->first_element());
}

/* Addresses of a tile's gradient and residual. */
typedef struct tile_source {
    const float *grad;
    residual_ptr residual;
} tile_source;

template <int FORMAT, int BLOCK>
static __device__ inline tile_source tile_source_at(const frugi_gpu_compress_args &p, const frugi_gpu_section *s,
                                                    uint32_t b) {
    return {p.grad + (s->begin - p.begin) + (uint64_t)b * BLOCK,
            advance_residual<FORMAT, BLOCK>({p.residual, p.scale}, s->stored + b)};
}

template <int FORMAT, int BLOCK> static __device__ inline tile_source next_tile_source(const tile_source &first) {
    return {first.grad + FRUGI_GPU_WARP_TILE,
            advance_residual<FORMAT, BLOCK>(first.residual, FRUGI_TILE_BLOCKS<BLOCK>)};
}

template <int FORMAT, int BLOCK>
static __device__ inline void load_source(const tile_source &from, uint32_t length, raw_tile<BLOCK> *r) {
    frugi_load_tile(from.grad, length, r->grad);
    load_residual<FORMAT, BLOCK>(from.residual, length, r);
}

/* Accumulator: beta * residual + gradient. */
template <int FORMAT, int BLOCK>
static __device__ inline void accumulate(const frugi_gpu_compress_args &p, raw_tile<BLOCK> *r, float x[8]) {
    if (p.gain) {
        float gain = *p.gain;
        __syncwarp(); /* keeps the branch; otherwise the multiplication is done even without a gain */
#pragma unroll
        for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
            r->grad[i] = __fmul_rn(gain, r->grad[i]);
    }
    unpack_residual<FORMAT, BLOCK>(*r, x);
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        x[i] = __fadd_rn(__fmul_rn(p.beta, x[i]), r->grad[i]);
}

/*
 * Find the short blocks with a NaN or an infinity and count them as skipped. Returns a bit for each. The caller zeroes
 * them, so that their first k indices are selected.
 */
template <int BLOCK>
static __device__ inline uint32_t skip_short_blocks(const frugi_gpu_compress_args &p, uint32_t largest) {
    uint32_t mine = 0;
#pragma unroll
    for (int j = 0; j < 2; j++)
        mine |= (uint32_t)(half_of(largest, j) >= FRUGI_INF_BITS >> 16) << frugi_lane_block<BLOCK>(j);
    uint32_t skipped = __reduce_or_sync(FRUGI_ALL_LANES, mine);
    if (frugi_lane() == 0)
        atomicAdd(&p.workspace->skipped, (uint32_t)__popc(skipped));
    return skipped;
}

/* select_tile() for a tile of short blocks. */
template <int BLOCK>
static __device__ inline uint32_t select_short_tile(const frugi_gpu_compress_args &p, const frugi_gpu_tile &tile,
                                                    float x[8], uint32_t *update, uint32_t *guess) {
    uint32_t upper[4], blocks = (tile.length + BLOCK - 1) / BLOCK;
    pack_upper(x, upper);
    uint32_t largest = max_per_block<BLOCK>(__vmaxs2(__vmaxs2(upper[0], upper[1]), __vmaxs2(upper[2], upper[3])));
    *update = (1u << blocks) - 1u;
    if (!__all_sync(FRUGI_ALL_LANES,
                    compare_upper(largest, threshold_addends((FRUGI_INF_BITS >> 16) * ONES_16X2)) == 0)) {
        uint32_t skipped = skip_short_blocks<BLOCK>(p, largest);
        *update &= ~skipped;
#pragma unroll
        for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
            x[i] = skipped >> frugi_lane_block<BLOCK>(i / 4) & 1u ? 0.0f : x[i];
        pack_upper(x, upper);
        largest = blend_halves(
            halves_mask(compare_upper(largest, threshold_addends((FRUGI_INF_BITS >> 16) * ONES_16X2))), 0, largest);
    }
    return select_short<BLOCK>(x, upper, largest, tile, p.hist, guess);
}

/*
 * The selected entries of a tile as a mask of this lane's elements; *update: a bit for each block whose residual is
 * written.
 */
template <int BLOCK>
static __device__ inline uint32_t select_tile(const frugi_gpu_compress_args &p, const frugi_gpu_tile &tile, float x[8],
                                              uint32_t *update, uint32_t *guess) {
    if constexpr (BLOCK < 256) {
        return select_short_tile<BLOCK>(p, tile, x, update, guess);
    } else {
        frugi_warp_group warp;
        uint32_t pair[4];
        pack_upper_halves(x, pair);
        uint32_t largest = largest_upper(&warp, pair);
        *update = largest < FRUGI_INF_BITS >> 16;
        return *update ? select(&warp, x, pair, largest, tile, p.hist, guess) : skip_block(&warp, p, tile.k, x);
    }
}

template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline void compress_tile(const frugi_gpu_compress_args &p, const frugi_gpu_section *s,
                                            const frugi_gpu_tile &tile, const residual_ptr &residual, float x[8],
                                            const uint32_t *random, section_writers *writers, warp_smem *smem,
                                            uint32_t *guess) {
    uint32_t update, mask = select_tile<BLOCK>(p, tile, x, &update, guess);
    encode_tile<VALUE, FORMAT, BLOCK>(p, s->index, tile, mask, x, writers, smem);
    if (FORMAT != RESIDUAL_NONE && update)
        store_residual<FORMAT, BLOCK>(residual, random, update, x);
}

static __device__ inline void put_le(unsigned char *to, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(v >> (8 * i));
}

/* Write the header of a section, and zeros as padding of its arrays. */
template <int BLOCK>
static __device__ __noinline__ void write_section_header(const frugi_gpu_section *s, unsigned char *frame) {
    unsigned char *payload = frame + s->payload_at, *h = payload - FRUGI_GPU_HEADER;
    frugi_gpu_tile end = frugi_tile_at<BLOCK>(s, s->blocks - 1);
    uint64_t entries = end.before + end.k;
    uint64_t scales = (uint64_t)scale_bytes(s->value) * s->blocks;
    uint64_t indices = s->index == FRUGI_INDEX_CODE_LOCAL    ? FRUGI_INDEX_BYTES<BLOCK> * entries
                       : s->index == FRUGI_INDEX_CODE_BITMAP ? BLOCK / 8ull * s->blocks
                                                             : 0;
    h[0] = s->index;
    h[1] = s->value;
    put_le(h + 2, BLOCK, 2);
    put_le(h + 4, s->tensor, 4);
    put_le(h + 8, s->begin, 8);
    put_le(h + 16, s->count, 8);
    put_le(h + 24, s->kappa, 8);
    put_le(h + 32, s->first, 8);
    put_le(h + 40, s->bytes, 8);
    for (uint64_t i = scales; i < s->index_at; i++)
        payload[i] = 0;
    for (uint64_t i = s->index_at + indices; i < s->value_at; i++)
        payload[i] = 0;
    for (uint64_t i = s->value_at + entries * frugi_gpu_value_bytes(s->value); i < s->bytes; i++)
        payload[i] = 0;
}

/* ---- consecutive tiles -------------------------------------------------------------------------------- */

typedef const uint32_t crc_table[4][256];

/* Writers for the arrays of a section, positioned at block b. */
template <int VALUE, int BLOCK>
static __device__ inline section_writers begin_writers(const frugi_gpu_section *s, uint32_t b, uint32_t before,
                                                       warp_smem *smem) {
    uint32_t payload = (uint32_t)s->payload_at, index = payload + (uint32_t)s->index_at;
    index += s->index == FRUGI_INDEX_CODE_LOCAL ? before : s->index == FRUGI_INDEX_CODE_BITMAP ? BLOCK / 8 * b : 0;
    uint32_t value = payload + (uint32_t)s->value_at + before * frugi_gpu_value_bytes(VALUE);
    section_writers all = {frugi_writer_begin(payload + scale_bytes(VALUE) * b, smem->scales),
                           frugi_writer_begin(index, smem->indices), frugi_writer_begin(value, smem->values)};
    __syncwarp();
    return all;
}

template <int VALUE>
static __device__ inline void flush_writers(section_writers *writers, warp_smem *smem, crc_table &table,
                                            unsigned char *frame) {
    __syncwarp();
    if (scale_bytes(VALUE))
        frugi_writer_flush(&writers->scales, smem->scales, table, frame);
    frugi_writer_flush(&writers->indices, smem->indices, table, frame);
    frugi_writer_flush(&writers->values, smem->values, table, frame);
}

/* Write what remains; returns the contribution of all bytes written to the frame's checksum. */
template <int VALUE>
static __device__ inline uint32_t finish_writers(const frugi_gpu_compress_args &p, const section_writers &writers,
                                                 const warp_smem *smem, crc_table &table) {
    uint32_t sum = 0;
    if (scale_bytes(VALUE))
        sum = frugi_writer_finish(writers.scales, smem->scales, table, p.crc, p.frame, p.bytes);
    sum ^= frugi_writer_finish(writers.indices, smem->indices, table, p.crc, p.frame, p.bytes);
    return sum ^ frugi_writer_finish(writers.values, smem->values, table, p.crc, p.frame, p.bytes);
}

/* Random numbers of 32 blocks: each lane draws the number of one block, for this one and the following. */
typedef struct rng_cache {
    uint32_t values, used;
} rng_cache;

template <int BLOCK>
static __device__ inline void next_random(const frugi_gpu_compress_args &p, uint64_t block, rng_cache *c,
                                          uint32_t random[FRUGI_LANE_BLOCKS<BLOCK>]) {
    if (c->used == 32)
        c->values = frugi_random(p.seed, p.step, block + frugi_lane()), c->used = 0;
#pragma unroll
    for (int j = 0; j < FRUGI_LANE_BLOCKS<BLOCK>; j++)
        random[j] = __shfl_sync(FRUGI_ALL_LANES, c->values, (int)(c->used + frugi_lane_block<BLOCK>(j)));
    c->used += FRUGI_TILE_BLOCKS<BLOCK>;
}

/* Compress blocks b .. end - 1 of a section; returns the contribution of their bytes to the frame's checksum. */
template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline uint32_t compress_tiles(const frugi_gpu_compress_args &p, const frugi_gpu_section *section,
                                                 uint32_t b, uint32_t end, crc_table &table, warp_smem *smem,
                                                 uint32_t *guess) {
    const frugi_gpu_section mine = *section, *s = &mine; /* a copy in registers: stores cannot alias it */
    frugi_gpu_tile tile = frugi_tile_at<BLOCK>(s, b);
    section_writers writers = begin_writers<VALUE, BLOCK>(s, b, (uint32_t)tile.before, smem);
    const bool NEEDS_RANDOM = FORMAT != RESIDUAL_NONE && FORMAT != FRUGI_RESIDUAL_F32;
    const uint32_t BLOCKS = FRUGI_TILE_BLOCKS<BLOCK>;
    rng_cache rng = {0, 32};
    tile_source from = tile_source_at<FORMAT, BLOCK>(p, s, b);
    raw_tile<BLOCK> next; /* prefetched while the tile before is searched */
    load_source<FORMAT, BLOCK>(from, tile.length, &next);
    for (;;) {
        float x[FRUGI_LANE_ELEMENTS];
        uint32_t random[FRUGI_LANE_BLOCKS<BLOCK>] = {};
        accumulate<FORMAT, BLOCK>(p, &next, x);
        tile_source next_source = next_tile_source<FORMAT, BLOCK>(from);
        if (b + BLOCKS < end)
            load_source<FORMAT, BLOCK>(next_source, frugi_tile_length<BLOCK>(s, b + BLOCKS), &next);
        if (NEEDS_RANDOM)
            next_random<BLOCK>(p, s->stored + b, &rng, random);
        compress_tile<VALUE, FORMAT, BLOCK>(p, s, tile, from.residual, x, random, &writers, smem, guess);
        flush_writers<VALUE>(&writers, smem, table, p.frame);
        b += BLOCKS;
        if (b >= end)
            return finish_writers<VALUE>(p, writers, smem, table);
        frugi_tile_next<BLOCK>(s, &tile);
        from = next_source;
    }
}

/* The same for a section that is sent dense. */
template <int BLOCK>
static __device__ __noinline__ uint32_t compress_dense_tiles(const frugi_gpu_compress_args &p,
                                                             const frugi_gpu_section *s, uint32_t b, uint32_t end,
                                                             crc_table &table, warp_smem *smem) {
    uint32_t guess = 0;
    return compress_tiles<FRUGI_VALUE_F32, RESIDUAL_NONE, BLOCK>(p, s, b, end, table, smem, &guess);
}

/* Write a section's header; returns its contribution to the checksum. Padding is zeros and contributes nothing. */
template <int BLOCK>
static __device__ __noinline__ uint32_t emit_section_header(const frugi_gpu_compress_args &p,
                                                            const frugi_gpu_section *s, crc_table &table) {
    if (frugi_lane() == 0)
        write_section_header<BLOCK>(s, p.frame);
    __syncwarp();
    frugi_crc_cursor t = {0, (uint32_t)s->payload_at - FRUGI_GPU_HEADER};
    return frugi_crc_finish(t, table, p.crc, p.frame, (uint32_t)s->payload_at, p.bytes);
}

/* All tiles of one warp of the grid. */
template <int VALUE, int FORMAT, int BLOCK>
static __device__ inline uint32_t compress_warp(const frugi_gpu_compress_args &p, crc_table &table, warp_smem *smem) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS, sum = 0;
    uint32_t guess = 0;
    for (uint64_t first = (uint64_t)warp * p.warp_tiles; first < p.table.tiles;
         first += (uint64_t)warps * p.warp_tiles) {
        uint32_t left = p.table.tiles - (uint32_t)first,
                 end = (uint32_t)first + (left < p.warp_tiles ? left : p.warp_tiles);
        for (uint32_t n = (uint32_t)first; n < end;) {
            const frugi_gpu_section *s = frugi_find_section(p.table, n);
            uint32_t at = n - s->tiles_before, largest = s->tiles - at, count = end - n < largest ? end - n : largest;
            uint32_t b = at * FRUGI_TILE_BLOCKS<BLOCK>, next_source = (at + count) * FRUGI_TILE_BLOCKS<BLOCK>;
            if (b == 0)
                sum ^= emit_section_header<BLOCK>(p, s, table);
            sum ^= s->dense ? compress_dense_tiles<BLOCK>(p, s, b, next_source, table, smem)
                            : compress_tiles<VALUE, FORMAT, BLOCK>(p, s, b, next_source, table, smem, &guess);
            n += count;
        }
    }
    return sum;
}

/*
 * Add the contribution of each warp to the frame's checksum. The last thread block to finish in the last launch writes
 * the frame's header.
 */
static __device__ inline void finish_thread_block(const frugi_gpu_compress_args &p, uint32_t warp_crc) {
    __shared__ uint32_t sum, block_rank;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    if (frugi_lane() == 0)
        atomicXor(&sum, warp_crc);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicXor(&p.workspace->crc[0], sum);
        __threadfence();
        block_rank = p.last ? atomicAdd(&p.workspace->done, 1u) : gridDim.x;
    }
    __syncthreads();
    if (block_rank + 1 == gridDim.x && threadIdx.x < 32) {
        __threadfence();
        frugi_write_frame_header(p.frame_header, p.frame, p.workspace);
    }
}

template <int VALUE, int FORMAT, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS, MIN_BLOCKS_PER_SM)
    compress_kernel(const __grid_constant__ frugi_gpu_compress_args p) {
    __shared__ warp_smem pages[WARPS];
    __shared__ uint32_t table[4][256];
    frugi_crc_load_tables<32 * WARPS>(table, p.crc);
    finish_thread_block(p, compress_warp<VALUE, FORMAT, BLOCK>(p, table, &pages[threadIdx.x / 32]));
}

typedef void compress_kernel_fn(const frugi_gpu_compress_args);

/* Launch a kernel whose thread blocks process so many tiles at a time. */
static cudaError_t launch(compress_kernel_fn *kernel, uint32_t threads, uint32_t tiles_at_once,
                          const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, (int)threads, 0);
    if (error != cudaSuccess)
        return error;
    uint32_t wanted = (p->table.tiles + tiles_at_once - 1) / tiles_at_once, largest = (uint32_t)(each * processors);
    uint32_t grid = wanted < largest ? wanted : largest, share = (wanted + grid - 1) / grid;
    uint32_t runs = (share + MAX_WARP_TILES - 1) / MAX_WARP_TILES; /* of equal length, so that warps end together */
    frugi_gpu_compress_args args = *p;
    args.warp_tiles = (share + runs - 1) / runs;
    FRUGI_LAUNCH(kernel, grid, threads, stream, args);
    return cudaGetLastError();
}

template <int VALUE, int FORMAT, int BLOCK>
static cudaError_t launch(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    return launch(compress_kernel<VALUE, FORMAT, BLOCK>, 32 * WARPS, WARPS, p, processors, stream);
}

template <int VALUE, int BLOCK>
static cudaError_t launch_by_format(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    if (!p->has_residual)
        return launch<VALUE, RESIDUAL_NONE, BLOCK>(p, processors, stream);
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: return launch<VALUE, FRUGI_RESIDUAL_INT8, BLOCK>(p, processors, stream);
    case FRUGI_RESIDUAL_INT4: return launch<VALUE, FRUGI_RESIDUAL_INT4, BLOCK>(p, processors, stream);
    case FRUGI_RESIDUAL_BF16: return launch<VALUE, FRUGI_RESIDUAL_BF16, BLOCK>(p, processors, stream);
    default: return launch<VALUE, FRUGI_RESIDUAL_F32, BLOCK>(p, processors, stream);
    }
}

template <int BLOCK>
static cudaError_t launch_by_value(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    switch (p->value) {
    case FRUGI_VALUE_BF16: return launch_by_format<FRUGI_VALUE_BF16, BLOCK>(p, processors, stream);
    case FRUGI_VALUE_F16: return launch_by_format<FRUGI_VALUE_F16, BLOCK>(p, processors, stream);
    case FRUGI_VALUE_INT8: return launch_by_format<FRUGI_VALUE_INT8, BLOCK>(p, processors, stream);
    default: return launch_by_format<FRUGI_VALUE_F32, BLOCK>(p, processors, stream);
    }
}

#endif

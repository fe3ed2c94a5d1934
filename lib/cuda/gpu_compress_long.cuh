/*
 * gpu_compress_long.cuh - compression kernel for long blocks, of 1024 and 4096: gpu_compress.cuh with the warps of a
 * thread block instead of one warp.
 *
 * Each warp has a warp tile of the block in registers. The search is that of gpu_select.cuh; counts are summed over the
 * warps. All warps write entries to buffers in shared memory, one for each array of the section, from which one warp
 * per array writes the frame (gpu_writer.cuh) while the others load the next block. While a block is searched, the next
 * one is prefetched into the L2 cache; there are not enough registers for it. Formats of values and residuals are
 * branches that all threads take alike, not template arguments: they cost nothing next to the barriers.
 *
 * Collecting candidates, elements above a threshold somewhat below that of the block before, and having one warp select
 * among them was not faster: the others wait for it.
 */
#ifndef FRUGI_GPU_COMPRESS_LONG_CUH
#define FRUGI_GPU_COMPRESS_LONG_CUH

#include "cuda/gpu_compress.cuh"

#ifndef LONG_THREADS_PER_SM
#define LONG_THREADS_PER_SM 1024 /* limits registers to 64 */
#endif

/* The arrays of a section. Warp i writes array i. */
enum { SCALES, INDICES, VALUES, ARRAYS };

template <int BLOCK> struct block_smem {
    frugi_exchange<BLOCK> exchange;
    uint32_t scales[FRUGI_WRITER_WORDS(2)], indices[FRUGI_WRITER_WORDS(2u * BLOCK)],
        values[FRUGI_WRITER_WORDS(4u * BLOCK)];
};

/* The writer of this warp's array, and the bytes in all three buffers. */
typedef struct block_writers {
    frugi_warp_writer own;
    uint32_t fill[ARRAYS];
} block_writers;

template <int BLOCK> static __device__ inline uint32_t *own_buffer(block_smem<BLOCK> *smem) {
    uint32_t warp = threadIdx.x / 32;
    return warp == SCALES ? smem->scales : warp == INDICES ? smem->indices : smem->values;
}

/* Writers for the arrays of a section, positioned at a block. */
template <int BLOCK>
static __device__ inline block_writers begin_block_writers(const frugi_gpu_section *s, const frugi_gpu_tile &block,
                                                           block_smem<BLOCK> *smem) {
    uint32_t payload = (uint32_t)s->payload_at, before = (uint32_t)block.before, warp = threadIdx.x / 32;
    uint32_t scales = payload + scale_bytes(s->value) * block.b;
    uint32_t indices = payload + (uint32_t)s->index_at +
                       (s->index == FRUGI_INDEX_CODE_LOCAL    ? FRUGI_INDEX_BYTES<BLOCK> * before
                        : s->index == FRUGI_INDEX_CODE_BITMAP ? BLOCK / 8 * block.b
                                                              : 0);
    uint32_t values = payload + (uint32_t)s->value_at + before * frugi_gpu_value_bytes(s->value);
    block_writers writers = {{}, {scales & 3u, indices & 3u, values & 3u}};
    if (warp < ARRAYS)
        writers.own = frugi_writer_begin(warp == SCALES    ? scales
                                         : warp == INDICES ? indices
                                                           : values,
                                         own_buffer<BLOCK>(smem));
    return writers;
}

/* Bytes were added to the buffers: write all whole groups. */
template <int BLOCK>
static __device__ inline void flush_block_writers(block_writers *writers, block_smem<BLOCK> *smem, crc_table &table,
                                                  unsigned char *frame) {
    uint32_t warp = threadIdx.x / 32;
    __syncthreads();
    if (warp < ARRAYS) {
        writers->own.fill = warp == SCALES    ? writers->fill[SCALES]
                            : warp == INDICES ? writers->fill[INDICES]
                                              : writers->fill[VALUES];
        frugi_writer_flush(&writers->own, own_buffer<BLOCK>(smem), table, frame);
    }
#pragma unroll
    for (int i = 0; i < ARRAYS; i++)
        writers->fill[i] %= FRUGI_CRC_GROUP;
}

/* Have up to 1024 bytes loaded into the L2 cache, 32 by each lane. */
static __device__ inline void prefetch(const void *first, uint32_t bytes) {
#ifdef __CUDA_ARCH__
    if (32 * frugi_lane() < bytes)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const unsigned char *>(first) + 32 * frugi_lane()));
#endif
}

/* This warp's part of a block's accumulator. If another block follows, its part of that is prefetched. */
template <int FORMAT, int BLOCK>
static __device__ inline void load_part(const frugi_gpu_compress_args &p, const frugi_gpu_section *s,
                                        const frugi_gpu_tile &block, bool follows, float x[8]) {
    raw_tile<BLOCK> raw;
    uint32_t first = threadIdx.x / 32 * FRUGI_GPU_WARP_TILE, left = block.length > first ? block.length - first : 0;
    tile_source from = {p.grad + (s->begin - p.begin) + (uint64_t)block.b * BLOCK + first,
                        residual_part<FORMAT, BLOCK>({p.residual, p.scale}, s->stored + block.b)};
    load_source<FORMAT, BLOCK>(from, min(left, FRUGI_GPU_WARP_TILE), &raw);
    if (follows) {
        uint32_t next = frugi_tile_length<BLOCK>(s, block.b + 1);
        prefetch(from.grad + BLOCK, next > first ? 4 * min(next - first, FRUGI_GPU_WARP_TILE) : 0);
        prefetch(from.residual.residual + residual_block_bytes<FORMAT, BLOCK>(),
                 residual_block_bytes<FORMAT, (int)FRUGI_GPU_WARP_TILE>());
    }
    accumulate<FORMAT, BLOCK>(p, &raw, x);
}

template <int BLOCK>
static __device__ inline void load_part_by_format(const frugi_gpu_compress_args &p, const frugi_gpu_section *s,
                                                  const frugi_gpu_tile &block, uint32_t format, bool follows,
                                                  float x[8]) {
    switch (format) {
    case FRUGI_RESIDUAL_INT8: load_part<FRUGI_RESIDUAL_INT8, BLOCK>(p, s, block, follows, x); break;
    case FRUGI_RESIDUAL_INT4: load_part<FRUGI_RESIDUAL_INT4, BLOCK>(p, s, block, follows, x); break;
    case FRUGI_RESIDUAL_BF16: load_part<FRUGI_RESIDUAL_BF16, BLOCK>(p, s, block, follows, x); break;
    case FRUGI_RESIDUAL_F32: load_part<FRUGI_RESIDUAL_F32, BLOCK>(p, s, block, follows, x); break;
    default: load_part<RESIDUAL_NONE, BLOCK>(p, s, block, follows, x); break;
    }
}

template <int BLOCK>
static __device__ inline void store_part_by_format(const frugi_gpu_compress_args &p, frugi_block_group<BLOCK> *group,
                                                   uint64_t block, uint32_t format, uint32_t random, const float x[8]) {
    residual_ptr all = {p.residual, p.scale};
    switch (format) {
    case FRUGI_RESIDUAL_INT8:
        store_residual_part<FRUGI_RESIDUAL_INT8>(group, residual_part<FRUGI_RESIDUAL_INT8, BLOCK>(all, block), random,
                                                 x);
        break;
    case FRUGI_RESIDUAL_INT4:
        store_residual_part<FRUGI_RESIDUAL_INT4>(group, residual_part<FRUGI_RESIDUAL_INT4, BLOCK>(all, block), random,
                                                 x);
        break;
    case FRUGI_RESIDUAL_BF16:
        store_residual_part<FRUGI_RESIDUAL_BF16>(group, residual_part<FRUGI_RESIDUAL_BF16, BLOCK>(all, block), random,
                                                 x);
        break;
    default:
        store_residual_part<FRUGI_RESIDUAL_F32>(group, residual_part<FRUGI_RESIDUAL_F32, BLOCK>(all, block), random, x);
        break;
    }
}

/* Encode the scale of a block, from its selected elements. */
template <int VALUE, int BLOCK>
static __device__ inline float encode_block_scale(frugi_block_group<BLOCK> *group, float sent_share, uint32_t mask,
                                                  const float x[8], unsigned char *to) {
    uint32_t bits, largest = largest_of_group(group, x, mask);
    float scale = value_scale<VALUE>(__fmul_rn(sent_share, frugi_bits_f32(largest)), &bits);
    if (threadIdx.x < scale_bytes(VALUE))
        to[threadIdx.x] = (unsigned char)(bits >> 8 * threadIdx.x);
    return scale;
}

/* Encode this lane's entries; x becomes the residual. rank: of the first entry in each half of the lane's elements. */
template <int VALUE, int BLOCK>
static __device__ inline void encode_entries(const frugi_gpu_compress_args &p, frugi_block_group<BLOCK> *group,
                                             const frugi_gpu_section *s, uint32_t mask, uint32_t rank[2], float x[8],
                                             const block_writers &writers, block_smem<BLOCK> *smem) {
    unsigned char *values = reinterpret_cast<unsigned char *>(smem->values) + writers.fill[VALUES];
    unsigned char *indices = reinterpret_cast<unsigned char *>(smem->indices) + writers.fill[INDICES];
    unsigned char *scales = reinterpret_cast<unsigned char *>(smem->scales) + writers.fill[SCALES];
    const bool has_residual = p.has_residual && !s->dense, local = s->index == FRUGI_INDEX_CODE_LOCAL;
    float scale = 0;
    if (scale_bytes(VALUE))
        scale = encode_block_scale<VALUE>(group, has_residual ? p.sent_share : 1.0f, mask, x, scales);
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (mask >> i & 1u) {
            uint32_t at = rank[i / 4]++, index = group->first_element() + frugi_element_index(frugi_lane(), i);
            if (local)
                reinterpret_cast<uint16_t *>(indices)[at] = (uint16_t)index;
            x[i] = encode_with_retention<VALUE>(p, has_residual, values, at, x[i], scale);
        }
    if (s->index == FRUGI_INDEX_CODE_BITMAP)
        write_bitmap(indices + threadIdx.x / 32 * (FRUGI_GPU_WARP_TILE / 8), mask);
}

/* Select and encode the entries of a block; x becomes the residual. Returns whether the block is finite. */
template <int BLOCK>
static __device__ inline bool encode_block(const frugi_gpu_compress_args &p, frugi_block_group<BLOCK> *group,
                                           const frugi_gpu_section *s, const frugi_gpu_tile &block, float x[8],
                                           block_writers *writers, block_smem<BLOCK> *smem, uint32_t *guess) {
    uint32_t pair[4], rank[2];
    pack_upper_halves(x, pair);
    uint32_t largest = largest_upper(group, pair);
    bool finite = largest < FRUGI_INF_BITS >> 16;
    uint32_t mask = finite ? select(group, x, pair, largest, block, p.hist, guess) : skip_block(group, p, block.k, x);
    rank_entries(group, mask, rank);
    switch (s->value) {
    case FRUGI_VALUE_BF16: encode_entries<FRUGI_VALUE_BF16>(p, group, s, mask, rank, x, *writers, smem); break;
    case FRUGI_VALUE_F16: encode_entries<FRUGI_VALUE_F16>(p, group, s, mask, rank, x, *writers, smem); break;
    case FRUGI_VALUE_INT8: encode_entries<FRUGI_VALUE_INT8>(p, group, s, mask, rank, x, *writers, smem); break;
    default: encode_entries<FRUGI_VALUE_F32>(p, group, s, mask, rank, x, *writers, smem); break;
    }
    writers->fill[SCALES] += scale_bytes(s->value);
    writers->fill[INDICES] += s->index == FRUGI_INDEX_CODE_LOCAL    ? FRUGI_INDEX_BYTES<BLOCK> * block.k
                              : s->index == FRUGI_INDEX_CODE_BITMAP ? BLOCK / 8
                                                                    : 0;
    writers->fill[VALUES] += block.k * frugi_gpu_value_bytes(s->value);
    return finite;
}

/* Compress blocks b .. end - 1 of a section; returns the contribution of what this warp wrote to the checksum. */
template <int BLOCK>
static __device__ inline uint32_t compress_blocks(const frugi_gpu_compress_args &p, frugi_block_group<BLOCK> *group,
                                                  const frugi_gpu_section *section, uint32_t b, uint32_t end,
                                                  crc_table &table, block_smem<BLOCK> *smem, uint32_t *guess) {
    const frugi_gpu_section mine = *section, *s = &mine; /* a copy in registers: stores cannot alias it */
    const uint32_t format = p.has_residual && !s->dense ? p.residual_format : RESIDUAL_NONE;
    frugi_gpu_tile block = frugi_tile_at<BLOCK>(s, b);
    block_writers writers = begin_block_writers<BLOCK>(s, block, smem);
    rng_cache rng = {0, 32};
    for (;;) {
        float x[FRUGI_LANE_ELEMENTS];
        uint32_t random[1] = {};
        load_part_by_format<BLOCK>(p, s, block, format, block.b + 1 < end, x);
        bool finite = encode_block<BLOCK>(p, group, s, block, x, &writers, smem, guess);
        if (format != RESIDUAL_NONE && format != FRUGI_RESIDUAL_F32)
            next_random<BLOCK>(p, s->stored + block.b, &rng, random);
        if (format != RESIDUAL_NONE && finite)
            store_part_by_format<BLOCK>(p, group, s->stored + block.b, format, random[0], x);
        flush_block_writers<BLOCK>(&writers, smem, table, p.frame);
        if (block.b + 1 >= end)
            break;
        frugi_tile_next<BLOCK>(s, &block);
    }
    if (threadIdx.x / 32 >= ARRAYS)
        return 0;
    return frugi_writer_finish(writers.own, own_buffer<BLOCK>(smem), table, p.crc, p.frame, p.bytes);
}

template <int BLOCK>
static __global__ void __launch_bounds__(32 * FRUGI_BLOCK_WARPS<BLOCK>,
                                         LONG_THREADS_PER_SM / (32 * FRUGI_BLOCK_WARPS<BLOCK>))
    compress_long_kernel(const __grid_constant__ frugi_gpu_compress_args p) {
    __shared__ block_smem<BLOCK> smem;
    __shared__ uint32_t table[4][256];
    frugi_block_group<BLOCK> group = {&smem.exchange, 0};
    uint32_t guess = 0, sum = 0;
    frugi_crc_load_tables<32 * FRUGI_BLOCK_WARPS<BLOCK>>(table, p.crc);
    for (uint64_t first = (uint64_t)blockIdx.x * p.warp_tiles; first < p.table.tiles;
         first += (uint64_t)gridDim.x * p.warp_tiles) {
        uint32_t end = (uint32_t)min(first + p.warp_tiles, (uint64_t)p.table.tiles);
        for (uint32_t n = (uint32_t)first; n < end;) {
            const frugi_gpu_section *s = frugi_find_section(p.table, n);
            uint32_t b = n - s->tiles_before, count = min(end - n, s->blocks - b);
            if (b == 0 && threadIdx.x < 32)
                sum ^= emit_section_header<BLOCK>(p, s, table);
            sum ^= compress_blocks<BLOCK>(p, &group, s, b, b + count, table, &smem, &guess);
            n += count;
        }
    }
    finish_thread_block(p, sum);
}

template <int BLOCK>
static cudaError_t launch_long(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    return launch(compress_long_kernel<BLOCK>, 32 * FRUGI_BLOCK_WARPS<BLOCK>, 1, p, processors, stream);
}

#endif

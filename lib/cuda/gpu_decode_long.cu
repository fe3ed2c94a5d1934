/*
 * gpu_decode_long.cu - check and sum frames with long blocks, of 1024 and 4096: gpu_decode.cuh with the warps of a
 * thread block for each block.
 *
 * With bitmaps each warp sums a warp tile of the block in registers; warps exchange only how many entries they have.
 * Otherwise the block is summed in shared memory, one frame after the other.
 */
#include "cuda/gpu_decode.cuh"

#define THREADS_PER_SM 1024

/* Entry e of a block with indices of two bytes, in some frames. */
typedef struct frame_entries {
    uint32_t element[LOADS];
    float value[LOADS];
} frame_entries;

/* Load entry e of several frames, and check it. Elements are inside the block, even if the frame is not valid. */
template <int BLOCK>
static __device__ inline void load_entries(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                           const frugi_gpu_tile &block, uint32_t first, uint32_t e, frame_entries *v) {
    uint64_t values_at = s->value_at + block.before * frugi_gpu_value_bytes(s->value),
             indices_at = s->index_at + block.before * FRUGI_INDEX_BYTES<BLOCK>;
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        if (first + i >= all.frames || e >= block.k)
            continue;
        const unsigned char *payload = all.frame[first + i] + s->payload_at, *index = payload + indices_at;
        bool local = s->index == FRUGI_INDEX_CODE_LOCAL, valid = !local || index_is_valid<BLOCK>(block, index, e);
        if (s->value != FRUGI_VALUE_INT8)
            valid &= value_is_finite(s, payload + values_at, e);
        if (s->value == FRUGI_VALUE_INT8 || s->value == FRUGI_VALUE_F16)
            valid &= scale_is_valid(s, payload, block.b);
        v->element[i] = local ? load_index<BLOCK>(index, e) % BLOCK : e;
        v->value[i] = value_of(s, payload + values_at, e, scale_of(s, payload, block.b));
        if (!valid)
            set_error(all.error, FRUG_ERR_FORMAT, first + i);
    }
}

/* Sum a block in shared memory. The indices of a frame differ, so threads never collide. */
template <int BLOCK>
static __device__ inline void add_entries(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                          const frugi_gpu_tile &block, float *sum) {
    const uint32_t THREADS = 32 * FRUGI_BLOCK_WARPS<BLOCK>;
    for (uint32_t f = 0; f < all.frames; f += LOADS)
        for (uint32_t from = 0; from < block.k; from += THREADS) {
            uint32_t e = from + threadIdx.x;
            frame_entries v;
            load_entries<BLOCK>(all, s, block, f, e, &v);
#pragma unroll
            for (uint32_t i = 0; i < LOADS; i++) {
                if (f + i < all.frames && e < block.k)
                    sum[v.element[i]] = __fadd_rn(sum[v.element[i]], v.value[i]);
                __syncthreads();
            }
        }
}

template <int BLOCK>
static __device__ inline void sum_block(const frugi_gpu_sum_args &all, const frugi_gpu_section *s,
                                        const frugi_gpu_tile &block, float *dst, uint32_t length, float *sum) {
    float *part = sum + threadIdx.x / 32 * FRUGI_GPU_WARP_TILE, zero = zero_sum(all), x[FRUGI_LANE_ELEMENTS],
          total[FRUGI_LANE_ELEMENTS];
    float4 *four = reinterpret_cast<float4 *>(part);
    load_destination(all, dst, length, x);
    four[frugi_lane()] = four[32 + frugi_lane()] = make_float4(zero, zero, zero, zero);
    __syncthreads();
    add_entries<BLOCK>(all, s, block, sum);
    read_tile(part, total);
    store_sums(all, dst, length, x, total);
}

/* The sum of a block, or what its warps stage. */
template <int BLOCK> union __align__(16) block_shared {
    float sum[BLOCK];
    value_stage<BLOCK> stage[FRUGI_BLOCK_WARPS<BLOCK>];
};

template <int BLOCK>
static __global__ void __launch_bounds__(32 * FRUGI_BLOCK_WARPS<BLOCK>,
                                         THREADS_PER_SM / (32 * FRUGI_BLOCK_WARPS<BLOCK>))
    sum_long_kernel(const __grid_constant__ frugi_gpu_sum_args all) {
    __shared__ block_shared<BLOCK> shared;
    __shared__ frugi_exchange<BLOCK> exchange;
    __shared__ int status;
    frugi_block_group<BLOCK> group = {&exchange, 0};
    if (threadIdx.x == 0)
        status = all.error->status; /* read once: another thread block may set it meanwhile */
    __syncthreads();
    if (status != 0)
        return;
    for (uint32_t n = blockIdx.x; n < all.table.tiles; n += gridDim.x) {
        const frugi_gpu_section *s = frugi_find_section(all.table, n);
        frugi_gpu_tile block = frugi_tile_at<BLOCK>(s, n - s->tiles_before);
        uint32_t first = group.first_element(), left = block.length > first ? block.length - first : 0;
        uint32_t length = min(left, FRUGI_GPU_WARP_TILE);
        float *dst = all.dst + (s->begin - all.begin) + (uint64_t)block.b * BLOCK + first;
        if (!all.checked && block.b == 0 && threadIdx.x < 32)
            check_headers<BLOCK>(all, s);
        if (s->index == FRUGI_INDEX_CODE_BITMAP)
            sum_bitmap_tile<BLOCK>(all, s, block, &group, dst, length, &shared.stage[threadIdx.x / 32]);
        else
            sum_block<BLOCK>(all, s, block, dst, length, shared.sum);
        __syncthreads(); /* the next block may use the shared memory in another way */
    }
}

template <int BLOCK> static cudaError_t sum_long(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return launch(sum_long_kernel<BLOCK>, 32 * FRUGI_BLOCK_WARPS<BLOCK>, 1, sum, processors, stream);
}

cudaError_t frugi_gpu_check_1024(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return check_blocks<1024>(sum, processors, stream);
}

cudaError_t frugi_gpu_check_4096(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return check_blocks<4096>(sum, processors, stream);
}

cudaError_t frugi_gpu_sum_1024(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return sum_long<1024>(sum, processors, stream);
}

cudaError_t frugi_gpu_sum_4096(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return sum_long<4096>(sum, processors, stream);
}

/*
 * gpu_residual_add.cu - add values to the residual on a GPU. For each warp tile: load, add, round again, store.
 *
 * A block to which only zeros are added is not touched, because rounding it again would only add noise. A block whose
 * sum is not finite does not change. The result is that of frugi_residual_add(), bit for bit.
 */
#include "cuda/gpu_residual.cuh"

#include "base/philox.h"

#define WARPS 8

/* ---- blocks of up to 256, by warps -------------------------------------------------------------------- */

/* A bit for every block of a tile for which the condition holds in lane `block`. */
template <int BLOCK> static __device__ inline uint32_t block_mask(bool mine) {
    uint32_t lane = frugi_lane();
    return __reduce_or_sync(FRUGI_ALL_LANES, lane < FRUGI_TILE_BLOCKS<BLOCK> && mine ? 1u << lane : 0u);
}

template <int FORMAT, int BLOCK>
static __device__ inline void add_to_tile(const frugi_gpu_residual_add_args &p, const frugi_gpu_section *s,
                                          uint32_t b) {
    float x[FRUGI_LANE_ELEMENTS], residual[FRUGI_LANE_ELEMENTS];
    raw_tile<BLOCK> raw;
    uint32_t length = frugi_tile_length<BLOCK>(s, b), lane = frugi_lane(), random[FRUGI_LANE_BLOCKS<BLOCK>];
    frugi_load_tile(p.values + (s->begin - p.begin) + (uint64_t)b * BLOCK, length, x);
    uint32_t write = block_mask<BLOCK>(largest_magnitude<BLOCK>(x) != 0);
    if (write == 0)
        return;
    residual_ptr dst = advance_residual<FORMAT, BLOCK>({p.residual, p.scale}, s->stored + b);
    load_residual<FORMAT, BLOCK>(dst, length, &raw);
    unpack_residual<FORMAT, BLOCK>(raw, residual);
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (frugi_element_index(lane, i) < length)
            residual[i] = __fadd_rn(residual[i], x[i]);
    write &= block_mask<BLOCK>(largest_magnitude<BLOCK>(residual) < FRUGI_INF_BITS);
#pragma unroll
    for (int j = 0; j < FRUGI_LANE_BLOCKS<BLOCK>; j++)
        random[j] = frugi_random(p.seed, p.step, s->stored + b + frugi_lane_block<BLOCK>(j));
    if (write != 0)
        store_residual<FORMAT, BLOCK>(dst, random, write, residual);
}

template <int FORMAT, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS)
    residual_add_kernel(const __grid_constant__ frugi_gpu_residual_add_args p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.table.tiles; n += warps) {
        const frugi_gpu_section *s = frugi_find_section(p.table, n);
        if (!s->dense)
            add_to_tile<FORMAT, BLOCK>(p, s, (n - s->tiles_before) * FRUGI_TILE_BLOCKS<BLOCK>);
    }
}

/* ---- long blocks, by thread blocks -------------------------------------------------------------------- */

template <int FORMAT, int BLOCK>
static __device__ inline void add_to_block(const frugi_gpu_residual_add_args &p, frugi_block_group<BLOCK> *group,
                                           const frugi_gpu_section *s, uint32_t b) {
    float x[FRUGI_LANE_ELEMENTS], residual[FRUGI_LANE_ELEMENTS];
    raw_tile<BLOCK> raw;
    uint32_t first = group->first_element(), length = frugi_tile_length<BLOCK>(s, b);
    uint32_t part = min(length > first ? length - first : 0, FRUGI_GPU_WARP_TILE);
    frugi_load_tile(p.values + (s->begin - p.begin) + (uint64_t)b * BLOCK + first, part, x);
    if (largest_of_group(group, x) == 0)
        return;
    residual_ptr dst = residual_part<FORMAT, BLOCK>({p.residual, p.scale}, s->stored + b);
    load_residual<FORMAT, BLOCK>(dst, part, &raw);
    unpack_residual<FORMAT, BLOCK>(raw, residual);
#pragma unroll
    for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
        if (frugi_element_index(frugi_lane(), i) < part)
            residual[i] = __fadd_rn(residual[i], x[i]);
    if (largest_of_group(group, residual) < FRUGI_INF_BITS)
        store_residual_part<FORMAT, BLOCK>(group, dst, frugi_random(p.seed, p.step, s->stored + b), residual);
}

template <int FORMAT, int BLOCK>
static __global__ void __launch_bounds__(32 * FRUGI_BLOCK_WARPS<BLOCK>)
    residual_add_long_kernel(const __grid_constant__ frugi_gpu_residual_add_args p) {
    __shared__ frugi_exchange<BLOCK> exchange;
    frugi_block_group<BLOCK> group = {&exchange, 0};
    for (uint32_t n = blockIdx.x; n < p.table.tiles; n += gridDim.x) {
        const frugi_gpu_section *s = frugi_find_section(p.table, n);
        if (!s->dense)
            add_to_block<FORMAT, BLOCK>(p, &group, s, n - s->tiles_before);
    }
}

/* ---- launch ------------------------------------------------------------------------------------------- */

/* As many thread blocks as needed, of so many tiles each, up to a few for each multiprocessor. */
static uint32_t grid_size(const frugi_gpu_residual_add_args *p, uint32_t tiles_at_once, int processors) {
    uint32_t wanted = (p->table.tiles + tiles_at_once - 1) / tiles_at_once, most = (uint32_t)processors * 8u;
    return wanted < most ? wanted : most;
}

template <int FORMAT>
static void launch_format(const frugi_gpu_residual_add_args *p, int processors, cudaStream_t stream) {
    uint32_t grid = grid_size(p, p->table.block > FRUGI_GPU_WARP_TILE ? 1 : WARPS, processors);
    switch (p->table.block) {
    case 64: FRUGI_LAUNCH((residual_add_kernel<FORMAT, 64>), grid, 32 * WARPS, stream, *p); break;
    case 128: FRUGI_LAUNCH((residual_add_kernel<FORMAT, 128>), grid, 32 * WARPS, stream, *p); break;
    case 256: FRUGI_LAUNCH((residual_add_kernel<FORMAT, 256>), grid, 32 * WARPS, stream, *p); break;
    case 1024: FRUGI_LAUNCH((residual_add_long_kernel<FORMAT, 1024>), grid, 128, stream, *p); break;
    default: FRUGI_LAUNCH((residual_add_long_kernel<FORMAT, 4096>), grid, 512, stream, *p); break;
    }
}

cudaError_t frugi_gpu_residual_add_launch(const frugi_gpu_residual_add_args *p, int processors, cudaStream_t stream) {
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: launch_format<FRUGI_RESIDUAL_INT8>(p, processors, stream); break;
    case FRUGI_RESIDUAL_INT4: launch_format<FRUGI_RESIDUAL_INT4>(p, processors, stream); break;
    case FRUGI_RESIDUAL_BF16: launch_format<FRUGI_RESIDUAL_BF16>(p, processors, stream); break;
    default: launch_format<FRUGI_RESIDUAL_F32>(p, processors, stream); break;
    }
    return cudaGetLastError();
}

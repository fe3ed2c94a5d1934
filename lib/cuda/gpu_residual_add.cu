/*
 * gpu_residual_add.cu - add numbers to what was left behind on a GPU. A warp takes a stretch: load, add, round once more, store.
 *
 * A block to which only zeros are added is not touched, because rounding it again would only add noise; one whose sum
 * is not finite keeps what it had. What is computed is what frugi_residual_add() does, bit for bit.
 */
#include "cuda/gpu_residual.cuh"

#include "base/philox.h"

#define WARPS 8

/* A bit for every block of a stretch of whose number, known to its lane, that is true. */
template <int BLOCK> static __device__ inline uint32_t blocks_where(bool mine) {
    uint32_t lane = frugi_lane();
    return __reduce_or_sync(FRUGI_ALL_LANES, lane < FRUGI_BLOCKS<BLOCK> && mine ? 1u << lane : 0u);
}

template <int FORMAT, int BLOCK>
static __device__ inline void keep_stretch(const frugi_gpu_keep &p, const frugi_gpu_slice *s, uint32_t b) {
    float x[FRUGI_EACH], left[FRUGI_EACH];
    raw<BLOCK> kept;
    uint32_t length = frugi_length_of<BLOCK>(s, b), lane = frugi_lane(), dice[FRUGI_OWN<BLOCK>];
    frugi_load_block(p.values + (s->begin - p.begin) + (uint64_t)b * BLOCK, length, x);
    uint32_t keep = blocks_where<BLOCK>(largest<BLOCK>(x) != 0);
    if (keep == 0)
        return;
    shelf where = shelf_behind<FORMAT, BLOCK>({p.residual, p.scale}, s->stored + b);
    fetch_residual<FORMAT, BLOCK>(where, length, &kept);
    unpack<FORMAT, BLOCK>(kept, left);
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        if (frugi_place_of(lane, i) < length)
            left[i] = __fadd_rn(left[i], x[i]);
    keep &= blocks_where<BLOCK>(largest<BLOCK>(left) < FRUGI_INF_BITS);
#pragma unroll
    for (int j = 0; j < FRUGI_OWN<BLOCK>; j++)
        dice[j] = frugi_random(p.seed, p.step, s->stored + b + frugi_own_block<BLOCK>(j));
    if (keep != 0)
        save_residual<FORMAT, BLOCK>(where, dice, keep, left);
}

template <int FORMAT, int BLOCK>
static __global__ void __launch_bounds__(32 * WARPS) keep_kernel(const __grid_constant__ frugi_gpu_keep p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.table.stretches; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(p.table, n);
        if (!s->dense)
            keep_stretch<FORMAT, BLOCK>(p, s, (n - s->stretches_before) * FRUGI_BLOCKS<BLOCK>);
    }
}

template <int FORMAT> static void launch(const frugi_gpu_keep *p, uint32_t grid, cudaStream_t stream) {
    if (p->table.block == 64)
        FRUGI_LAUNCH((keep_kernel<FORMAT, 64>), grid, 32 * WARPS, stream, *p);
    else if (p->table.block == 128)
        FRUGI_LAUNCH((keep_kernel<FORMAT, 128>), grid, 32 * WARPS, stream, *p);
    else
        FRUGI_LAUNCH((keep_kernel<FORMAT, 256>), grid, 32 * WARPS, stream, *p);
}

cudaError_t frugi_gpu_keep_launch(const frugi_gpu_keep *p, int processors, cudaStream_t stream) {
    uint32_t wanted = (p->table.stretches + WARPS - 1) / WARPS, most = (uint32_t)processors * 8u;
    uint32_t grid = wanted < most ? wanted : most;
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: launch<FRUGI_RESIDUAL_INT8>(p, grid, stream); break;
    case FRUGI_RESIDUAL_INT4: launch<FRUGI_RESIDUAL_INT4>(p, grid, stream); break;
    case FRUGI_RESIDUAL_BF16: launch<FRUGI_RESIDUAL_BF16>(p, grid, stream); break;
    default: launch<FRUGI_RESIDUAL_F32>(p, grid, stream); break;
    }
    return cudaGetLastError();
}

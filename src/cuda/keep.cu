/*
 * keep.cu - add numbers to what was left behind on a GPU. A warp takes a block: load, add, round once more, store.
 *
 * A block to which only zeros are added is not touched, because rounding it again would only add noise; one whose sum
 * is not finite keeps what it had. What is computed is what frugi_residual_add() does, bit for bit.
 */
#include "cuda/residual.cuh"

#include "common/random.h"

#define WARPS 8

template <int FORMAT>
static __device__ inline void keep_block(const frugi_gpu_keep &p, const frugi_gpu_slice *s, uint32_t b) {
    float x[FRUGI_EACH], left[FRUGI_EACH];
    raw kept;
    uint32_t length = frugi_length_of(s, b), lane = frugi_lane();
    frugi_load_block(p.values + (s->begin - p.begin) + (uint64_t)b * 256, length, x);
    if (largest(x) == 0)
        return;
    shelf where = shelf_behind<FORMAT>({p.residual, p.scale}, s->stored + b);
    fetch_residual<FORMAT>(where, &kept);
    unpack<FORMAT>(kept, left);
#pragma unroll
    for (int i = 0; i < FRUGI_EACH; i++)
        if (frugi_place_of(lane, i) < length)
            left[i] = __fadd_rn(left[i], x[i]);
    if (largest(left) < FRUGI_INF_BITS)
        save_residual<FORMAT>(where, frugi_random(p.seed, p.step, s->stored + b), left);
}

template <int FORMAT>
static __global__ void __launch_bounds__(32 * WARPS) keep_kernel(const __grid_constant__ frugi_gpu_keep p) {
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.table.blocks; n += warps) {
        const frugi_gpu_slice *s = frugi_slice_of(p.table, n);
        if (!s->dense)
            keep_block<FORMAT>(p, s, n - s->blocks_before);
    }
}

cudaError_t frugi_gpu_keep_launch(const frugi_gpu_keep *p, int processors, cudaStream_t stream) {
    uint32_t wanted = (p->table.blocks + WARPS - 1) / WARPS, most = (uint32_t)processors * 8u;
    uint32_t grid = wanted < most ? wanted : most;
    switch (p->residual_format) {
    case FRUGI_RESIDUAL_INT8: FRUGI_LAUNCH(keep_kernel<FRUGI_RESIDUAL_INT8>, grid, 32 * WARPS, stream, *p); break;
    case FRUGI_RESIDUAL_INT4: FRUGI_LAUNCH(keep_kernel<FRUGI_RESIDUAL_INT4>, grid, 32 * WARPS, stream, *p); break;
    case FRUGI_RESIDUAL_BF16: FRUGI_LAUNCH(keep_kernel<FRUGI_RESIDUAL_BF16>, grid, 32 * WARPS, stream, *p); break;
    default: FRUGI_LAUNCH(keep_kernel<FRUGI_RESIDUAL_F32>, grid, 32 * WARPS, stream, *p); break;
    }
    return cudaGetLastError();
}

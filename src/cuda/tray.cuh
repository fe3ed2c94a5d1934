/*
 * tray.cuh - the next block of a gradient and its residual, on their way into shared memory while a warp works on the
 * block before. Loads into registers would take a fifth of those a lane has, and with them a quarter of the warps.
 */
#ifndef FRUGI_TRAY_CUH
#define FRUGI_TRAY_CUH

#include "cuda/residual.cuh"

#include <cuda_pipeline.h>

typedef struct __align__(16) tray {
    float grad[FRUGI_GPU_BLOCK];
    uint32_t left[FRUGI_GPU_BLOCK];
} tray;

/* Where a block and its residual lie. */
typedef struct source {
    const float *grad;
    shelf kept;
} source;

template <int FORMAT>
static __device__ inline source source_of(const frugi_gpu_press &p, const frugi_gpu_slice *s, uint32_t b) {
    return {p.grad + (s->begin - p.begin) + (uint64_t)b * FRUGI_GPU_BLOCK,
            shelf_behind<FORMAT>({p.residual, p.scale}, s->stored + b)};
}

template <int FORMAT> static __device__ inline source source_behind(const source &first) {
    return {first.grad + FRUGI_GPU_BLOCK, shelf_behind<FORMAT>(first.kept, 1)};
}

/** Send for a block; `tray` must have been read by all lanes. Behind `length` elements there will be zeros. */
template <int FORMAT>
static __device__ inline void tray_fill(tray *to, const source &from, uint32_t length) {
    uint32_t lane = frugi_lane();
    if (length == FRUGI_GPU_BLOCK && (reinterpret_cast<uintptr_t>(from.grad) & 15u) == 0) {
        __pipeline_memcpy_async(to->grad + 4 * lane, from.grad + 4 * lane, 16);
        __pipeline_memcpy_async(to->grad + 128 + 4 * lane, from.grad + 128 + 4 * lane, 16);
    } else {
        for (uint32_t at = lane; at < FRUGI_GPU_BLOCK; at += 32) {
            if (at < length)
                __pipeline_memcpy_async(to->grad + at, from.grad + at, 4);
            else
                to->grad[at] = 0.0f;
        }
    }
    const uint32_t each = shelf_bytes<FORMAT>() / 32; /* of a lane */
    unsigned char *left = reinterpret_cast<unsigned char *>(to->left);
    if (each == 32) {
        __pipeline_memcpy_async(left + 16 * lane, from.kept.residual + 16 * lane, 16);
        __pipeline_memcpy_async(left + 512 + 16 * lane, from.kept.residual + 512 + 16 * lane, 16);
    } else if (each > 0) {
        __pipeline_memcpy_async(left + each * lane, from.kept.residual + each * lane, each > 0 ? each : 4);
    }
    __pipeline_commit();
}

/** Wait for a block and take it. */
template <int FORMAT> static __device__ inline void tray_take(const tray *from, raw *r) {
    uint32_t lane = frugi_lane();
    __pipeline_wait_prior(0);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float4 v = *reinterpret_cast<const float4 *>(from->grad + 128 * j + 4 * lane);
        r->grad[4 * j] = v.x, r->grad[4 * j + 1] = v.y, r->grad[4 * j + 2] = v.z, r->grad[4 * j + 3] = v.w;
    }
    take_residual<FORMAT>(reinterpret_cast<const unsigned char *>(from->left), r);
    __syncwarp();
}

#endif

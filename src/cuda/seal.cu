/*
 * seal.cu - checksums of frames that others have sent, and the headers that carry them. A warp takes a part of a frame:
 * crc.cuh has the how.
 */
#include "cuda/crc.cuh"

#include "frugrad.h"

#define WARPS 8
#define CRC_PART 8192u /* bytes of a warp */

typedef struct frames_of {
    const unsigned char *frame[FRUGI_GPU_FRAMES];
} frames_of;

static frames_of frames_from(const unsigned char *const *frame, uint32_t frames) {
    frames_of all = {};
    for (uint32_t i = 0; i < frames; i++)
        all.frame[i] = frame[i];
    return all;
}

static __global__ void __launch_bounds__(32 * WARPS)
    crc_kernel(const __grid_constant__ frames_of all, uint32_t bytes, const frugi_gpu_crc *crc, frugi_gpu_desk *desk) {
    __shared__ uint32_t table[4][256], sum;
    if (threadIdx.x == 0)
        sum = 0;
    frugi_crc_tables(table, crc);
    uint32_t from = FRUGI_GPU_HEADER + (blockIdx.x * WARPS + threadIdx.x / 32) * CRC_PART;
    if (from < bytes) {
        const unsigned char *frame = all.frame[blockIdx.y];
        uint32_t end = bytes - from < CRC_PART ? bytes : from + CRC_PART;
        frugi_track t = {0, from};
        frugi_track_on(&t, table, frame, end);
        uint32_t part = frugi_track_end(t, table, crc, frame, end, bytes);
        if (frugi_lane() == 0)
            atomicXor(&sum, part);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        atomicXor(&desk->crc[blockIdx.y], sum);
}

cudaError_t frugi_gpu_crc_launch(const unsigned char *const *frame, uint32_t frames, uint64_t bytes,
                                 const frugi_gpu_crc *crc, frugi_gpu_desk *desk, cudaStream_t stream) {
    uint64_t body = bytes - FRUGI_GPU_HEADER;
    if (body == 0)
        return cudaSuccess;
    dim3 grid((uint32_t)((body + CRC_PART * WARPS - 1) / (CRC_PART * WARPS)), frames);
    frames_of all = frames_from(frame, frames);
    FRUGI_LAUNCH(crc_kernel, grid, 32 * WARPS, stream, all, (uint32_t)bytes, crc, desk);
    return cudaGetLastError();
}

static __global__ void seal_kernel(const __grid_constant__ frugi_gpu_frame what, unsigned char *frame,
                                   frugi_gpu_desk *desk) {
    frugi_seal(what, frame, desk);
}

cudaError_t frugi_gpu_seal_launch(const frugi_gpu_frame *what, unsigned char *frame, frugi_gpu_desk *desk,
                                  cudaStream_t stream) {
    FRUGI_LAUNCH(seal_kernel, 1, 32, stream, *what, frame, desk);
    return cudaGetLastError();
}

static __global__ void judge_kernel(const __grid_constant__ frugi_gpu_frame what, const __grid_constant__ frames_of all,
                                    frugi_gpu_desk *desk, frugi_gpu_verdict *verdict) {
    const uint32_t *frame = reinterpret_cast<const uint32_t *>(all.frame[blockIdx.x]), lane = frugi_lane();
    bool free =
        lane >= FRUGI_GPU_HEADER / 4 || lane == FRUGI_SOURCE_AT || lane == FRUGI_HELD_AT || lane == FRUGI_CRC_AT;
    bool same =
        __all_sync(FRUGI_ALL_LANES, free || frame[lane] == reinterpret_cast<const uint32_t *>(what.header)[lane]);
    int status = !same ? FRUG_ERR_MISMATCH : FRUG_OK;
    uint32_t body = desk->crc[blockIdx.x];
    if (same && frugi_frame_crc(what, frame[FRUGI_SOURCE_AT], frame[FRUGI_HELD_AT], body) != frame[FRUGI_CRC_AT])
        status = FRUG_ERR_CHECKSUM;
    __syncwarp();
    if (lane == 0)
        desk->crc[blockIdx.x] = 0;
    if (lane == 0 && status != FRUG_OK && atomicCAS(&verdict->status, 0, status) == 0)
        verdict->frame = blockIdx.x;
}

cudaError_t frugi_gpu_judge_launch(const frugi_gpu_frame *what, const frugi_gpu_sum *sum, frugi_gpu_desk *desk,
                                   cudaStream_t stream) {
    frames_of all = frames_from(sum->frame, sum->frames);
    FRUGI_LAUNCH(judge_kernel, sum->frames, 32, stream, *what, all, desk, sum->verdict);
    return cudaGetLastError();
}

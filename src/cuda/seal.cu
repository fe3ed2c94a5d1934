/*
 * seal.cu - checksums of frames on a GPU, and the headers that carry them.
 *
 * A checksum is linear: that of a run of bytes, moved past the bytes behind it, can be added (XOR) to those of the
 * other runs. Runs of 64 bytes are counted from the end of the frame, so that each lies a whole number of runs before
 * it and tables hold the powers to multiply by. Threads sum a run each, thread blocks a page of 256 runs.
 */
#include "cuda/warp.cuh"

#include "frugrad.h"

#define POLYNOMIAL 0x82f63b78u
#define RUN_WORDS  16u
#define PAGE       (256u * 64u)
#define SOURCE_AT  8u /* words of the header */
#define HELD_AT    10u
#define CRC_AT     11u

/* a times b modulo the polynomial, bit 31 holding x^0: crc32c.c. */
static __device__ uint32_t times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (POLYNOMIAL & (0u - (b & 1u)));
    }
    return product;
}

static __device__ uint32_t byte_step(uint32_t state) {
    for (int i = 0; i < 8; i++)
        state = (state >> 1) ^ (POLYNOMIAL & (0u - (state & 1u)));
    return state;
}

/* table[j][v]: what byte v, with j bytes behind it in its word, adds. */
static __device__ void make_tables(uint32_t table[4][256]) {
    uint32_t v = threadIdx.x, state = byte_step(v);
    for (int j = 0; j < 4; j++) {
        table[j][v] = state;
        for (int i = 0; i < 8; i++)
            state = (state >> 1) ^ (POLYNOMIAL & (0u - (state & 1u)));
    }
    __syncthreads();
}

typedef struct frames_of {
    const unsigned char *frame[FRUGI_GPU_FRAMES];
} frames_of;

static __global__ void crc_kernel(const __grid_constant__ frames_of all, uint64_t words, const frugi_gpu_powers *powers,
                                  frugi_gpu_desk *desk) {
    __shared__ uint32_t table[4][256];
    make_tables(table);
    const uint32_t *body = reinterpret_cast<const uint32_t *>(all.frame[blockIdx.y] + FRUGI_GPU_HEADER);
    uint64_t run = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    uint64_t end = words > run * RUN_WORDS ? words - run * RUN_WORDS : 0, from = end > RUN_WORDS ? end - RUN_WORDS : 0;
    uint32_t state = 0;
    for (uint64_t i = from; i < end; i++) {
        state ^= body[i];
        state =
            table[3][state & 255u] ^ table[2][state >> 8 & 255u] ^ table[1][state >> 16 & 255u] ^ table[0][state >> 24];
    }
    state = __reduce_xor_sync(FRUGI_ALL_LANES, times(powers->run[threadIdx.x], state));
    __shared__ uint32_t part[8];
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = state;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t page = 0;
        for (int i = 0; i < 8; i++)
            page ^= part[i];
        page = times(powers->page[blockIdx.x & 255u], page);
        atomicXor(&desk->crc[blockIdx.y], times(powers->book[blockIdx.x >> 8], page));
    }
}

cudaError_t frugi_gpu_crc_launch(const unsigned char *const *frame, uint32_t frames, uint64_t bytes,
                                 const frugi_gpu_powers *powers, frugi_gpu_desk *desk, cudaStream_t stream) {
    frames_of all;
    uint64_t body = bytes - FRUGI_GPU_HEADER;
    for (uint32_t i = 0; i < frames; i++)
        all.frame[i] = frame[i];
    if (body == 0)
        return cudaSuccess;
    dim3 grid((uint32_t)((body + PAGE - 1) / PAGE), frames);
    FRUGI_LAUNCH(crc_kernel, grid, 256, stream, all, body / 4, powers, desk);
    return cudaGetLastError();
}

/* The checksum of a whole frame, from what its header says and the sum over what follows. */
static __device__ uint32_t frame_crc(const frugi_gpu_frame &what, uint32_t source, uint32_t held, uint32_t body) {
    return ~(what.base ^ times(what.source_power, source ^ what.source) ^ times(what.held_power, held) ^ body);
}

static __global__ void seal_kernel(const __grid_constant__ frugi_gpu_frame what, unsigned char *frame,
                                   const frugi_gpu_desk *desk) {
    uint32_t *to = reinterpret_cast<uint32_t *>(frame), lane = frugi_lane();
    uint32_t crc = frame_crc(what, what.source, desk->held, desk->crc[0]);
    if (lane < FRUGI_GPU_HEADER / 4)
        to[lane] = lane == HELD_AT ? desk->held : lane == CRC_AT ? crc : reinterpret_cast<const uint32_t *>(what.header)[lane];
}

cudaError_t frugi_gpu_seal_launch(const frugi_gpu_frame *what, unsigned char *frame, const frugi_gpu_desk *desk,
                                  cudaStream_t stream) {
    FRUGI_LAUNCH(seal_kernel, 1, 32, stream, *what, frame, desk);
    return cudaGetLastError();
}

static __global__ void judge_kernel(const __grid_constant__ frugi_gpu_frame what, const __grid_constant__ frames_of all,
                                    const frugi_gpu_desk *desk, frugi_gpu_verdict *verdict) {
    const uint32_t *frame = reinterpret_cast<const uint32_t *>(all.frame[blockIdx.x]), lane = frugi_lane();
    bool free = lane >= FRUGI_GPU_HEADER / 4 || lane == SOURCE_AT || lane == HELD_AT || lane == CRC_AT;
    bool same = __all_sync(FRUGI_ALL_LANES, free || frame[lane] == reinterpret_cast<const uint32_t *>(what.header)[lane]);
    int status = !same ? FRUG_ERR_MISMATCH : FRUG_OK;
    if (same && frame_crc(what, frame[SOURCE_AT], frame[HELD_AT], desk->crc[blockIdx.x]) != frame[CRC_AT])
        status = FRUG_ERR_CHECKSUM;
    if (lane == 0 && status != FRUG_OK && atomicCAS(&verdict->status, 0, status) == 0)
        verdict->frame = blockIdx.x;
}

cudaError_t frugi_gpu_judge_launch(const frugi_gpu_frame *what, const frugi_gpu_sum *sum, const frugi_gpu_desk *desk,
                                   cudaStream_t stream) {
    frames_of all;
    for (uint32_t i = 0; i < sum->frames; i++)
        all.frame[i] = sum->frame[i];
    FRUGI_LAUNCH(judge_kernel, sum->frames, 32, stream, *what, all, desk, sum->verdict);
    return cudaGetLastError();
}

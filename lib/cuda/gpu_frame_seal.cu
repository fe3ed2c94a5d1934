/*
 * gpu_frame_seal.cu - checksums of frames that others have sent, and the headers that carry them.
 *
 * A warp takes a part of a frame, in groups of 32 words, a word to a lane. Let y be what moves a checksum past a group,
 * x^1024. Squares of sums are sums of squares modulo two, so whatever multiple of the checksum's polynomial P(x) there
 * is, the same terms in y are a multiple of P(x), too, and add nothing to a checksum. One of few terms is
 *
 *   y^40 + y^38 + y^36 + y^35 + y^33 + y^30 + y^27 + y^20 + y^13 + y^7 + y + 1
 *
 * (no other up to y^40 has only twelve). A lane divides its words, as a polynomial in y, by that: each word takes six
 * instructions and no look into a table. Words of the quotient are held in 40 registers; what is left in the last 40
 * groups is the remainder, which goes on by the tables of gpu_crc32c.cuh.
 */
#include "cuda/gpu_crc32c.cuh"

#include "frugrad.h"

#define WARPS 8
#define CRC_AHEAD 10 /* words of a lane on the way, while as many are taken */
#define CRC_LEAST 3  /* thread blocks of a multiprocessor that registers must do for */
#define WINDOW    40
#define STRETCH   (WINDOW * FRUGI_GROUP) /* bytes of a warp */

typedef struct frames_of {
    const unsigned char *frame[FRUGI_GPU_FRAMES];
} frames_of;

static frames_of frames_from(const unsigned char *const *frame, uint32_t frames) {
    frames_of all = {};
    for (uint32_t i = 0; i < frames; i++)
        all.frame[i] = frame[i];
    return all;
}

/*
 * What quotients add to the word at `at`, of those that lie more than `least` groups back. The last of them is added
 * last: it may still be on the way.
 */
static __device__ inline uint32_t fed_back(const uint32_t quotient[WINDOW], int at, int least) {
    const int back[] = {40, 39, 33, 27, 20, 13, 10, 7, 5, 4, 2};
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < 11; i++)
        if (back[i] > least)
            sum ^= quotient[(at + WINDOW - back[i]) % WINDOW];
    return sum;
}

static __device__ inline void fetch(const unsigned int *from, uint32_t word[CRC_AHEAD]) {
#pragma unroll
    for (int i = 0; i < CRC_AHEAD; i++)
        word[i] = __ldcg(from + 32 * i);
}

/* Go through as many whole stretches as lie before `end`. */
static __device__ inline void divide_on(frugi_track *t, const uint32_t table[4][256], const unsigned char *frame,
                                        uint32_t end) {
    const unsigned int *from = reinterpret_cast<const unsigned int *>(frame + t->at) + frugi_lane();
    uint32_t stretches = end > t->at ? (end - t->at) / STRETCH : 0;
    uint32_t quotient[WINDOW] = {}, word[CRC_AHEAD], next[CRC_AHEAD];
    if (stretches == 0)
        return;
    quotient[WINDOW - 1] = t->state;
    fetch(from, next);
#pragma unroll 1
    for (uint32_t left = stretches; left > 1; left--) {
#pragma unroll
        for (int at = 0; at < WINDOW; at++) {
            if (at % CRC_AHEAD == 0) {
#pragma unroll
                for (int i = 0; i < CRC_AHEAD; i++)
                    word[i] = next[i];
                fetch(from += 32 * CRC_AHEAD, next);
            }
            quotient[at] = word[at % CRC_AHEAD] ^ fed_back(quotient, at, 0);
        }
    }
    t->state = 0;
#pragma unroll
    for (int at = 0; at < WINDOW; at++) { /* the remainder: quotients end here */
        if (at % CRC_AHEAD == 0) {
#pragma unroll
            for (int i = 0; i < CRC_AHEAD; i++)
                word[i] = next[i];
            if (at + CRC_AHEAD < WINDOW)
                fetch(from += 32 * CRC_AHEAD, next);
        }
        t->state = frugi_crc_step(table, t->state) ^ word[at % CRC_AHEAD] ^ fed_back(quotient, at, at);
    }
    t->at += stretches * STRETCH;
}

/*
 * Where a part begins. Groups are lines of the cache; words between a frame's header and the first line are the end of
 * a group whose other words count as zero.
 */
static __device__ inline frugi_track begin_part(const unsigned char *frame, uint32_t part, uint32_t run, uint32_t bytes,
                                                uint32_t *end) {
    uint32_t lead = (0u - (uint32_t) reinterpret_cast<uintptr_t>(frame + FRUGI_GPU_HEADER)) % FRUGI_GROUP;
    uint32_t line = FRUGI_GPU_HEADER + lead, behind = lead + 4 * frugi_lane();
    frugi_track t = {0, line + part * run};
    *end = bytes < t.at + run ? bytes : t.at + run;
    if (part > 0)
        return t;
    if (line > bytes)
        t.at = FRUGI_GPU_HEADER;
    else if (behind >= FRUGI_GROUP)
        t.state = __ldcg(reinterpret_cast<const unsigned int *>(frame + FRUGI_GPU_HEADER + behind - FRUGI_GROUP));
    return t;
}

static __global__ void __launch_bounds__(32 * WARPS, CRC_LEAST)
    crc_kernel(const __grid_constant__ frames_of all, uint32_t bytes, uint32_t run, const frugi_gpu_crc *crc,
               frugi_gpu_desk *desk) {
    __shared__ uint32_t table[4][256], sum;
    if (threadIdx.x == 0)
        sum = 0;
    frugi_crc_tables(table, crc);
    const unsigned char *frame = all.frame[blockIdx.y];
    uint32_t part = blockIdx.x * WARPS + threadIdx.x / 32, end;
    frugi_track t = begin_part(frame, part, run, bytes, &end);
    if (part == 0 || t.at < bytes) {
        divide_on(&t, table, frame, end);
        frugi_track_on(&t, table, frame, end);
        uint32_t of_part = frugi_track_end(t, table, crc, frame, end, bytes);
        if (frugi_lane() == 0)
            atomicXor(&sum, of_part);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        atomicXor(&desk->crc[blockIdx.y], sum);
}

/* Every warp that can be there at a time gets a part: one end for each, by tables, is all that parts cost. */
cudaError_t frugi_gpu_crc_launch(const unsigned char *const *frame, uint32_t frames, uint64_t bytes,
                                 const frugi_gpu_crc *crc, frugi_gpu_desk *desk, int processors, cudaStream_t stream) {
    uint64_t body = bytes - FRUGI_GPU_HEADER;
    if (body == 0)
        return cudaSuccess;
    uint32_t blocks = (uint32_t)processors * CRC_LEAST / frames, parts = WARPS * (blocks > 0 ? blocks : 1);
    uint64_t stretches = (body + (uint64_t)parts * STRETCH - 1) / ((uint64_t)parts * STRETCH),
             run = stretches * STRETCH;
    dim3 grid((uint32_t)((body + run * WARPS - 1) / (run * WARPS)), frames);
    frames_of all = frames_from(frame, frames);
    FRUGI_LAUNCH(crc_kernel, grid, 32 * WARPS, stream, all, (uint32_t)bytes, (uint32_t)run, crc, desk);
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

/*
 * gpu_frame_checksum.cu - compute the checksums of received frames, check and write frame headers.
 *
 * A warp processes a range of a frame, in groups of 32 words, one word per lane. Let y = x^1024 be the shift of a
 * checksum past one group. Modulo two, squares of sums are sums of squares, so for every multiple of the CRC polynomial
 * P(x) the same terms in y are a multiple of P(x), too, and contribute nothing to a checksum. One with few terms is
 *
 *   y^40 + y^38 + y^36 + y^35 + y^33 + y^30 + y^27 + y^20 + y^13 + y^7 + y + 1
 *
 * (no other up to y^40 has only twelve). A lane divides its words, as a polynomial in y, by that: each word costs six
 * instructions and no table lookup. Words of the quotient are in 40 registers; the last 40 groups hold the remainder,
 * which is processed with the tables of gpu_crc32c.cuh.
 */
#include "cuda/gpu_crc32c.cuh"

#include "frugrad.h"

#define WARPS          8
#define CRC_PREFETCH   10 /* words that a lane loads ahead */
#define CRC_MIN_BLOCKS 3  /* thread blocks per multiprocessor that the register limit must allow */
#define WINDOW         40
#define WINDOW_BYTES   (WINDOW * FRUGI_CRC_GROUP) /* bytes of a warp */

typedef struct frame_list {
    const unsigned char *frame[FRUGI_GPU_FRAMES];
} frame_list;

static frame_list make_frame_list(const unsigned char *const *frame, uint32_t frames) {
    frame_list all = {};
    for (uint32_t i = 0; i < frames; i++)
        all.frame[i] = frame[i];
    return all;
}

/*
 * What quotients contribute to the word at `at`, of those more than `least` groups back. The most recent quotient is
 * added last: it may not be available yet.
 */
static __device__ inline uint32_t feedback_terms(const uint32_t quotient[WINDOW], int at, int least) {
    const int back[] = {40, 39, 33, 27, 20, 13, 10, 7, 5, 4, 2};
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < 11; i++)
        if (back[i] > least)
            sum ^= quotient[(at + WINDOW - back[i]) % WINDOW];
    return sum;
}

static __device__ inline void load_words(const unsigned int *from, uint32_t word[CRC_PREFETCH]) {
#pragma unroll
    for (int i = 0; i < CRC_PREFETCH; i++)
        word[i] = __ldcg(from + 32 * i);
}

/* Process all whole windows before `end`. */
static __device__ inline void divide_windows(frugi_crc_cursor *t, const uint32_t table[4][256],
                                             const unsigned char *frame, uint32_t end) {
    const unsigned int *from = reinterpret_cast<const unsigned int *>(frame + t->at) + frugi_lane();
    uint32_t tiles = end > t->at ? (end - t->at) / WINDOW_BYTES : 0;
    uint32_t quotient[WINDOW] = {}, word[CRC_PREFETCH], next[CRC_PREFETCH];
    if (tiles == 0)
        return;
    quotient[WINDOW - 1] = t->state;
    load_words(from, next);
#pragma unroll 1
    for (uint32_t left = tiles; left > 1; left--) {
#pragma unroll
        for (int at = 0; at < WINDOW; at++) {
            if (at % CRC_PREFETCH == 0) {
#pragma unroll
                for (int i = 0; i < CRC_PREFETCH; i++)
                    word[i] = next[i];
                load_words(from += 32 * CRC_PREFETCH, next);
            }
            quotient[at] = word[at % CRC_PREFETCH] ^ feedback_terms(quotient, at, 0);
        }
    }
    t->state = 0;
#pragma unroll
    for (int at = 0; at < WINDOW; at++) { /* the remainder: no more quotients */
        if (at % CRC_PREFETCH == 0) {
#pragma unroll
            for (int i = 0; i < CRC_PREFETCH; i++)
                word[i] = next[i];
            if (at + CRC_PREFETCH < WINDOW)
                load_words(from += 32 * CRC_PREFETCH, next);
        }
        t->state = frugi_crc_step(table, t->state) ^ word[at % CRC_PREFETCH] ^ feedback_terms(quotient, at, at);
    }
    t->at += tiles * WINDOW_BYTES;
}

/*
 * Start of a range. Groups are cache lines; words between the frame header and the first line are the end of a group
 * whose other words count as zero.
 */
static __device__ inline frugi_crc_cursor begin_range(const unsigned char *frame, uint32_t range, uint32_t range_bytes,
                                                      uint32_t bytes, uint32_t *end) {
    uint32_t lead = (0u - (uint32_t) reinterpret_cast<uintptr_t>(frame + FRUGI_GPU_HEADER)) % FRUGI_CRC_GROUP;
    uint32_t line = FRUGI_GPU_HEADER + lead, group_end = lead + 4 * frugi_lane();
    frugi_crc_cursor t = {0, line + range * range_bytes};
    *end = bytes < t.at + range_bytes ? bytes : t.at + range_bytes;
    if (range > 0)
        return t;
    if (line > bytes)
        t.at = FRUGI_GPU_HEADER;
    else if (group_end >= FRUGI_CRC_GROUP)
        t.state =
            __ldcg(reinterpret_cast<const unsigned int *>(frame + FRUGI_GPU_HEADER + group_end - FRUGI_CRC_GROUP));
    return t;
}

static __global__ void __launch_bounds__(32 * WARPS, CRC_MIN_BLOCKS)
    crc_kernel(const __grid_constant__ frame_list all, uint32_t bytes, uint32_t range_bytes, const frugi_gpu_crc *crc,
               frugi_gpu_workspace *workspace) {
    __shared__ uint32_t table[4][256], sum;
    if (threadIdx.x == 0)
        sum = 0;
    frugi_crc_load_tables(table, crc);
    const unsigned char *frame = all.frame[blockIdx.y];
    uint32_t range = blockIdx.x * WARPS + threadIdx.x / 32, end;
    frugi_crc_cursor t = begin_range(frame, range, range_bytes, bytes, &end);
    if (range == 0 || t.at < bytes) {
        divide_windows(&t, table, frame, end);
        frugi_crc_advance(&t, table, frame, end);
        uint32_t range_crc = frugi_crc_finish(t, table, crc, frame, end, bytes);
        if (frugi_lane() == 0)
            atomicXor(&sum, range_crc);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        atomicXor(&workspace->crc[blockIdx.y], sum);
}

/* Every warp that can be resident gets a range: the only cost of a range is one table-driven finish. */
cudaError_t frugi_gpu_crc_launch(const unsigned char *const *frame, uint32_t frames, uint64_t bytes,
                                 const frugi_gpu_crc *crc, frugi_gpu_workspace *workspace, int processors,
                                 cudaStream_t stream) {
    uint64_t body = bytes - FRUGI_GPU_HEADER;
    if (body == 0)
        return cudaSuccess;
    uint32_t blocks = (uint32_t)processors * CRC_MIN_BLOCKS / frames, ranges = WARPS * (blocks > 0 ? blocks : 1);
    uint64_t tiles = (body + (uint64_t)ranges * WINDOW_BYTES - 1) / ((uint64_t)ranges * WINDOW_BYTES),
             range_bytes = tiles * WINDOW_BYTES;
    dim3 grid((uint32_t)((body + range_bytes * WARPS - 1) / (range_bytes * WARPS)), frames);
    frame_list all = make_frame_list(frame, frames);
    FRUGI_LAUNCH(crc_kernel, grid, 32 * WARPS, stream, all, (uint32_t)bytes, (uint32_t)range_bytes, crc, workspace);
    return cudaGetLastError();
}

static __global__ void frame_header_kernel(const __grid_constant__ frugi_gpu_frame_header frame_header,
                                           unsigned char *frame, frugi_gpu_workspace *workspace) {
    frugi_write_frame_header(frame_header, frame, workspace);
}

cudaError_t frugi_gpu_frame_header_launch(const frugi_gpu_frame_header *frame_header, unsigned char *frame,
                                          frugi_gpu_workspace *workspace, cudaStream_t stream) {
    FRUGI_LAUNCH(frame_header_kernel, 1, 32, stream, *frame_header, frame, workspace);
    return cudaGetLastError();
}

static __global__ void check_frames_kernel(const __grid_constant__ frugi_gpu_frame_header frame_header,
                                           const __grid_constant__ frame_list all, frugi_gpu_workspace *workspace,
                                           frugi_gpu_error *error) {
    const uint32_t *frame = reinterpret_cast<const uint32_t *>(all.frame[blockIdx.x]), lane = frugi_lane();
    bool ignored =
        lane >= FRUGI_GPU_HEADER / 4 || lane == FRUGI_SOURCE_AT || lane == FRUGI_SKIPPED_AT || lane == FRUGI_CRC_AT;
    bool same = __all_sync(FRUGI_ALL_LANES,
                           ignored || frame[lane] == reinterpret_cast<const uint32_t *>(frame_header.bytes)[lane]);
    int status = !same ? FRUG_ERR_MISMATCH : FRUG_OK;
    uint32_t body = workspace->crc[blockIdx.x];
    if (same &&
        frugi_frame_crc(frame_header, frame[FRUGI_SOURCE_AT], frame[FRUGI_SKIPPED_AT], body) != frame[FRUGI_CRC_AT])
        status = FRUG_ERR_CHECKSUM;
    __syncwarp();
    if (lane == 0)
        workspace->crc[blockIdx.x] = 0;
    if (lane == 0 && status != FRUG_OK && atomicCAS(&error->status, 0, status) == 0)
        error->frame = blockIdx.x;
}

cudaError_t frugi_gpu_check_frames_launch(const frugi_gpu_frame_header *frame_header, const frugi_gpu_sum_args *sum,
                                          frugi_gpu_workspace *workspace, cudaStream_t stream) {
    frame_list all = make_frame_list(sum->frame, sum->frames);
    FRUGI_LAUNCH(check_frames_kernel, sum->frames, 32, stream, *frame_header, all, workspace, sum->error);
    return cudaGetLastError();
}

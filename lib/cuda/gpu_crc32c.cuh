/*
 * gpu_crc32c.cuh - CRC-32C of frames, computed by warps, and the frame header that carries it.
 *
 * A CRC is linear: the CRC of a range of bytes, shifted past the bytes after it, can be combined by XOR with those of
 * other ranges, and zero bytes contribute nothing. A warp reads its bytes in groups of 32 words, one word per lane.
 * Each lane has the CRC of the words it has read, shifted by one group per step with tables in shared memory. At the
 * end the lanes are combined, and shifted to the end of the frame, with tables that the host computed (gpu_launch.h).
 */
#ifndef FRUGI_GPU_CRC32C_CUH
#define FRUGI_GPU_CRC32C_CUH

#include "cuda/gpu_warp.cuh"

#define FRUGI_POLYNOMIAL 0x82f63b78u
#define FRUGI_CRC_GROUP  128u /* bytes */
#define FRUGI_SOURCE_AT  8u   /* word offsets in the frame header */
#define FRUGI_SKIPPED_AT 10u
#define FRUGI_CRC_AT     11u

/** Copy the table of steps to shared memory; call with all threads of the block. */
template <uint32_t THREADS = 256>
static __device__ inline void frugi_crc_load_tables(uint32_t table[4][256], const frugi_gpu_crc *crc) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < 1024; i += THREADS)
        table[i / 256][i % 256] = crc->step[i / 256][i % 256];
    __syncthreads();
}

static __device__ inline uint32_t frugi_crc_step(const uint32_t table[4][256], uint32_t state) {
    return table[0][state & 255u] ^ table[1][state >> 8 & 255u] ^ table[2][state >> 16 & 255u] ^ table[3][state >> 24];
}

/** State of a checksum over some bytes of a frame. */
typedef struct frugi_crc_cursor {
    uint32_t state;
    uint32_t at; /* next byte, in the frame; not a multiple of 4 only at the start */
} frugi_crc_cursor;

/** Bytes from .. to - 1 of a word; the others, which another warp may be writing, count as zero. */
static __device__ __noinline__ uint32_t frugi_crc_load_partial(const unsigned char *frame, uint32_t from, uint32_t to) {
    uint32_t word = 0;
    for (uint32_t at = from; at < to; at++)
        word |= (uint32_t)__ldcg(frame + at) << 8 * (at & 3u);
    return word;
}

/** This lane's word of the group at `at`, without the bytes before `at`. */
static __device__ inline uint32_t frugi_crc_load_word(const unsigned char *frame, uint32_t at) {
    uint32_t lane = frugi_lane(), from = at & ~3u;
    if (lane == 0 && from != at)
        return frugi_crc_load_partial(frame, at, from + 4);
    return __ldcg(reinterpret_cast<const unsigned int *>(frame + from) + lane);
}

/** Process all whole groups before `end`. The bytes must have been written by this warp or be constant. */
static __device__ inline void frugi_crc_advance(frugi_crc_cursor *t, const uint32_t table[4][256],
                                                const unsigned char *frame, uint32_t end) {
#pragma unroll 1
    for (; (t->at & ~3u) + 4 * FRUGI_CRC_GROUP <= end; t->at = (t->at & ~3u) + 4 * FRUGI_CRC_GROUP) {
        uint32_t word[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            word[i] = frugi_crc_load_word(frame, i ? (t->at & ~3u) + i * FRUGI_CRC_GROUP : t->at);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            t->state = frugi_crc_step(table, t->state) ^ word[i];
    }
#pragma unroll 1
    for (; (t->at & ~3u) + FRUGI_CRC_GROUP <= end; t->at = (t->at & ~3u) + FRUGI_CRC_GROUP)
        t->state = frugi_crc_step(table, t->state) ^ frugi_crc_load_word(frame, t->at);
}

/** A checksum, the same in all lanes, shifted past so many words. */
static __device__ inline uint32_t frugi_crc_shift_words(const frugi_gpu_crc *crc, uint32_t state, uint32_t words) {
    uint32_t column[7], lane = frugi_lane();
#pragma unroll
    for (int j = 0; j < 7; j++)
        column[j] = crc->power[j][words >> 4 * j & 15u][lane];
#pragma unroll
    for (int j = 0; j < 7; j++)
        state = __reduce_xor_sync(FRUGI_ALL_LANES, state >> lane & 1u ? column[j] : 0u);
    return state;
}

/**
 * Combine the checksums of all lanes, of which the first `rest` have read one word more than the others, and shift the
 * result past the words after them.
 */
static __device__ inline uint32_t frugi_crc_combine_lanes(const frugi_gpu_crc *crc, uint32_t state, uint32_t rest,
                                                          uint32_t words_after) {
    uint32_t position = (frugi_lane() - rest) & 31u, sum = 0; /* the last word read is the last lane's */
#pragma unroll 8
    for (int i = 0; i < 32; i++)
        sum ^= state >> i & 1u ? crc->lane[i][position] : 0u;
    return frugi_crc_shift_words(crc, __reduce_xor_sync(FRUGI_ALL_LANES, sum), words_after);
}

/** Process the rest, less than a group; returns the contribution of all bytes to the checksum of a frame of `bytes`. */
static __device__ __noinline__ uint32_t frugi_crc_finish(frugi_crc_cursor t, const uint32_t table[4][256],
                                                         const frugi_gpu_crc *crc, const unsigned char *frame,
                                                         uint32_t end, uint32_t bytes) {
    uint32_t from = t.at & ~3u, rest = end > from ? (end - from + 3) / 4 : 0, lane = frugi_lane();
    if (lane < rest) {
        uint32_t first = lane == 0 ? t.at : from + 4 * lane, after = from + 4 * lane + 4;
        uint32_t word = after > end ? frugi_crc_load_partial(frame, first, end) : frugi_crc_load_word(frame, t.at);
        t.state = frugi_crc_step(table, t.state) ^ word;
    }
    return frugi_crc_combine_lanes(crc, t.state, rest, (bytes - from) / 4 - rest);
}

/* a times b modulo the polynomial, bit 31 being x^0: see crc32c.c. */
static __device__ __noinline__ uint32_t frugi_crc_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (FRUGI_POLYNOMIAL & (0u - (b & 1u)));
    }
    return product;
}

/** The checksum of a whole frame, from the fields of its header and the checksum of its body. */
static __device__ inline uint32_t frugi_frame_crc(const frugi_gpu_frame_header &frame_header, uint32_t source,
                                                  uint32_t skipped, uint32_t body) {
    return ~(frame_header.base ^ frugi_crc_multiply(frame_header.source_power, source ^ frame_header.source) ^
             frugi_crc_multiply(frame_header.skipped_power, skipped) ^ body);
}

/** Write a frame's header, and clear the workspace for the next one. Call with one warp. */
static __device__ inline void frugi_write_frame_header(const frugi_gpu_frame_header &frame_header, unsigned char *frame,
                                                       frugi_gpu_workspace *workspace) {
    uint32_t *to = reinterpret_cast<uint32_t *>(frame), lane = frugi_lane();
    uint32_t skipped = __ldcg(&workspace->skipped),
             crc = frugi_frame_crc(frame_header, frame_header.source, skipped, __ldcg(&workspace->crc[0]));
    if (lane < FRUGI_GPU_HEADER / 4)
        to[lane] = lane == FRUGI_SKIPPED_AT ? skipped
                   : lane == FRUGI_CRC_AT   ? crc
                                            : reinterpret_cast<const uint32_t *>(frame_header.bytes)[lane];
    __syncwarp();
    if (lane == 0)
        workspace->skipped = workspace->crc[0] = workspace->done = 0;
}

#endif

/*
 * gpu_crc32c.cuh - checksums by a warp, and the headers that carry them.
 *
 * A checksum is linear: that of any bytes, moved past what lies behind them, can be added (XOR) to those of the others,
 * and bytes that count as zero add nothing. A warp goes through its bytes in groups of 32 words, a word to a lane. Each
 * lane keeps the checksum of the words it has met, moved by a group from one to the next with tables in shared memory;
 * at the end lanes are brought together, and moved to the end of the frame, with tables of the host's (gpu_launch.h).
 */
#ifndef FRUGI_CRC_CUH
#define FRUGI_CRC_CUH

#include "cuda/gpu_warp.cuh"

#define FRUGI_POLYNOMIAL 0x82f63b78u
#define FRUGI_GROUP      128u /* bytes */
#define FRUGI_SOURCE_AT  8u   /* words of a frame's header */
#define FRUGI_HELD_AT    10u
#define FRUGI_CRC_AT     11u

/** Copy the table of steps; all threads of a block of 256 must. */
static __device__ inline void frugi_crc_tables(uint32_t table[4][256], const frugi_gpu_crc *crc) {
#pragma unroll
    for (int j = 0; j < 4; j++)
        table[j][threadIdx.x] = crc->step[j][threadIdx.x];
    __syncthreads();
}

static __device__ inline uint32_t frugi_crc_step(const uint32_t table[4][256], uint32_t state) {
    return table[0][state & 255u] ^ table[1][state >> 8 & 255u] ^ table[2][state >> 16 & 255u] ^ table[3][state >> 24];
}

/** Some bytes of a frame, on the way through them. */
typedef struct frugi_track {
    uint32_t state;
    uint32_t at; /* where to go on, in the frame; no multiple of four only at the beginning */
} frugi_track;

/** The bytes from .. to - 1 of a word, with zeros for the others, which another warp may be writing. */
static __device__ __noinline__ uint32_t frugi_part_word(const unsigned char *frame, uint32_t from, uint32_t to) {
    uint32_t word = 0;
    for (uint32_t at = from; at < to; at++)
        word |= (uint32_t)__ldcg(frame + at) << 8 * (at & 3u);
    return word;
}

/** This lane's word of the group at `at`, without bytes before it. */
static __device__ inline uint32_t frugi_track_word(const unsigned char *frame, uint32_t at) {
    uint32_t lane = frugi_lane(), from = at & ~3u;
    if (lane == 0 && from != at)
        return frugi_part_word(frame, at, from + 4);
    return __ldcg(reinterpret_cast<const unsigned int *>(frame + from) + lane);
}

/** Go through all whole groups of the bytes before `end`, which this warp has written or nobody writes. */
static __device__ inline void frugi_track_on(frugi_track *t, const uint32_t table[4][256], const unsigned char *frame,
                                             uint32_t end) {
#pragma unroll 1
    for (; (t->at & ~3u) + 4 * FRUGI_GROUP <= end; t->at = (t->at & ~3u) + 4 * FRUGI_GROUP) {
        uint32_t word[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            word[i] = frugi_track_word(frame, i ? (t->at & ~3u) + i * FRUGI_GROUP : t->at);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            t->state = frugi_crc_step(table, t->state) ^ word[i];
    }
#pragma unroll 1
    for (; (t->at & ~3u) + FRUGI_GROUP <= end; t->at = (t->at & ~3u) + FRUGI_GROUP)
        t->state = frugi_crc_step(table, t->state) ^ frugi_track_word(frame, t->at);
}

/** A checksum, the same in all lanes, moved past as many words. */
static __device__ inline uint32_t frugi_crc_move(const frugi_gpu_crc *crc, uint32_t state, uint32_t words) {
    uint32_t column[7], lane = frugi_lane();
#pragma unroll
    for (int j = 0; j < 7; j++)
        column[j] = crc->power[j][words >> 4 * j & 15u][lane];
#pragma unroll
    for (int j = 0; j < 7; j++)
        state = __reduce_xor_sync(FRUGI_ALL_LANES, state >> lane & 1u ? column[j] : 0u);
    return state;
}

/** What lanes have met, the first `rest` of them a word more than the others, with so many words behind, as one. */
static __device__ inline uint32_t frugi_crc_end(const frugi_gpu_crc *crc, uint32_t state, uint32_t rest,
                                                uint32_t behind) {
    uint32_t place = (frugi_lane() - rest) & 31u, sum = 0; /* the last word met is the last lane's */
#pragma unroll 8
    for (int i = 0; i < 32; i++)
        sum ^= state >> i & 1u ? crc->lane[i][place] : 0u;
    return frugi_crc_move(crc, __reduce_xor_sync(FRUGI_ALL_LANES, sum), behind);
}

/** Take the rest, less than a group; what all these bytes add to the checksum of a frame of so many. */
static __device__ __noinline__ uint32_t frugi_track_end(frugi_track t, const uint32_t table[4][256],
                                                        const frugi_gpu_crc *crc, const unsigned char *frame,
                                                        uint32_t end, uint32_t bytes) {
    uint32_t from = t.at & ~3u, rest = end > from ? (end - from + 3) / 4 : 0, lane = frugi_lane();
    if (lane < rest) {
        uint32_t first = lane == 0 ? t.at : from + 4 * lane, after = from + 4 * lane + 4;
        uint32_t word = after > end ? frugi_part_word(frame, first, end) : frugi_track_word(frame, t.at);
        t.state = frugi_crc_step(table, t.state) ^ word;
    }
    return frugi_crc_end(crc, t.state, rest, (bytes - from) / 4 - rest);
}

/* a times b modulo the polynomial, bit 31 holding x^0: crc32c.c. */
static __device__ __noinline__ uint32_t frugi_crc_times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (FRUGI_POLYNOMIAL & (0u - (b & 1u)));
    }
    return product;
}

/** The checksum of a whole frame, from what its header says and the sum over what follows. */
static __device__ inline uint32_t frugi_frame_crc(const frugi_gpu_frame &what, uint32_t source, uint32_t held,
                                                  uint32_t body) {
    return ~(what.base ^ frugi_crc_times(what.source_power, source ^ what.source) ^
             frugi_crc_times(what.held_power, held) ^ body);
}

/** Write a frame's header, and clear the desk for the next one. One warp does. */
static __device__ inline void frugi_seal(const frugi_gpu_frame &what, unsigned char *frame, frugi_gpu_desk *desk) {
    uint32_t *to = reinterpret_cast<uint32_t *>(frame), lane = frugi_lane();
    uint32_t held = __ldcg(&desk->held), crc = frugi_frame_crc(what, what.source, held, __ldcg(&desk->crc[0]));
    if (lane < FRUGI_GPU_HEADER / 4)
        to[lane] = lane == FRUGI_HELD_AT  ? held
                   : lane == FRUGI_CRC_AT ? crc
                                          : reinterpret_cast<const uint32_t *>(what.header)[lane];
    __syncwarp();
    if (lane == 0)
        desk->held = desk->crc[0] = desk->done = 0;
}

#endif

/*
 * gpu_writer.cuh - an array of a section as a warp writes it: block after block, some bytes at a time.
 *
 * Bytes are put into shared memory, at any place and by any lane. As soon as there are 128 of them they go to the
 * frame, a word from each lane, and into the checksum on the way. Writing entries to where they belong in the frame,
 * and reading it again for the checksum, took up to a sixth of all the time.
 */
#ifndef FRUGI_PEN_CUH
#define FRUGI_PEN_CUH

#include "cuda/gpu_crc32c.cuh"

/** Words of shared memory for a pen that is handed at most so many bytes at a time: whole groups, as they are moved. */
#define FRUGI_PEN_WORDS(bytes) (((FRUGI_GROUP - 1u + (bytes)) / FRUGI_GROUP + 1u) * (FRUGI_GROUP / 4u))

typedef struct frugi_pen {
    uint32_t state; /* of the checksum, this lane's */
    uint32_t at;    /* in the frame: what comes next; no multiple of four only at the beginning */
    uint32_t fill;  /* bytes that wait in shared memory, from the beginning of the word that `at` is in */
} frugi_pen;

/** Begin at a byte of the frame. Bytes before it in the same word belong to another warp: zeros for the checksum. */
static __device__ inline frugi_pen frugi_pen_at(uint32_t at, uint32_t *paper) {
    if (frugi_lane() == 0)
        paper[0] = 0;
    return {0, at, at & 3u};
}

/** Bytes from .. to - 1 of a word. */
static __device__ __noinline__ void frugi_write_part(unsigned char *to, uint32_t word, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        to[i] = (unsigned char)(word >> 8 * i);
}

/** Write all whole groups that wait; the lanes have met since the last byte was put. */
static __device__ inline void frugi_pen_on(frugi_pen *pen, uint32_t *paper, const uint32_t table[4][256],
                                           unsigned char *frame) {
    if (pen->fill < FRUGI_GROUP)
        return;
    uint32_t lane = frugi_lane(), done = 0;
#pragma unroll 1
    do {
        uint32_t word = paper[done + lane], first = pen->at & 3u;
        unsigned char *to = frame + (pen->at - first) + 4 * lane;
        if (first && lane == 0)
            frugi_write_part(to, word, first, 4);
        else
            *reinterpret_cast<uint32_t *>(to) = word;
        pen->state = frugi_crc_step(table, pen->state) ^ word;
        pen->at += FRUGI_GROUP - first;
        pen->fill -= FRUGI_GROUP;
        done += FRUGI_GROUP / 4;
    } while (pen->fill >= FRUGI_GROUP);
    uint32_t rest = paper[done + lane];
    __syncwarp();
    paper[lane] = rest;
    __syncwarp();
}

/** Write the rest; returns what all these bytes add to the checksum of a frame of so many. */
static __device__ __noinline__ uint32_t frugi_pen_end(frugi_pen pen, const uint32_t *paper,
                                                      const uint32_t table[4][256], const frugi_gpu_crc *crc,
                                                      unsigned char *frame, uint32_t bytes) {
    uint32_t lane = frugi_lane(), from = pen.at & ~3u, rest = (pen.fill + 3) / 4;
    if (lane < rest) {
        uint32_t left = min(pen.fill - 4 * lane, 4u), first = lane == 0 ? pen.at & 3u : 0;
        uint32_t word = left < 4 ? paper[lane] & ((1u << 8 * left) - 1u) : paper[lane];
        frugi_write_part(frame + from + 4 * lane, word, first, left);
        pen.state = frugi_crc_step(table, pen.state) ^ word;
    }
    __syncwarp(); /* the next pen may begin on the same paper */
    return frugi_crc_end(crc, pen.state, rest, (bytes - from) / 4 - rest);
}

#endif

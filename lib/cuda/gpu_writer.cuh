/*
 * gpu_writer.cuh - a warp writes an array of a section, block by block, through a buffer in shared memory.
 *
 * Any lane writes bytes to the buffer at any offset. As soon as it has 128 of them they are written to the frame, one
 * word per lane, and included in the checksum. Writing entries directly to the frame, and reading it again for the
 * checksum, took up to a sixth of all the time.
 */
#ifndef FRUGI_GPU_WRITER_CUH
#define FRUGI_GPU_WRITER_CUH

#include "cuda/gpu_crc32c.cuh"

/** Words of a writer's buffer if at most so many bytes are added before a flush: whole groups, as they are moved. */
#define FRUGI_WRITER_WORDS(bytes) (((FRUGI_CRC_GROUP - 1u + (bytes)) / FRUGI_CRC_GROUP + 1u) * (FRUGI_CRC_GROUP / 4u))

typedef struct frugi_warp_writer {
    uint32_t state; /* of the checksum, this lane's */
    uint32_t at;    /* next byte in the frame; not a multiple of 4 only at the start */
    uint32_t fill;  /* bytes in the buffer, counted from the start of the word that contains `at` */
} frugi_warp_writer;

/**
 * Begin at a byte of the frame. Bytes before it in the same word belong to another warp and count as zero in the
 * checksum.
 */
static __device__ inline frugi_warp_writer frugi_writer_begin(uint32_t at, uint32_t *buffer) {
    if (frugi_lane() == 0)
        buffer[0] = 0;
    return {0, at, at & 3u};
}

/** Write bytes first .. end - 1 of a word. */
static __device__ __noinline__ void frugi_write_word_bytes(unsigned char *to, uint32_t word, uint32_t first,
                                                           uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        to[i] = (unsigned char)(word >> 8 * i);
}

/** Write all whole groups in the buffer; the warp has synchronized since the last byte was added. */
static __device__ inline void frugi_writer_flush(frugi_warp_writer *writer, uint32_t *buffer,
                                                 const uint32_t table[4][256], unsigned char *frame) {
    if (writer->fill < FRUGI_CRC_GROUP)
        return;
    uint32_t lane = frugi_lane(), words = 0;
#pragma unroll 1
    do {
        uint32_t word = buffer[words + lane], first = writer->at & 3u;
        unsigned char *to = frame + (writer->at - first) + 4 * lane;
        if (first && lane == 0)
            frugi_write_word_bytes(to, word, first, 4);
        else
            *reinterpret_cast<uint32_t *>(to) = word;
        writer->state = frugi_crc_step(table, writer->state) ^ word;
        writer->at += FRUGI_CRC_GROUP - first;
        writer->fill -= FRUGI_CRC_GROUP;
        words += FRUGI_CRC_GROUP / 4;
    } while (writer->fill >= FRUGI_CRC_GROUP);
    uint32_t remaining = buffer[words + lane];
    __syncwarp();
    buffer[lane] = remaining;
    __syncwarp();
}

/** Write the rest; returns the contribution of all bytes written to the checksum of a frame of `bytes`. */
static __device__ __noinline__ uint32_t frugi_writer_finish(frugi_warp_writer writer, const uint32_t *buffer,
                                                            const uint32_t table[4][256], const frugi_gpu_crc *crc,
                                                            unsigned char *frame, uint32_t bytes) {
    uint32_t lane = frugi_lane(), from = writer.at & ~3u, remaining = (writer.fill + 3) / 4;
    if (lane < remaining) {
        uint32_t left = min(writer.fill - 4 * lane, 4u), first = lane == 0 ? writer.at & 3u : 0;
        uint32_t word = left < 4 ? buffer[lane] & ((1u << 8 * left) - 1u) : buffer[lane];
        frugi_write_word_bytes(frame + from + 4 * lane, word, first, left);
        writer.state = frugi_crc_step(table, writer.state) ^ word;
    }
    __syncwarp(); /* the next writer may reuse the buffer */
    return frugi_crc_combine_lanes(crc, writer.state, remaining, (bytes - from) / 4 - remaining);
}

#endif

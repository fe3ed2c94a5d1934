/* delta_hash.c - the hash of chunks of any length, by kernels for whole stripes and word by word. */
#include "delta/delta_hash.h"

#include <string.h>

enum { BYTES_CHUNK = 65536 };

/* What word number w of a chunk adds to lane w % 8. */
static inline uint64_t term(uint64_t word, size_t w) {
    uint64_t x = word ^ (FRUGI_DELTA_KEY + w / FRUGI_DELTA_LANES * FRUGI_DELTA_STEP);
    return (x & UINT32_MAX) * (x >> 32) + word;
}

/* A word of a chunk; bytes behind the end are zeros. */
static inline uint64_t load_word(const unsigned char *chunk, size_t bytes, size_t w) {
    uint64_t word = 0;
    if (8 * w + 8 <= bytes)
        memcpy(&word, chunk + 8 * w, 8);
    else
        memcpy(&word, chunk + 8 * w, bytes - 8 * w);
    return word;
}

/* The words behind the last whole stripe. */
static void hash_rest(const unsigned char *chunk, size_t bytes, frugi_delta_lanes *lanes) {
    for (size_t w = bytes / FRUGI_DELTA_STRIPE * FRUGI_DELTA_LANES; 8 * w < bytes; w++)
        lanes->sum[w % FRUGI_DELTA_LANES] += term(load_word(chunk, bytes, w), w);
}

uint64_t frugi_delta_hash_lanes(const frugi_delta_lanes *lanes, size_t bytes) {
    uint64_t hash = bytes;
    for (uint32_t j = 0; j < FRUGI_DELTA_LANES; j++)
        hash = frugi_delta_hash_word(hash, lanes->sum[j]);
    return hash;
}

frugi_delta_lanes frugi_delta_copy(const frugi_delta_kernel *kernel, const unsigned char *src, size_t bytes,
                                   unsigned char *dst) {
    frugi_delta_lanes lanes = {{0}};
    size_t stripes = bytes / FRUGI_DELTA_STRIPE, done = FRUGI_DELTA_STRIPE * stripes;
    kernel->copy(src, stripes, dst, lanes.sum);
    hash_rest(src, bytes, &lanes);
    if (dst && bytes > done)
        memcpy(dst + done, src + done, bytes - done);
    return lanes;
}

frugi_delta_lanes frugi_delta_scan(const frugi_delta_kernel *kernel, const unsigned char *before,
                                   const unsigned char *after, uint32_t n, uint32_t width, unsigned char *changed) {
    frugi_delta_lanes lanes = {{0}}, unused = {{0}};
    size_t bytes = (size_t)n * width, stripes = bytes / FRUGI_DELTA_STRIPE, done = FRUGI_DELTA_STRIPE * stripes;
    kernel->scan(before, after, stripes, width, changed, lanes.sum);
    hash_rest(before, bytes, &lanes);
    if (bytes > done) {
        unsigned char last[2][FRUGI_DELTA_STRIPE] = {{0}, {0}};
        memcpy(last[0], before + done, bytes - done);
        memcpy(last[1], after + done, bytes - done);
        kernel->scan(last[0], last[1], 1, width, changed + done / width / 8, unused.sum);
    }
    return lanes;
}

void frugi_delta_hash_some(const unsigned char *chunk, size_t bytes, const uint16_t *index, uint32_t entries,
                           uint32_t width, int sign, frugi_delta_lanes *lanes) {
    const uint32_t shift = 3 - (uint32_t)__builtin_ctz(width); /* elements per word, as a power of two */
    const uint64_t flip = sign < 0 ? UINT64_MAX : 0;
    size_t last = SIZE_MAX;
    for (uint32_t i = 0; i < entries; i++) {
        size_t w = (size_t)index[i] >> shift;
        uint64_t change = w != last ? term(load_word(chunk, bytes, w), w) : 0;
        lanes->sum[w % FRUGI_DELTA_LANES] += (change ^ flip) - flip;
        last = w;
    }
}

uint64_t frugi_delta_hash_bytes(const void *data, size_t bytes) {
    uint64_t hash = 0;
    const unsigned char *at = data;
    while (bytes > 0) {
        size_t some = bytes < BYTES_CHUNK ? bytes : BYTES_CHUNK;
        frugi_delta_lanes lanes = frugi_delta_copy(&frugi_delta_kernel_ref, at, some, NULL);
        hash = frugi_delta_hash_word(hash, frugi_delta_hash_lanes(&lanes, some));
        at += some;
        bytes -= some;
    }
    return hash;
}

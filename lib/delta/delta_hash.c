/* delta_hash.c - the hash of chunks of any length, by kernels for whole blocks: the last one is filled up with zeros.
 */
#include "delta/delta_hash.h"

#include <string.h>

enum { BYTES_CHUNK = 65536 };

/* Hash the bytes behind the last whole block, as block number `block`. Its key is not that of a first block, which
 * kernels begin with. */
static void hash_last(const unsigned char *last, size_t block, uint64_t *lanes) {
    const uint64_t key = FRUGI_DELTA_KEY + 2 * block * FRUGI_DELTA_STEP, next = key + FRUGI_DELTA_STEP;
    for (uint32_t e = 0; e < FRUGI_DELTA_LANES; e++) {
        uint32_t x, y;
        memcpy(&x, last + 4 * e, 4);
        memcpy(&y, last + FRUGI_DELTA_STRIPE + 4 * e, 4);
        lanes[e] += (uint64_t)(x ^ (uint32_t)(key >> e % 2 * 32)) * (y ^ (uint32_t)(next >> e % 2 * 32));
    }
}

static uint64_t hash_lanes(const uint64_t *lanes, size_t bytes) {
    uint64_t hash = bytes;
    for (uint32_t e = 0; e < FRUGI_DELTA_LANES; e++)
        hash = frugi_delta_hash_word(hash, lanes[e]);
    return hash;
}

uint64_t frugi_delta_copy(const frugi_delta_kernel *kernel, const unsigned char *src, size_t bytes,
                          unsigned char *dst) {
    uint64_t lanes[FRUGI_DELTA_LANES] = {0};
    size_t blocks = bytes / FRUGI_DELTA_BLOCK, done = FRUGI_DELTA_BLOCK * blocks;
    kernel->copy(src, blocks, dst, lanes);
    if (bytes > done) {
        unsigned char last[FRUGI_DELTA_BLOCK] = {0};
        memcpy(last, src + done, bytes - done);
        hash_last(last, blocks, lanes);
        if (dst != NULL)
            memcpy(dst + done, last, bytes - done);
    }
    return hash_lanes(lanes, bytes);
}

void frugi_delta_scan(const frugi_delta_kernel *kernel, const unsigned char *before, const unsigned char *after,
                      uint32_t n, uint32_t width, unsigned char *changed, uint64_t *hashes) {
    uint64_t lanes[FRUGI_DELTA_LANES] = {0}, unused[FRUGI_DELTA_LANES] = {0};
    size_t bytes = (size_t)n * width, blocks = bytes / FRUGI_DELTA_BLOCK, done = FRUGI_DELTA_BLOCK * blocks;
    kernel->scan(before, after, blocks, width, changed, lanes);
    if (bytes > done) {
        unsigned char last[2][FRUGI_DELTA_BLOCK] = {{0}, {0}};
        memcpy(last[0], before + done, bytes - done);
        memcpy(last[1], after + done, bytes - done);
        kernel->scan(last[0], last[1], 1, width, changed + done / width / 8, unused);
        hash_last(last[0], blocks, lanes);
    }
    hashes[0] = hash_lanes(lanes, bytes);
    hashes[1] =
        frugi_delta_copy(kernel, after, bytes, NULL); /* in a pass of its own: together they need too many registers */
}

uint64_t frugi_delta_hash_bytes(const void *data, size_t bytes) {
    uint64_t hash = 0;
    const unsigned char *at = data;
    while (bytes > 0) {
        size_t some = bytes < BYTES_CHUNK ? bytes : BYTES_CHUNK;
        hash = frugi_delta_hash_word(hash, frugi_delta_copy(&frugi_delta_kernel_ref, at, some, NULL));
        at += some;
        bytes -= some;
    }
    return hash;
}

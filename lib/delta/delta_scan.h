/*
 * delta_scan.h - the loops over blocks, compiled for each variant that has vectors. A file that includes it defines
 * before:
 *
 *   stripe, load_stripe, store_stripe    FRUGI_DELTA_STRIPE bytes in vectors
 *   lane_sums, load_lanes, store_lanes   the sums of all lanes
 *   key_vector, spread, add_keys         a vector of 64-bit numbers: one number in all, and a sum
 *   hash_block(x, y, key, &sums)         the two stripes of a block
 *   changed_1(x, y), and _2, _4, _8      one bit per element of that many bytes that differs between two stripes
 */
#ifndef FRUGI_DELTA_SCAN_H
#define FRUGI_DELTA_SCAN_H

#include "delta/delta_kernel.h"

#define SCAN(width, type)                                                                                              \
    static void scan_##width(const unsigned char *before, const unsigned char *after, size_t blocks,                   \
                             unsigned char *changed, uint64_t *lanes) {                                                \
        lane_sums sums = load_lanes(lanes);                                                                            \
        key_vector key = spread(FRUGI_DELTA_KEY), step = spread(2 * FRUGI_DELTA_STEP);                                 \
        for (size_t b = 0; b < blocks; b++, key = add_keys(key, step)) {                                               \
            const unsigned char *p = before + FRUGI_DELTA_BLOCK * b, *q = after + FRUGI_DELTA_BLOCK * b;               \
            stripe x = load_stripe(p), y = load_stripe(p + FRUGI_DELTA_STRIPE);                                        \
            stripe u = load_stripe(q), v = load_stripe(q + FRUGI_DELTA_STRIPE);                                        \
            type bits[2] = {changed_##width(x, u), changed_##width(y, v)};                                             \
            __builtin_memcpy(changed + sizeof bits * b, bits, sizeof bits);                                            \
            hash_block(x, y, key, &sums);                                                                              \
        }                                                                                                              \
        store_lanes(sums, lanes);                                                                                      \
    }

SCAN(1, uint64_t)
SCAN(2, uint32_t)
SCAN(4, uint16_t)
SCAN(8, uint8_t)

static void scan(const unsigned char *before, const unsigned char *after, size_t blocks, uint32_t width,
                 unsigned char *changed, uint64_t *lanes) {
    switch (width) {
    case 1: scan_1(before, after, blocks, changed, lanes); break;
    case 2: scan_2(before, after, blocks, changed, lanes); break;
    case 4: scan_4(before, after, blocks, changed, lanes); break;
    default: scan_8(before, after, blocks, changed, lanes); break;
    }
}

static void copy(const unsigned char *src, size_t blocks, unsigned char *dst, uint64_t *lanes) {
    lane_sums sums = load_lanes(lanes);
    key_vector key = spread(FRUGI_DELTA_KEY), step = spread(2 * FRUGI_DELTA_STEP);
    for (size_t b = 0; b < blocks; b++, key = add_keys(key, step)) {
        stripe x = load_stripe(src + FRUGI_DELTA_BLOCK * b);
        stripe y = load_stripe(src + FRUGI_DELTA_BLOCK * b + FRUGI_DELTA_STRIPE);
        if (dst != NULL) {
            store_stripe(x, dst + FRUGI_DELTA_BLOCK * b);
            store_stripe(y, dst + FRUGI_DELTA_BLOCK * b + FRUGI_DELTA_STRIPE);
        }
        hash_block(x, y, key, &sums);
    }
    store_lanes(sums, lanes);
}

#endif

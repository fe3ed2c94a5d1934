/* assertions.h - helpers of many tests: random data, a compressor in one call, comparison by bits. */
#ifndef FRUG_TEST_ASSERTIONS_H
#define FRUG_TEST_ASSERTIONS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frugrad.h"

#define OK(call) assert_int_equal((call), FRUG_OK)

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/** Uniform in [-1, 1). */
static inline float next_float(uint64_t *state) {
    return (float)((double)(next_random(state) >> 11) * 0x1p-52 - 1.0);
}

/** Roughly bell-shaped, standard deviation near 1. */
static inline float next_bell(uint64_t *state) {
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += next_float(state);
    return sum * 0.5f;
}

static inline float *bell_array(size_t n, uint64_t seed) {
    float *x = test_malloc((n + 1) * sizeof *x);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++)
        x[i] = next_bell(&state);
    return x;
}

static inline frug_compressor *make_compressor(const char *text, const frug_layout *layout,
                                               const frug_compressor_options *options) {
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    if (frug_config_create(text, &config) != FRUG_OK || frug_compressor_create(config, layout, options, &c) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_config_destroy(config);
    return c;
}

/** Compress a range into a fresh buffer. */
static inline unsigned char *compress_range(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count,
                                            const float *grad, size_t *len) {
    size_t cap = 0;
    OK(frug_compressor_bound(c, (frug_range){begin, count}, &cap));
    unsigned char *frame = test_malloc(cap);
    OK(frug_compress(c, step, (frug_range){begin, count}, grad, frame, cap, len));
    assert_true(*len <= cap);
    return frame;
}

/** Decode one frame into a zeroed dst. */
static inline void restore_range(frug_compressor *c, const unsigned char *frame, size_t len, uint64_t begin,
                                 uint64_t count, float *dst) {
    const void *frames[1] = {frame};
    memset(dst, 0, count * sizeof *dst);
    OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){begin, count}, frames, &len, 1, 1.0f, dst));
}

static inline void assert_same_bits(const void *a, const void *b, size_t bytes) {
    assert_memory_equal(a, b, bytes);
}

#endif

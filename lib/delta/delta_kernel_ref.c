/* delta_kernel_ref.c - comparison and hash in plain C, and the table of variants. */
#include "delta/delta_kernel.h"

#include "base/float_bits.h"
#include "delta/delta_chunk.h"

static inline void hash_block(const unsigned char *p, uint64_t key, uint64_t *lanes) {
    uint64_t next = key + FRUGI_DELTA_STEP;
    for (uint32_t e = 0; e < FRUGI_DELTA_LANES; e++) {
        uint32_t x = frugi_get32(p + 4 * e) ^ (uint32_t)(key >> e % 2 * 32);
        uint32_t y = frugi_get32(p + FRUGI_DELTA_STRIPE + 4 * e) ^ (uint32_t)(next >> e % 2 * 32);
        lanes[e] += (uint64_t)x * y;
    }
}

/* One bit per element of a stripe that differs. */
static inline void compare_stripe(const unsigned char *a, const unsigned char *b, uint32_t width,
                                  unsigned char *changed) {
    uint32_t n = FRUGI_DELTA_STRIPE / width;
    uint64_t bits = 0;
    for (uint32_t i = 0; i < n; i++)
        bits |= (uint64_t)(memcmp(a + i * width, b + i * width, width) != 0) << i;
    memcpy(changed, &bits, n / 8);
}

static void scan(const unsigned char *before, const unsigned char *after, size_t blocks, uint32_t width,
                 unsigned char *changed, uint64_t *lanes) {
    uint64_t key = FRUGI_DELTA_KEY;
    for (size_t b = 0; b < blocks; b++, key += 2 * FRUGI_DELTA_STEP)
        hash_block(before + FRUGI_DELTA_BLOCK * b, key, lanes);
    for (size_t at = 0; at < FRUGI_DELTA_BLOCK * blocks; at += FRUGI_DELTA_STRIPE)
        compare_stripe(before + at, after + at, width, changed + at / width / 8);
}

static void copy(const unsigned char *src, size_t blocks, unsigned char *dst, uint64_t *lanes) {
    uint64_t key = FRUGI_DELTA_KEY;
    for (size_t b = 0; b < blocks; b++, key += 2 * FRUGI_DELTA_STEP)
        hash_block(src + FRUGI_DELTA_BLOCK * b, key, lanes);
    if (dst != NULL)
        memcpy(dst, src, FRUGI_DELTA_BLOCK * blocks);
}

const frugi_delta_kernel frugi_delta_kernel_ref = {scan, copy, &frugi_delta_chunk_code_plain};

const frugi_delta_kernel *frugi_delta_kernel_for(frugi_isa isa) {
    switch (isa) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &frugi_delta_kernel_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &frugi_delta_kernel_avx2;
    case FRUGI_ISA_AVX512: return &frugi_delta_kernel_avx512;
#endif
    default: return &frugi_delta_kernel_ref;
    }
}

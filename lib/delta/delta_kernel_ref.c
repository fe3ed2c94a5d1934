/* delta_kernel_ref.c - comparison and hash in plain C, and the table of variants. */
#include "delta/delta_kernel.h"

#include "base/float_bits.h"

static inline void hash_stripe(const unsigned char *p, uint64_t key, uint64_t *lanes) {
    for (uint32_t j = 0; j < FRUGI_DELTA_LANES; j++) {
        uint64_t word = frugi_get64(p + 8 * j), x = word ^ key;
        lanes[j] += (x & UINT32_MAX) * (x >> 32) + word;
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

static void scan(const unsigned char *before, const unsigned char *after, size_t stripes, uint32_t width,
                 unsigned char *changed, uint64_t *lanes) {
    uint64_t key = FRUGI_DELTA_KEY;
    for (size_t s = 0; s < stripes; s++, key += FRUGI_DELTA_STEP) {
        hash_stripe(before + FRUGI_DELTA_STRIPE * s, key, lanes);
        compare_stripe(before + FRUGI_DELTA_STRIPE * s, after + FRUGI_DELTA_STRIPE * s, width, changed);
        changed += FRUGI_DELTA_STRIPE / 8 / width;
    }
}

static void copy(const unsigned char *src, size_t stripes, unsigned char *dst, uint64_t *lanes) {
    uint64_t key = FRUGI_DELTA_KEY;
    for (size_t s = 0; s < stripes; s++, key += FRUGI_DELTA_STEP)
        hash_stripe(src + FRUGI_DELTA_STRIPE * s, key, lanes);
    if (dst != NULL)
        memcpy(dst, src, FRUGI_DELTA_STRIPE * stripes);
}

const frugi_delta_kernel frugi_delta_kernel_ref = {scan, copy};

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

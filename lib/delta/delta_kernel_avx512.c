/* delta_kernel_avx512.c - comparison and hash, 64 bytes at a time in one vector. */
#include "delta/delta_kernel.h"

#include <immintrin.h>

static inline __m512i hash_vector(__m512i v, __m512i key, __m512i sum) {
    __m512i x = _mm512_xor_si512(v, key);
    return _mm512_add_epi64(_mm512_add_epi64(sum, v), _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)));
}

#define SCAN(width, type, compare)                                                                                     \
    static void scan_##width(const unsigned char *before, const unsigned char *after, size_t stripes,                  \
                             unsigned char *changed, uint64_t *lanes) {                                                \
        __m512i sums = _mm512_loadu_si512(lanes);                                                                      \
        __m512i key = _mm512_set1_epi64((long long)FRUGI_DELTA_KEY);                                                   \
        const __m512i step = _mm512_set1_epi64((long long)FRUGI_DELTA_STEP);                                           \
        for (size_t s = 0; s < stripes; s++, key = _mm512_add_epi64(key, step)) {                                      \
            const unsigned char *p = before + FRUGI_DELTA_STRIPE * s, *q = after + FRUGI_DELTA_STRIPE * s;             \
            __m512i a = _mm512_loadu_si512(p);                                                                         \
            __m512i b = _mm512_loadu_si512(q);                                                                         \
            type bits = (type)compare(a, b);                                                                           \
            __builtin_memcpy(changed + sizeof bits * s, &bits, sizeof bits);                                           \
            sums = hash_vector(a, key, sums);                                                                          \
        }                                                                                                              \
        _mm512_storeu_si512(lanes, sums);                                                                              \
    }

SCAN(1, uint64_t, _mm512_cmpneq_epu8_mask)
SCAN(2, uint32_t, _mm512_cmpneq_epu16_mask)
SCAN(4, uint16_t, _mm512_cmpneq_epu32_mask)
SCAN(8, uint8_t, _mm512_cmpneq_epu64_mask)

static void scan(const unsigned char *before, const unsigned char *after, size_t stripes, uint32_t width,
                 unsigned char *changed, uint64_t *lanes) {
    switch (width) {
    case 1: scan_1(before, after, stripes, changed, lanes); break;
    case 2: scan_2(before, after, stripes, changed, lanes); break;
    case 4: scan_4(before, after, stripes, changed, lanes); break;
    default: scan_8(before, after, stripes, changed, lanes); break;
    }
}

static void copy(const unsigned char *src, size_t stripes, unsigned char *dst, uint64_t *lanes) {
    __m512i sums = _mm512_loadu_si512(lanes), key = _mm512_set1_epi64((long long)FRUGI_DELTA_KEY);
    const __m512i step = _mm512_set1_epi64((long long)FRUGI_DELTA_STEP);
    for (size_t s = 0; s < stripes; s++, key = _mm512_add_epi64(key, step)) {
        __m512i v = _mm512_loadu_si512(src + FRUGI_DELTA_STRIPE * s);
        if (dst != NULL)
            _mm512_storeu_si512(dst + FRUGI_DELTA_STRIPE * s, v);
        sums = hash_vector(v, key, sums);
    }
    _mm512_storeu_si512(lanes, sums);
}

const frugi_delta_kernel frugi_delta_kernel_avx512 = {scan, copy};

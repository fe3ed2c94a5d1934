/* delta_kernel_avx2.c - comparison and hash, 64 bytes at a time in two vectors. */
#include "delta/delta_kernel.h"

#include <immintrin.h>

static inline __m256i load(const unsigned char *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline __m256i hash_vector(__m256i v, __m256i key, __m256i sum) {
    __m256i x = _mm256_xor_si256(v, key);
    return _mm256_add_epi64(_mm256_add_epi64(sum, v), _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
}

static inline uint64_t changed_1(__m256i a, __m256i b, __m256i c, __m256i d) {
    uint32_t front = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b));
    uint32_t back = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(c, d));
    return ~(front | (uint64_t)back << 32);
}

static inline uint32_t changed_2(__m256i a, __m256i b, __m256i c, __m256i d) {
    __m256i packed = _mm256_packs_epi16(_mm256_cmpeq_epi16(a, b), _mm256_cmpeq_epi16(c, d));
    return ~(uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(packed, 0xd8));
}

static inline uint16_t changed_4(__m256i a, __m256i b, __m256i c, __m256i d) {
    int front = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)));
    int back = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(c, d)));
    return (uint16_t) ~(front | back << 8);
}

static inline uint8_t changed_8(__m256i a, __m256i b, __m256i c, __m256i d) {
    int front = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(a, b)));
    int back = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(c, d)));
    return (uint8_t) ~(front | back << 4);
}

#define SCAN(width, type)                                                                                              \
    static void scan_##width(const unsigned char *before, const unsigned char *after, size_t stripes,                  \
                             unsigned char *changed, uint64_t *lanes) {                                                \
        __m256i *sums = (__m256i *)(void *)lanes;                                                                      \
        __m256i s0 = _mm256_loadu_si256(sums), s1 = _mm256_loadu_si256(sums + 1);                                      \
        __m256i key = _mm256_set1_epi64x((long long)FRUGI_DELTA_KEY);                                                  \
        const __m256i step = _mm256_set1_epi64x((long long)FRUGI_DELTA_STEP);                                          \
        for (size_t s = 0; s < stripes; s++, key = _mm256_add_epi64(key, step)) {                                      \
            const unsigned char *p = before + FRUGI_DELTA_STRIPE * s, *q = after + FRUGI_DELTA_STRIPE * s;             \
            __m256i x0 = load(p), x1 = load(p + 32), y0 = load(q), y1 = load(q + 32);                                  \
            type bits = changed_##width(x0, y0, x1, y1);                                                               \
            __builtin_memcpy(changed + sizeof bits * s, &bits, sizeof bits);                                           \
            s0 = hash_vector(x0, key, s0);                                                                             \
            s1 = hash_vector(x1, key, s1);                                                                             \
        }                                                                                                              \
        _mm256_storeu_si256(sums, s0);                                                                                 \
        _mm256_storeu_si256(sums + 1, s1);                                                                             \
    }

SCAN(1, uint64_t)
SCAN(2, uint32_t)
SCAN(4, uint16_t)
SCAN(8, uint8_t)

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
    __m256i *sums = (__m256i *)(void *)lanes;
    __m256i s0 = _mm256_loadu_si256(sums), s1 = _mm256_loadu_si256(sums + 1);
    __m256i key = _mm256_set1_epi64x((long long)FRUGI_DELTA_KEY);
    const __m256i step = _mm256_set1_epi64x((long long)FRUGI_DELTA_STEP);
    for (size_t s = 0; s < stripes; s++, key = _mm256_add_epi64(key, step)) {
        __m256i v = load(src + FRUGI_DELTA_STRIPE * s), w = load(src + FRUGI_DELTA_STRIPE * s + 32);
        if (dst != NULL) {
            _mm256_storeu_si256((__m256i *)(void *)(dst + FRUGI_DELTA_STRIPE * s), v);
            _mm256_storeu_si256((__m256i *)(void *)(dst + FRUGI_DELTA_STRIPE * s + 32), w);
        }
        s0 = hash_vector(v, key, s0);
        s1 = hash_vector(w, key, s1);
    }
    _mm256_storeu_si256(sums, s0);
    _mm256_storeu_si256(sums + 1, s1);
}

const frugi_delta_kernel frugi_delta_kernel_avx2 = {scan, copy};

/* delta_kernel_avx2.c - comparison and hash, 128 bytes at a time in four vectors. */
#include "delta/delta_kernel.h"

#include "delta/delta_chunk.h"

#include <immintrin.h>

static inline __m256i load(const unsigned char *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* The sums of all lanes: of numbers 0 2 4 6, 1 3 5 7, 8 10 12 14 and 9 11 13 15 of a stripe. */
typedef struct lane_sums {
    __m256i even0, odd0, even1, odd1;
} lane_sums;

/* Lanes in order to even and odd ones; the same exchange leads back. */
static inline void load_half(const uint64_t *lanes, __m256i *even, __m256i *odd) {
    __m256i a = load((const unsigned char *)lanes), b = load((const unsigned char *)(lanes + 4));
    *even = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(a, b), 0xd8);
    *odd = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(a, b), 0xd8);
}

static inline void store_half(__m256i even, __m256i odd, uint64_t *lanes) {
    __m256i low = _mm256_unpacklo_epi64(even, odd), high = _mm256_unpackhi_epi64(even, odd);
    _mm256_storeu_si256((__m256i *)(void *)lanes, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(lanes + 4), _mm256_permute2x128_si256(low, high, 0x31));
}

static inline lane_sums load_lanes(const uint64_t *lanes) {
    lane_sums s;
    load_half(lanes, &s.even0, &s.odd0);
    load_half(lanes + 8, &s.even1, &s.odd1);
    return s;
}

static inline void store_lanes(lane_sums s, uint64_t *lanes) {
    store_half(s.even0, s.odd0, lanes);
    store_half(s.even1, s.odd1, lanes + 8);
}

static inline void hash_vector(__m256i v, __m256i w, __m256i key, __m256i next, __m256i *even, __m256i *odd) {
    __m256i x = _mm256_xor_si256(v, key), y = _mm256_xor_si256(w, next);
    *even = _mm256_add_epi64(*even, _mm256_mul_epu32(x, y));
    *odd = _mm256_add_epi64(*odd, _mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(y, 32)));
}

/* Four vectors of a block. */
static inline void hash_block(__m256i x0, __m256i x1, __m256i y0, __m256i y1, __m256i key, lane_sums *s) {
    __m256i next = _mm256_add_epi64(key, _mm256_set1_epi64x((long long)FRUGI_DELTA_STEP));
    hash_vector(x0, y0, key, next, &s->even0, &s->odd0);
    hash_vector(x1, y1, key, next, &s->even1, &s->odd1);
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
    static void scan_##width(const unsigned char *before, const unsigned char *after, size_t blocks,                   \
                             unsigned char *changed, uint64_t *lanes) {                                                \
        lane_sums sums = load_lanes(lanes);                                                                            \
        __m256i key = _mm256_set1_epi64x((long long)FRUGI_DELTA_KEY);                                                  \
        const __m256i step = _mm256_set1_epi64x((long long)(2 * FRUGI_DELTA_STEP));                                    \
        for (size_t b = 0; b < blocks; b++, key = _mm256_add_epi64(key, step)) {                                       \
            const unsigned char *p = before + FRUGI_DELTA_BLOCK * b, *q = after + FRUGI_DELTA_BLOCK * b;               \
            __m256i x0 = load(p), x1 = load(p + 32), y0 = load(p + 64), y1 = load(p + 96);                             \
            __m256i u0 = load(q), u1 = load(q + 32), v0 = load(q + 64), v1 = load(q + 96);                             \
            type bits[2] = {changed_##width(x0, u0, x1, u1), changed_##width(y0, v0, y1, v1)};                         \
            __builtin_memcpy(changed + sizeof bits * b, bits, sizeof bits);                                            \
            hash_block(x0, x1, y0, y1, key, &sums);                                                                    \
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
    __m256i key = _mm256_set1_epi64x((long long)FRUGI_DELTA_KEY);
    const __m256i step = _mm256_set1_epi64x((long long)(2 * FRUGI_DELTA_STEP));
    for (size_t b = 0; b < blocks; b++, key = _mm256_add_epi64(key, step)) {
        const unsigned char *p = src + FRUGI_DELTA_BLOCK * b;
        __m256i x0 = load(p), x1 = load(p + 32), y0 = load(p + 64), y1 = load(p + 96);
        if (dst != NULL) {
            __m256i *to = (__m256i *)(void *)(dst + FRUGI_DELTA_BLOCK * b);
            _mm256_storeu_si256(to, x0);
            _mm256_storeu_si256(to + 1, x1);
            _mm256_storeu_si256(to + 2, y0);
            _mm256_storeu_si256(to + 3, y1);
        }
        hash_block(x0, x1, y0, y1, key, &sums);
    }
    store_lanes(sums, lanes);
}

const frugi_delta_kernel frugi_delta_kernel_avx2 = {scan, copy, &frugi_delta_chunk_code_avx2};

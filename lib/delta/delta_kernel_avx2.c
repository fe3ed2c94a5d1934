/* delta_kernel_avx2.c - comparison and hash, 128 bytes at a time in four vectors. */
#include "delta/delta_kernel.h"

#include "delta/delta_chunk.h"

#include <immintrin.h>

static inline __m256i load(const unsigned char *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

typedef struct stripe {
    __m256i a, b;
} stripe;

static inline stripe load_stripe(const unsigned char *p) {
    return (stripe){load(p), load(p + 32)};
}

static inline void store_stripe(stripe v, unsigned char *p) {
    _mm256_storeu_si256((__m256i *)(void *)p, v.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 32), v.b);
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

typedef __m256i key_vector;

static inline key_vector spread(uint64_t number) {
    return _mm256_set1_epi64x((long long)number);
}

static inline key_vector add_keys(key_vector a, key_vector b) {
    return _mm256_add_epi64(a, b);
}

static inline void hash_vector(__m256i v, __m256i w, __m256i key, __m256i next, __m256i *even, __m256i *odd) {
    __m256i x = _mm256_xor_si256(v, key), y = _mm256_xor_si256(w, next);
    *even = _mm256_add_epi64(*even, _mm256_mul_epu32(x, y));
    *odd = _mm256_add_epi64(*odd, _mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(y, 32)));
}

static inline void hash_block(stripe x, stripe y, __m256i key, lane_sums *s) {
    __m256i next = add_keys(key, spread(FRUGI_DELTA_STEP));
    hash_vector(x.a, y.a, key, next, &s->even0, &s->odd0);
    hash_vector(x.b, y.b, key, next, &s->even1, &s->odd1);
}

static inline uint64_t changed_1(stripe x, stripe y) {
    uint32_t front = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x.a, y.a));
    uint32_t back = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x.b, y.b));
    return ~(front | (uint64_t)back << 32);
}

static inline uint32_t changed_2(stripe x, stripe y) {
    __m256i packed = _mm256_packs_epi16(_mm256_cmpeq_epi16(x.a, y.a), _mm256_cmpeq_epi16(x.b, y.b));
    return ~(uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(packed, 0xd8));
}

static inline uint16_t changed_4(stripe x, stripe y) {
    int front = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x.a, y.a)));
    int back = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x.b, y.b)));
    return (uint16_t) ~(front | back << 8);
}

static inline uint8_t changed_8(stripe x, stripe y) {
    int front = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(x.a, y.a)));
    int back = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(x.b, y.b)));
    return (uint8_t) ~(front | back << 4);
}

#include "delta/delta_scan.h"

const frugi_delta_kernel frugi_delta_kernel_avx2 = {scan, copy, &frugi_delta_chunk_code_avx2};

/* delta_kernel_avx512.c - comparison and hash, 128 bytes at a time in two vectors. */
#include "delta/delta_kernel.h"

#include "delta/delta_chunk.h"

#include <immintrin.h>

/* The sums of all lanes: of the numbers of a stripe with even and with odd positions. */
typedef struct lane_sums {
    __m512i even, odd;
} lane_sums;

static inline lane_sums load_lanes(const uint64_t *lanes) {
    const __m512i pick = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    __m512i a = _mm512_loadu_si512(lanes), b = _mm512_loadu_si512(lanes + 8);
    return (lane_sums){_mm512_permutex2var_epi64(a, pick, b),
                       _mm512_permutex2var_epi64(a, _mm512_add_epi64(pick, _mm512_set1_epi64(1)), b)};
}

static inline void store_lanes(lane_sums s, uint64_t *lanes) {
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    _mm512_storeu_si512(lanes, _mm512_permutex2var_epi64(s.even, first, s.odd));
    _mm512_storeu_si512(lanes + 8,
                        _mm512_permutex2var_epi64(s.even, _mm512_add_epi64(first, _mm512_set1_epi64(4)), s.odd));
}

static inline void hash_block(__m512i v, __m512i w, __m512i key, lane_sums *s) {
    __m512i next = _mm512_add_epi64(key, _mm512_set1_epi64((long long)FRUGI_DELTA_STEP));
    __m512i x = _mm512_xor_si512(v, key), y = _mm512_xor_si512(w, next);
    s->even = _mm512_add_epi64(s->even, _mm512_mul_epu32(x, y));
    s->odd = _mm512_add_epi64(s->odd, _mm512_mul_epu32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(y, 32)));
}

#define SCAN(width, type, compare)                                                                                     \
    static void scan_##width(const unsigned char *before, const unsigned char *after, size_t blocks,                   \
                             unsigned char *changed, uint64_t *lanes) {                                                \
        lane_sums sums = load_lanes(lanes);                                                                            \
        __m512i key = _mm512_set1_epi64((long long)FRUGI_DELTA_KEY);                                                   \
        const __m512i step = _mm512_set1_epi64((long long)(2 * FRUGI_DELTA_STEP));                                     \
        for (size_t b = 0; b < blocks; b++, key = _mm512_add_epi64(key, step)) {                                       \
            const unsigned char *p = before + FRUGI_DELTA_BLOCK * b, *q = after + FRUGI_DELTA_BLOCK * b;               \
            __m512i x = _mm512_loadu_si512(p), y = _mm512_loadu_si512(p + FRUGI_DELTA_STRIPE);                         \
            __m512i u = _mm512_loadu_si512(q), v = _mm512_loadu_si512(q + FRUGI_DELTA_STRIPE);                         \
            type bits[2] = {(type)compare(x, u), (type)compare(y, v)};                                                 \
            __builtin_memcpy(changed + sizeof bits * b, bits, sizeof bits);                                            \
            hash_block(x, y, key, &sums);                                                                              \
        }                                                                                                              \
        store_lanes(sums, lanes);                                                                                      \
    }

SCAN(1, uint64_t, _mm512_cmpneq_epu8_mask)
SCAN(2, uint32_t, _mm512_cmpneq_epu16_mask)
SCAN(4, uint16_t, _mm512_cmpneq_epu32_mask)
SCAN(8, uint8_t, _mm512_cmpneq_epu64_mask)

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
    __m512i key = _mm512_set1_epi64((long long)FRUGI_DELTA_KEY);
    const __m512i step = _mm512_set1_epi64((long long)(2 * FRUGI_DELTA_STEP));
    for (size_t b = 0; b < blocks; b++, key = _mm512_add_epi64(key, step)) {
        __m512i x = _mm512_loadu_si512(src + FRUGI_DELTA_BLOCK * b);
        __m512i y = _mm512_loadu_si512(src + FRUGI_DELTA_BLOCK * b + FRUGI_DELTA_STRIPE);
        if (dst != NULL) {
            _mm512_storeu_si512(dst + FRUGI_DELTA_BLOCK * b, x);
            _mm512_storeu_si512(dst + FRUGI_DELTA_BLOCK * b + FRUGI_DELTA_STRIPE, y);
        }
        hash_block(x, y, key, &sums);
    }
    store_lanes(sums, lanes);
}

const frugi_delta_kernel frugi_delta_kernel_avx512 = {scan, copy, &frugi_delta_chunk_code_avx2};

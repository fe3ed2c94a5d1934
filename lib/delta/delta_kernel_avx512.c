/* delta_kernel_avx512.c - comparison and hash, 128 bytes at a time in two vectors. */
#include "delta/delta_kernel.h"

#include "delta/delta_chunk.h"

#include <immintrin.h>

typedef __m512i stripe, key_vector;

static inline stripe load_stripe(const unsigned char *p) {
    return _mm512_loadu_si512(p);
}

static inline void store_stripe(stripe v, unsigned char *p) {
    _mm512_storeu_si512(p, v);
}

static inline key_vector spread(uint64_t number) {
    return _mm512_set1_epi64((long long)number);
}

static inline key_vector add_keys(key_vector a, key_vector b) {
    return _mm512_add_epi64(a, b);
}

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

static inline void hash_block(stripe v, stripe w, key_vector key, lane_sums *s) {
    __m512i next = add_keys(key, spread(FRUGI_DELTA_STEP));
    __m512i x = _mm512_xor_si512(v, key), y = _mm512_xor_si512(w, next);
    s->even = _mm512_add_epi64(s->even, _mm512_mul_epu32(x, y));
    s->odd = _mm512_add_epi64(s->odd, _mm512_mul_epu32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(y, 32)));
}

static inline uint64_t changed_1(stripe x, stripe y) {
    return _mm512_cmpneq_epu8_mask(x, y);
}

static inline uint32_t changed_2(stripe x, stripe y) {
    return _mm512_cmpneq_epu16_mask(x, y);
}

static inline uint16_t changed_4(stripe x, stripe y) {
    return _mm512_cmpneq_epu32_mask(x, y);
}

static inline uint8_t changed_8(stripe x, stripe y) {
    return _mm512_cmpneq_epu64_mask(x, y);
}

#include "delta/delta_scan.h"

const frugi_delta_kernel frugi_delta_kernel_avx512 = {scan, copy, &frugi_delta_chunk_code_avx2};

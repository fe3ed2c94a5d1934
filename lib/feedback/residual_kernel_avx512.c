/* residual_kernel_avx512.c - the loops of the residual formats with AVX-512. residual_kernel_ref.c explains them. */
#include "feedback/residual_kernel.h"

#include "base/float_bits.h"
#include "base/stored_floats_avx512.h"
#include "feedback/residual_format.h"

#define INLINE static inline __attribute__((always_inline))

static uint32_t largest_magnitude(const float *src, uint32_t n) {
    const __m512i magnitude = _mm512_set1_epi32((int)FRUGI_ABS_MASK);
    __m512i most[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (uint32_t i = 0; i < n; i += 64)
        for (uint32_t j = 0; j < 4; j++)
            most[j] = _mm512_max_epi32(most[j], _mm512_and_si512(_mm512_loadu_si512(src + i + 16 * j), magnitude));
    __m512i all = _mm512_max_epi32(_mm512_max_epi32(most[0], most[1]), _mm512_max_epi32(most[2], most[3]));
    return (uint32_t)_mm512_reduce_max_epi32(all);
}

/* ---- load ---- */

static void load_bf16(const unsigned char *data, uint32_t n, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        _mm512_storeu_ps(dst + i, stored_bf16_16(data + 2 * i));
}

static void load_int8(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        _mm512_storeu_ps(dst + i, stored_int8_16(data + i, _mm512_set1_ps(scale)));
}

static void load_int4(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        _mm512_storeu_ps(dst + i, stored_int4_16(data + i / 2, _mm512_set1_ps(scale)));
}

/* ---- save ---- */

/* The random numbers of elements 0 .. 15. */
INLINE __m512i first_random(uint32_t random) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(_mm512_set1_epi32((int)random),
                            _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)FRUGI_WEYL)));
}

/* The random numbers of the next 16 elements. */
INLINE __m512i next_random(__m512i random) {
    return _mm512_add_epi32(random, _mm512_set1_epi32((int)(16 * FRUGI_WEYL)));
}

/* The conversion rounds as the addition of the reference does. */
INLINE __m512i round_stochastic(const float *x, __m512 inverse, __m512i random) {
    __m512i quotient = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
    return _mm512_srai_epi32(_mm512_add_epi32(quotient, _mm512_srli_epi32(random, 17)), 15);
}

/* 64 rounded elements as bytes, in index order. */
INLINE __m512i round_64(const float *x, __m512 inverse, __m512i *random) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i r0 = *random, r1 = next_random(r0), r2 = next_random(r1), r3 = next_random(r2);
    __m512i ab = _mm512_packs_epi32(round_stochastic(x, inverse, r0), round_stochastic(x + 16, inverse, r1));
    __m512i cd = _mm512_packs_epi32(round_stochastic(x + 32, inverse, r2), round_stochastic(x + 48, inverse, r3));
    *random = next_random(r3);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(ab, cd));
}

static void save_int8(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    __m512i r = first_random(random);
    for (uint32_t i = 0; i < n; i += 64)
        _mm512_storeu_si512(data + i, round_64(src + i, _mm512_set1_ps(inverse), &r));
}

static void save_int4(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    __m512i r = first_random(random);
    for (uint32_t i = 0; i < n; i += 64) {
        __m512i q = _mm512_add_epi8(round_64(src + i, _mm512_set1_ps(inverse), &r), _mm512_set1_epi8(8));
        __m512i both = _mm512_or_si512(_mm512_and_si512(q, _mm512_set1_epi16(15)), _mm512_srli_epi16(q, 4));
        _mm256_storeu_si256((__m256i *)(void *)(data + i / 2), _mm512_cvtepi16_epi8(both));
    }
}

INLINE __m512i round_to_upper_half(const float *x, __m512i random) {
    return _mm512_srli_epi32(_mm512_add_epi32(_mm512_loadu_si512(x), _mm512_srli_epi32(random, 16)), 16);
}

/* Rounding adds at most one to the upper half; where that makes an infinity, it is taken back. */
static void save_bf16(unsigned char *data, uint32_t n, const float *src, uint32_t random) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), magnitude = _mm512_set1_epi16(0x7fff);
    __m512i r0 = first_random(random);
    for (uint32_t i = 0; i < n; i += 32) {
        __m512i r1 = next_random(r0);
        __m512i h = _mm512_packus_epi32(round_to_upper_half(src + i, r0), round_to_upper_half(src + i + 16, r1));
        __mmask32 infinite = _mm512_cmpge_epu16_mask(_mm512_and_si512(h, magnitude), _mm512_set1_epi16(0x7f80));
        h = _mm512_mask_sub_epi16(h, infinite, h, _mm512_set1_epi16(1));
        _mm512_storeu_si512(data + 2 * i, _mm512_permutexvar_epi64(order, h));
        r0 = next_random(r1);
    }
}

const frugi_residual_kernel frugi_residual_kernel_avx512 = {largest_magnitude, load_bf16, load_int8, load_int4,
                                                            save_bf16,         save_int8, save_int4};

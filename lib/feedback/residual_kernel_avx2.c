/* residual_kernel_avx2.c - the loops of the residual formats with AVX2. residual_kernel_ref.c explains them. */
#include "feedback/residual_kernel.h"

#include "base/float_bits.h"
#include "base/stored_floats_avx2.h"
#include "feedback/residual_format.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load_32(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void store_32(void *p, __m256i x) {
    _mm256_storeu_si256((__m256i *)p, x);
}

static uint32_t largest_magnitude(const float *src, uint32_t n) {
    const __m256i magnitude = _mm256_set1_epi32((int)FRUGI_ABS_MASK);
    __m256i most[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (uint32_t i = 0; i < n; i += 32)
        for (uint32_t j = 0; j < 4; j++)
            most[j] = _mm256_max_epi32(most[j], _mm256_and_si256(load_32(src + i + 8 * j), magnitude));
    __m256i all = _mm256_max_epi32(_mm256_max_epi32(most[0], most[1]), _mm256_max_epi32(most[2], most[3]));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

/* ---- load ---- */

INLINE void store_16(float *dst, stored_16 x) {
    _mm256_storeu_ps(dst, x.low);
    _mm256_storeu_ps(dst + 8, x.high);
}

static void load_bf16(const unsigned char *data, uint32_t n, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        store_16(dst + i, stored_bf16_16(data + 2 * i));
}

static void load_int8(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        store_16(dst + i, stored_int8_16(data + i, _mm256_set1_ps(scale)));
}

static void load_int4(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        store_16(dst + i, stored_int4_16(data + i / 2, _mm256_set1_ps(scale)));
}

/* ---- save ---- */

/* The random numbers of elements 0 .. 7. */
INLINE __m256i first_random(uint32_t random) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_add_epi32(_mm256_set1_epi32((int)random),
                            _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)FRUGI_WEYL)));
}

/* The random numbers of the next eight elements. */
INLINE __m256i next_random(__m256i random) {
    return _mm256_add_epi32(random, _mm256_set1_epi32((int)(8 * FRUGI_WEYL)));
}

/* The conversion rounds as the addition of the reference does. */
INLINE __m256i round_stochastic(const float *x, __m256 inverse, __m256i random) {
    __m256i quotient = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
    return _mm256_srai_epi32(_mm256_add_epi32(quotient, _mm256_srli_epi32(random, 17)), 15);
}

/* 32 rounded elements as bytes, in index order. */
INLINE __m256i round_32(const float *x, __m256 inverse, __m256i *random) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i r0 = *random, r1 = next_random(r0), r2 = next_random(r1), r3 = next_random(r2);
    __m256i ab = _mm256_packs_epi32(round_stochastic(x, inverse, r0), round_stochastic(x + 8, inverse, r1));
    __m256i cd = _mm256_packs_epi32(round_stochastic(x + 16, inverse, r2), round_stochastic(x + 24, inverse, r3));
    *random = next_random(r3);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), order);
}

static void save_int8(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    __m256i r = first_random(random);
    for (uint32_t i = 0; i < n; i += 32)
        store_32(data + i, round_32(src + i, _mm256_set1_ps(inverse), &r));
}

static void save_int4(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    __m256i r = first_random(random);
    for (uint32_t i = 0; i < n; i += 32) {
        __m256i q = _mm256_add_epi8(round_32(src + i, _mm256_set1_ps(inverse), &r), _mm256_set1_epi8(8));
        __m256i both = _mm256_or_si256(_mm256_and_si256(q, _mm256_set1_epi16(15)), _mm256_srli_epi16(q, 4));
        both = _mm256_and_si256(both, _mm256_set1_epi16(0xff));
        both = _mm256_permute4x64_epi64(_mm256_packus_epi16(both, both), 0x08);
        _mm_storeu_si128((__m128i *)(void *)(data + i / 2), _mm256_castsi256_si128(both));
    }
}

INLINE __m256i round_to_upper_half(const float *x, __m256i random) {
    return _mm256_srli_epi32(_mm256_add_epi32(load_32(x), _mm256_srli_epi32(random, 16)), 16);
}

/* Rounding adds at most one to the upper half; where that makes an infinity, it is taken back. */
static void save_bf16(unsigned char *data, uint32_t n, const float *src, uint32_t random) {
    const __m256i magnitude = _mm256_set1_epi16(0x7fff), finite = _mm256_set1_epi16(0x7f7f);
    __m256i r0 = first_random(random);
    for (uint32_t i = 0; i < n; i += 16) {
        __m256i r1 = next_random(r0);
        __m256i h = _mm256_packus_epi32(round_to_upper_half(src + i, r0), round_to_upper_half(src + i + 8, r1));
        h = _mm256_add_epi16(h, _mm256_cmpgt_epi16(_mm256_and_si256(h, magnitude), finite));
        store_32(data + 2 * i, _mm256_permute4x64_epi64(h, 0xd8));
        r0 = next_random(r1);
    }
}

const frugi_residual_kernel frugi_residual_kernel_avx2 = {largest_magnitude, load_bf16, load_int8, load_int4,
                                                          save_bf16,         save_int8, save_int4};

/* unit_value_avx2.c - the loops of unit_value_kernel.h for x86-64 with AVX2. */
#include <immintrin.h>

#define VECTOR 32u
#include "codec/unit_value_loops.h"

static ALWAYS_INLINE wide_f64 load_wide(const float *x) {
    return (wide_f64)_mm256_cvtps_pd(_mm_loadu_ps(x));
}

/* The pack instructions work on each half of a vector, so the fours of bytes are out of order until the end. */
static ALWAYS_INLINE void narrow_step(const lanes_u32 *q, uint8_t *out) {
    __m256i shorts = _mm256_packus_epi32((__m256i)q[0], (__m256i)q[1]);
    __m256i bytes = _mm256_packus_epi16(shorts, shorts);
    __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    _mm_storeu_si128((__m128i *)(void *)out, _mm_unpacklo_epi32(low, high));
}

const frugi_value_kernel frugi_value_kernel_avx2 = {sum_magnitudes, sum_squares, split_by_sign,
                                                    split_by_size,  quantize,    frugi_encode_bf16_avx2};

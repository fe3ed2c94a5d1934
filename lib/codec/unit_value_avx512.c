/* unit_value_avx512.c - the loops of unit_value_kernel.h for x86-64 with AVX-512. */
#include <immintrin.h>

#define VECTOR 64u
#include "codec/unit_value_loops.h"

static ALWAYS_INLINE wide_f64 load_wide(const float *x) {
    return (wide_f64)_mm512_cvtps_pd(_mm256_loadu_ps(x));
}

static ALWAYS_INLINE void narrow_step(const lanes_u32 *q, uint8_t *out) {
    _mm_storeu_si128((__m128i *)(void *)out, _mm512_cvtepi32_epi8((__m512i)q[0]));
}

const frugi_value_kernel frugi_value_kernel_avx512 = {sum_magnitudes, sum_squares, split_by_sign,
                                                      split_by_size,  quantize,    frugi_encode_bf16_avx512};

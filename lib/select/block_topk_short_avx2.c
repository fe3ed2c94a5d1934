/* block_topk_short_avx2.c - the kernels for 64 and 128 elements with AVX2. */
#include "select/block_topk_avx2.h"

/* Distances to the maximum, converted to the steps of the keys. */
INLINE __m256i distance_to_steps(__m256i distance) {
    __m256i many = _mm256_add_epi16(_mm256_srli_epi16(distance, STEPS_SHIFT), _mm256_set1_epi16(STEPS_ONE));
    return _mm256_min_epu16(distance, many);
}

/* Keys of 32 elements, packed by fours out of order: 0 .. 3, 8 .. 11, 4 .. 7, 12 .. 15 in a, and so on in b. */
INLINE __m256i short_keys(__m256i top, __m256i a, __m256i b) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i down =
        _mm256_packus_epi16(distance_to_steps(_mm256_sub_epi16(top, a)), distance_to_steps(_mm256_sub_epi16(top, b)));
    return _mm256_permutevar8x32_epi32(_mm256_xor_si256(down, _mm256_set1_epi8(-1)), order);
}

INLINE void accumulate_block(const frugi_batch *batch, size_t b, size_t block) {
    const float *grad = batch->grad + block * b, *before = batch->before + block * b;
    float *acc = batch->acc + block * b, *saved = batch->saved ? batch->saved + block * b : NULL;
    const __m256 beta = _mm256_set1_ps(batch->beta);
    __m256i half[8], max = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t i = 0; i < block / 16; i++) {
        size_t o = 16 * i;
        __m256i x = accumulate_8(grad + o, before + o, acc + o, saved ? saved + o : NULL, beta);
        __m256i y = accumulate_8(grad + o + 8, before + o + 8, acc + o + 8, saved ? saved + o + 8 : NULL, beta);
        half[i] = _mm256_packus_epi32(x, y);
        max = _mm256_max_epu16(max, half[i]);
    }
    batch->lanes->top[b] = largest(max);
    const __m256i top = _mm256_set1_epi16((short)batch->lanes->top[b]);
#pragma GCC unroll 4
    for (size_t i = 0; i < block / 32; i++)
        _mm256_storeu_si256((__m256i *)(void *)(batch->lanes->slot[b] + 32 * i),
                            short_keys(top, half[2 * i], half[2 * i + 1]));
}

#include "select/block_topk_short.h"

const frugi_block_kernel frugi_block_kernel_64_avx2 = {accumulate_64, NULL, select_64};
const frugi_block_kernel frugi_block_kernel_128_avx2 = {accumulate_128, NULL, select_128};

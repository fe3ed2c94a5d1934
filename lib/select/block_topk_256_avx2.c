/* block_topk_256_avx2.c - the 256-element kernel with AVX2. */
#include "select/block_topk_avx2.h"

/* The maximum of each pair of adjacent elements; those of a, then those of b, in each half. */
INLINE __m256i pair_max(__m256i a, __m256i b) {
    const __m256i low = _mm256_set1_epi32(0xffff);
    a = _mm256_and_si256(_mm256_max_epu16(a, _mm256_srli_epi32(a, 16)), low);
    b = _mm256_and_si256(_mm256_max_epu16(b, _mm256_srli_epi32(b, 16)), low);
    return _mm256_packus_epi32(a, b);
}

/* Accumulate 64 elements. Returns the maxima of sixteen groups, even-numbered groups in the lower half. */
INLINE __m256i accumulate_maxima_64(const float *grad, const float *before, float *acc, float *saved, __m256 beta) {
    __m256i pair[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        size_t o = 16 * i;
        __m256i x = accumulate_8(grad + o, before + o, acc + o, saved ? saved + o : NULL, beta);
        __m256i y = accumulate_8(grad + o + 8, before + o + 8, acc + o + 8, saved ? saved + o + 8 : NULL, beta);
        pair[i] = _mm256_packus_epi32(x, y);
    }
    return pair_max(pair_max(pair[0], pair[1]), pair_max(pair[2], pair[3]));
}

INLINE void accumulate_block(frugi_batch *batch, size_t b) {
    const float *grad = batch->grad + 256 * b, *before = batch->before + 256 * b;
    float *acc = batch->acc + 256 * b, *saved = batch->saved ? batch->saved + 256 * b : NULL;
    const __m256 beta = _mm256_set1_ps(batch->beta);
    __m256i m[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        size_t o = 64 * i;
        m[i] = accumulate_maxima_64(grad + o, before + o, acc + o, saved ? saved + o : NULL, beta);
    }
    __m256i x = _mm256_max_epu16(_mm256_max_epu16(m[0], m[1]), _mm256_max_epu16(m[2], m[3]));
    uint16_t top = largest(x);
    batch->lanes->top[b] = top;
    const __m256i base = _mm256_set1_epi16((short)(top > 255 ? top - 255 : 0));
    for (size_t i = 0; i < 4; i++) {
        __m256i key = _mm256_subs_epu16(m[i], base);
        __m128i even = _mm256_castsi256_si128(key), odd = _mm256_extracti128_si256(key, 1);
        store(batch->lanes->group[b] + 16 * i, _mm_or_si128(even, _mm_slli_epi16(odd, 8)));
    }
}

INLINE uint32_t mask_ge_16(const uint8_t *key, uint8_t t) {
    __m128i x = load(key);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(x, _mm_set1_epi8((char)t)), x));
}

/* Eight magnitudes without their lowest bits. */
INLINE __m128i upper_8(const float *a, const float *b, int drop) {
    __m128i x = _mm_srli_epi32(_mm_slli_epi32(load(a), 1), drop + 1);
    return _mm_packus_epi32(x, _mm_srli_epi32(_mm_slli_epi32(load(b), 1), drop + 1));
}

/* `exact` uses one bit more than hist, which leaves fewer ties to resolve. */
INLINE lanes_u8 group_keys(const float *acc, const uint8_t *list, uint16_t bound, bool exact, uint8_t top_) {
    const __m128i under = _mm_set1_epi16((short)(exact ? 2 * bound - 1 : bound - 1)), top = _mm_set1_epi16(top_);
    const int drop = exact ? 15 : 16;
    __m128i x = upper_8(acc + 4 * (size_t)list[0], acc + 4 * (size_t)list[1], drop);
    __m128i y = upper_8(acc + 4 * (size_t)list[2], acc + 4 * (size_t)list[3], drop);
    x = _mm_min_epu16(_mm_subs_epu16(x, under), top);
    y = _mm_min_epu16(_mm_subs_epu16(y, under), top);
    return (lanes_u8)_mm_packus_epi16(x, y);
}

INLINE lanes_u8 coarse_keys(const float *x, uint16_t base_) {
    const __m128i base = _mm_set1_epi16((short)base_);
    __m128i a = _mm_subs_epu16(upper_8(x, x + 4, 16), base), b = _mm_subs_epu16(upper_8(x + 8, x + 12, 16), base);
    return (lanes_u8)_mm_packus_epi16(_mm_srli_epi16(a, 2), _mm_srli_epi16(b, 2));
}

INLINE void slots_to_indices(const uint8_t *list, const uint8_t *slots, uint16_t *idx) {
    __m128i slot = load(slots), number = _mm_and_si128(_mm_srli_epi16(slot, 2), _mm_set1_epi8(31));
    __m128i low = _mm_shuffle_epi8(load(list), number), high = _mm_shuffle_epi8(load(list + 16), number);
    __m128i group = _mm_blendv_epi8(low, high, _mm_slli_epi16(number, 3)); /* bit 4 selects the half of the list */
    __m128i at = _mm_or_si128(_mm_slli_epi16(group, 2), _mm_and_si128(slot, _mm_set1_epi8(3)));
    _mm256_storeu_si256((__m256i *)(void *)idx, _mm256_cvtepu8_epi16(at));
}

#include "select/block_topk_256.h"

const frugi_block_kernel frugi_block_kernel_256_avx2 = {accumulate, select_batch};

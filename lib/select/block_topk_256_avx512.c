/* block_topk_256_avx512.c - the 256-element kernel with AVX-512, in which a block fits in 16 registers. */
#include "select/block_topk_avx512.h"

#include "base/stored_floats_avx512.h"
#include "select/block_gather.h"
#include "select/block_topk_lanes.h"

#define SEARCHED          4u
#define GATHERED_BY_INDEX 48u

typedef uint16_t words_u16 __attribute__((vector_size(64)));

/* Upper halves of the magnitudes of 32 elements; in each quarter of the result four of x, then four of y. */
INLINE __m512i upper_halves(__m512 x, __m512 y) {
    __m512i a = _mm512_srli_epi32(_mm512_castps_si512(x), 16), b = _mm512_srli_epi32(_mm512_castps_si512(y), 16);
    return _mm512_and_si512(_mm512_packus_epi32(a, b), _mm512_set1_epi16(0x7fff));
}

/* The smallest of 16 and of 32 words, and the largest of 32. */
INLINE uint32_t smallest_16(__m256i x) {
    __m128i y = _mm_min_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return (uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(y)) & 0xffffu;
}

INLINE uint32_t smallest_32(__m512i x) {
    return smallest_16(_mm256_min_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)));
}

INLINE uint32_t largest_32(__m512i x) {
    return 0xffffu - smallest_32(_mm512_xor_si512(x, _mm512_set1_epi16(-1)));
}

/* What is subtracted from upper halves: one less than the smallest maximum of a group. Sets `most` to the maxima of
 * columns. */
INLINE uint32_t key_base(const __m512i *word, uint32_t groups, uint32_t shift, __m512i *most) {
    __m512i two[4], four[2];
    for (int i = 0; i < 4; i++)
        two[i] = _mm512_max_epu16(word[2 * i], word[2 * i + 1]);
    four[0] = _mm512_max_epu16(two[0], two[1]);
    four[1] = _mm512_max_epu16(two[2], two[3]);
    *most = _mm512_max_epu16(four[0], four[1]);
    uint32_t bound, range = 255u << shift;
    if (groups == 16)
        bound = smallest_16(_mm256_max_epu16(_mm512_castsi512_si256(*most), _mm512_extracti64x4_epi64(*most, 1)));
    else if (groups == 32)
        bound = smallest_32(*most);
    else if (groups == 64)
        bound = smallest_32(_mm512_min_epu16(four[0], four[1]));
    else if (groups == 128)
        bound = smallest_32(_mm512_min_epu16(_mm512_min_epu16(two[0], two[1]), _mm512_min_epu16(two[2], two[3])));
    else
        bound = largest_32(*most) > range ? largest_32(*most) - range : 0;
    return bound > 0 ? bound - 1 : 0;
}

/* Keys of 64 elements, in index order. */
INLINE __m512i keys_64(__m512i x, __m512i y, __m512i base, uint32_t shift) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    words_u16 a = (words_u16)_mm512_subs_epu16(x, base) >> (uint16_t)shift;
    words_u16 b = (words_u16)_mm512_subs_epu16(y, base) >> (uint16_t)shift;
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16((__m512i)a, (__m512i)b));
}

/* Sixteen elements of a residual, from element i on. */
INLINE __m512 residual_16(const residual_block *r, frugi_residual format, size_t i) {
    const __m512 scale = _mm512_set1_ps(r->scale);
    switch (format) {
    case FRUGI_RESIDUAL_BF16: return stored_bf16_16(r->stored + 2 * i);
    case FRUGI_RESIDUAL_INT8: return stored_int8_16(r->stored + i, scale);
    case FRUGI_RESIDUAL_INT4: return stored_int4_16(r->stored + i / 2, scale);
    default: return _mm512_loadu_ps(r->floats + i);
    }
}

INLINE void accumulate_block(frugi_batch *batch, size_t b, frugi_residual format, uint32_t groups, uint32_t shift) {
    frugi_batch_scratch *s = batch->lanes;
    const float *grad = batch->grad + 256 * b;
    const residual_block residual = residual_of(batch, b, format);
    const __m512 beta = _mm512_set1_ps(batch->beta);
    __m512 x[16];
    __m512i word[8], most;
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        x[i] =
            _mm512_add_ps(_mm512_mul_ps(beta, residual_16(&residual, format, 16 * i)), _mm512_loadu_ps(grad + 16 * i));
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        word[i] = upper_halves(x[2 * i], x[2 * i + 1]);
    const __m512i base = _mm512_set1_epi16((short)key_base(word, groups, shift, &most));
    bool finite = _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(INF_HALF)) == 0;
    s->top[b] = finite ? 0 : INF_HALF;
    if (format == FRUGI_RESIDUAL_F32 && __builtin_expect(!finite, 0) && batch->saved)
        memcpy(batch->saved + 256 * b, residual.floats, 256 * sizeof *residual.floats);
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        _mm512_storeu_ps(batch->acc + 256 * b + 16 * i, x[i]);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        _mm512_storeu_si512(s->slot[b] + 64 * i, keys_64(word[2 * i], word[2 * i + 1], base, shift));
}

INLINE uint32_t count_reaching_t(const __m512i *key, uint32_t t) {
    const __m512i guess = _mm512_set1_epi8((char)t);
    return (uint32_t)(__builtin_popcountll(_mm512_cmpge_epu8_mask(key[0], guess)) +
                      __builtin_popcountll(_mm512_cmpge_epu8_mask(key[1], guess)) +
                      __builtin_popcountll(_mm512_cmpge_epu8_mask(key[2], guess)) +
                      __builtin_popcountll(_mm512_cmpge_epu8_mask(key[3], guess)));
}

INLINE void search_blocks(frugi_batch *batch, size_t b) {
    frugi_batch_scratch *s = batch->lanes;
    __m512i key[SEARCHED][4];
    uint32_t t[SEARCHED] = {0};
#pragma GCC unroll 4
    for (size_t i = 0; i < SEARCHED; i++)
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++)
            key[i][j] = _mm512_loadu_si512(s->slot[b + i] + 64 * j);
    for (uint32_t bit = 128; bit; bit >>= 1)
#pragma GCC unroll 4
        for (size_t i = 0; i < SEARCHED; i++)
            t[i] |= count_reaching_t(key[i], t[i] | bit) >= batch->k[b + i] ? bit : 0;
#pragma GCC unroll 4
    for (size_t i = 0; i < SEARCHED; i++) {
        uint32_t found = 0;
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++) {
            s->mark[b + i][j] = _mm512_cmpge_epu8_mask(key[i][j], _mm512_set1_epi8((char)t[i]));
            found += (uint32_t)__builtin_popcountll(s->mark[b + i][j]);
        }
        s->threshold[b + i] = (uint8_t)t[i];
        s->found[b + i] = (uint16_t)found;
    }
}

INLINE void mark_above(const frugi_batch_scratch *s, size_t b, uint64_t *above) {
    for (size_t j = 0; j < 4; j++)
        above[j] =
            _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(s->slot[b] + 64 * j), _mm512_set1_epi8((char)s->threshold[b]));
}

INLINE void widen_32(const uint8_t *src, uint16_t *dst) {
    _mm512_storeu_si512(dst, _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)src)));
}

#include "select/block_topk_256_keys.h"

/* ---- gather and scatter ---------------------------------------------------------------------- */

INLINE void gather_bitmap(const float *acc, const uint64_t *mark, float *values) {
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) {
        uint32_t bits = (uint16_t)(mark[i / 4] >> (16 * (i % 4)));
        _mm512_storeu_ps(values, _mm512_maskz_compress_ps((__mmask16)bits, _mm512_loadu_ps(acc + 16 * i)));
        values += __builtin_popcount(bits);
    }
}

INLINE void scatter_bitmap(const float *values, const uint64_t *mark, float *acc) {
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) {
        uint32_t bits = (uint16_t)(mark[i / 4] >> (16 * (i % 4)));
        __m512 x = _mm512_loadu_ps(acc + 16 * i);
        _mm512_storeu_ps(acc + 16 * i, _mm512_mask_expand_ps(x, (__mmask16)bits, _mm512_loadu_ps(values)));
        values += __builtin_popcount(bits);
    }
}

static void gather(const frugi_batch *batch, float *values) {
    for (size_t b = 0; b < batch->blocks; b++) {
        uint32_t k = batch->k[b];
        if (batch->skipped[b])
            memset(values, 0, k * sizeof *values);
        else if (k > GATHERED_BY_INDEX)
            gather_bitmap(batch->acc + 256 * b, batch->lanes->mark[b], values);
        else
            frugi_gather_values(batch->acc + 256 * b, batch->idx + 256 * b, k, values);
        values += k;
    }
}

static void scatter(const frugi_batch *batch, const float *values) {
    for (size_t b = 0; b < batch->blocks; b++) {
        uint32_t k = batch->k[b];
        if (!batch->skipped[b] && k > GATHERED_BY_INDEX)
            scatter_bitmap(values, batch->lanes->mark[b], batch->acc + 256 * b);
        else if (!batch->skipped[b])
            frugi_scatter_values(values, batch->idx + 256 * b, k, batch->acc + 256 * b);
        values += k;
    }
}

static const frugi_bitmap_moves moves = {gather, scatter};

static void select_and_move(frugi_batch *batch) {
    select_batch(batch);
    batch->moves = &moves;
}

const frugi_block_kernel frugi_block_kernel_256_avx512 = {accumulate, accumulate_stored, select_and_move};

/*
 * block_topk_256_avx2.c - the 256-element kernel with AVX2. Keys have an offset of 128, because there is no comparison
 * of unsigned bytes.
 */
#include "select/block_topk_avx2.h"

#include "base/stored_floats_avx2.h"
#include "select/block_topk_lanes.h"

#define QUADS    2u /* groups of four blocks that are searched at the same time */
#define SEARCHED (4 * QUADS)

#define GATHERED_BY_INDEX 256u

INLINE __m256i load_32(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Sixteen elements of a residual, from element i on. */
INLINE stored_16 residual_16(const residual_block *r, frugi_residual format, size_t i) {
    const __m256 scale = _mm256_set1_ps(r->scale);
    switch (format) {
    case FRUGI_RESIDUAL_BF16: return stored_bf16_16(r->stored + 2 * i);
    case FRUGI_RESIDUAL_INT8: return stored_int8_16(r->stored + i, scale);
    case FRUGI_RESIDUAL_INT4: return stored_int4_16(r->stored + i / 2, scale);
    default: return (stored_16){_mm256_loadu_ps(r->floats + i), _mm256_loadu_ps(r->floats + i + 8)};
    }
}

/* The accumulators of sixteen elements. */
INLINE stored_16 accumulated(const float *grad, stored_16 residual, __m256 beta) {
    return (stored_16){_mm256_add_ps(_mm256_mul_ps(beta, residual.low), _mm256_loadu_ps(grad)),
                       _mm256_add_ps(_mm256_mul_ps(beta, residual.high), _mm256_loadu_ps(grad + 8))};
}

INLINE void store_16(float *dst, stored_16 x) {
    _mm256_storeu_ps(dst, x.low);
    _mm256_storeu_ps(dst + 8, x.high);
}

/* Upper halves of the magnitudes of 16 elements; in each half of the result four of x, then four of y. */
INLINE __m256i upper_halves(__m256 x, __m256 y) {
    __m256i a = _mm256_srli_epi32(_mm256_castps_si256(x), 16), b = _mm256_srli_epi32(_mm256_castps_si256(y), 16);
    return _mm256_and_si256(_mm256_packus_epi32(a, b), _mm256_set1_epi16(0x7fff));
}

INLINE uint32_t smallest(__m256i x) {
    __m128i y = _mm_min_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return (uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(y)) & 0xffffu;
}

/* `least` becomes the smallest maximum of each column of a group, `most` the largest. */
INLINE void column_maxima(const __m256i *word, uint32_t groups, __m256i *least, __m256i *most) {
    const uint32_t rows = groups ? 256 / groups : 16; /* a group is one column of so many words */
    *least = _mm256_set1_epi16(-1);
    *most = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t i = 0; i < 16; i += rows) {
        __m256i column = word[i];
#pragma GCC unroll 16
        for (size_t j = i + 1; j < i + rows; j++)
            column = _mm256_max_epu16(column, word[j]);
        *least = _mm256_min_epu16(*least, column);
        *most = _mm256_max_epu16(*most, column);
    }
}

/* What is subtracted from upper halves: one less than the smallest maximum of a group. */
INLINE uint32_t key_base(__m256i least, __m256i most, uint32_t groups, uint32_t shift) {
    uint32_t range = 255u << shift;
    uint32_t bound = groups ? smallest(least) : largest(most) > range ? largest(most) - range : 0;
    return bound > 0 ? bound - 1 : 0;
}

/* Keys of 32 elements, in index order. */
INLINE __m256i keys_32(__m256i x, __m256i y, __m256i base, uint32_t shift) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), offset = _mm256_set1_epi8(-128);
    x = _mm256_srli_epi16(_mm256_subs_epu16(x, base), (int)shift);
    y = _mm256_srli_epi16(_mm256_subs_epu16(y, base), (int)shift);
    return _mm256_permutevar8x32_epi32(_mm256_xor_si256(_mm256_packus_epi16(x, y), offset), order);
}

/* Accumulators that replace the residual are computed twice: the first time to know whether they are finite. */
INLINE void accumulate_block(frugi_batch *batch, size_t b, frugi_residual format, uint32_t groups, uint32_t shift) {
    frugi_batch_scratch *s = batch->lanes;
    const float *grad = batch->grad + 256 * b;
    float *acc = batch->acc + 256 * b;
    const residual_block residual = residual_of(batch, b, format);
    const __m256 beta = _mm256_set1_ps(batch->beta);
    __m256i word[16], least, most;
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) {
        stored_16 x = accumulated(grad + 16 * i, residual_16(&residual, format, 16 * i), beta);
        if (format != FRUGI_RESIDUAL_F32)
            store_16(acc + 16 * i, x);
        word[i] = upper_halves(x.low, x.high);
    }
    column_maxima(word, groups, &least, &most);
    const __m256i base = _mm256_set1_epi16((short)key_base(least, most, groups, shift));
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        _mm256_storeu_si256((__m256i *)(void *)(s->slot[b] + 32 * i),
                            keys_32(word[2 * i], word[2 * i + 1], base, shift));
    __m256i infinite = _mm256_cmpgt_epi16(most, _mm256_set1_epi16(INF_HALF - 1));
    bool finite = _mm256_testz_si256(infinite, infinite);
    s->top[b] = finite ? 0 : INF_HALF;
    if (format != FRUGI_RESIDUAL_F32)
        return;
    if (__builtin_expect(!finite, 0) && batch->saved)
        memcpy(batch->saved + 256 * b, residual.floats, 256 * sizeof *residual.floats);
#pragma GCC unroll 16
    for (size_t i = 0; i < 256; i += 16)
        store_16(acc + i, accumulated(grad + i, residual_16(&residual, format, i), beta));
}

/* The number of keys of a block below a guess, as four partial sums of 64 bits. */
INLINE __m256i count_below(const uint8_t *key, __m256i guess) {
    __m256i c[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        c[i] = _mm256_cmpgt_epi8(guess, load_32(key + 32 * i));
#pragma GCC unroll 3
    for (size_t n = 4; n; n /= 2)
#pragma GCC unroll 4
        for (size_t i = 0; i < n; i++)
            c[i] = _mm256_add_epi8(c[i], c[i + n]);
    return _mm256_sad_epu8(_mm256_sub_epi8(_mm256_setzero_si256(), c[0]), _mm256_setzero_si256());
}

/* The thresholds of four blocks so far, in the low half, and the most keys that may be below them. */
typedef struct four_blocks {
    __m128i threshold, limit;
} four_blocks;

INLINE __m256i guess_of(__m256i all, int i) {
    return _mm256_shuffle_epi8(all, _mm256_set1_epi8((char)(2 * i)));
}

/* Decide one bit of the thresholds of four blocks. */
INLINE void decide_bit(uint8_t (*slot)[256], four_blocks *f, __m128i bit) {
    __m128i guess = _mm_xor_si128(_mm_or_si128(f->threshold, bit), _mm_set1_epi16(0x80));
    __m256i all = _mm256_broadcastq_epi64(guess);
    __m256i n0 = count_below(slot[0], guess_of(all, 0)), n1 = count_below(slot[1], guess_of(all, 1));
    __m256i n2 = count_below(slot[2], guess_of(all, 2)), n3 = count_below(slot[3], guess_of(all, 3));
    __m256i sum = _mm256_or_si256(_mm256_or_si256(n0, _mm256_slli_epi64(n1, 16)),
                                  _mm256_or_si256(_mm256_slli_epi64(n2, 32), _mm256_slli_epi64(n3, 48)));
    __m128i below = _mm_add_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    below = _mm_add_epi16(below, _mm_unpackhi_epi64(below, below));
    f->threshold = _mm_or_si128(f->threshold, _mm_andnot_si128(_mm_cmpgt_epi16(below, f->limit), bit));
}

/* One bit per key of 64 that is greater than t. */
INLINE uint64_t keys_above(const uint8_t *key, __m256i t) {
    uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(load_32(key), t));
    uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(load_32(key + 32), t));
    return (uint64_t)high << 32 | low;
}

/* One bit per key of 64 that is at least t. */
INLINE uint64_t keys_reaching(const uint8_t *key, __m256i t) {
    uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(t, load_32(key)));
    uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(t, load_32(key + 32)));
    return ~((uint64_t)high << 32 | low);
}

INLINE __m256i offset_threshold(uint32_t t) {
    return _mm256_set1_epi8((char)(t ^ 0x80));
}

INLINE void mark_reaching(frugi_batch_scratch *s, size_t b, uint32_t t) {
    uint32_t found = 0;
    for (size_t w = 0; w < 4; w++) {
        s->mark[b][w] = keys_reaching(s->slot[b] + 64 * w, offset_threshold(t));
        found += (uint32_t)__builtin_popcountll(s->mark[b][w]);
    }
    s->found[b] = (uint16_t)found;
    s->threshold[b] = (uint8_t)t;
}

INLINE void mark_above(const frugi_batch_scratch *s, size_t b, uint64_t *above) {
    for (size_t w = 0; w < 4; w++)
        above[w] = keys_above(s->slot[b] + 64 * w, offset_threshold(s->threshold[b]));
}

INLINE void search_blocks(frugi_batch *batch, size_t b) {
    frugi_batch_scratch *s = batch->lanes;
    four_blocks four[QUADS];
    for (size_t q = 0; q < QUADS; q++) {
        __m128i k = load(batch->k + b + 4 * q);
        four[q].threshold = _mm_setzero_si128();
        four[q].limit = _mm_sub_epi16(_mm_set1_epi16(256), _mm_packus_epi32(k, k));
    }
#pragma GCC unroll 1
    for (short bit = 128; bit; bit >>= 1)
        for (size_t q = 0; q < QUADS; q++)
            decide_bit(s->slot + b + 4 * q, &four[q], _mm_set1_epi16(bit));
    for (size_t i = 0; i < SEARCHED; i++)
        mark_reaching(s, b + i,
                      (uint32_t)((uint64_t)_mm_cvtsi128_si64(four[i / 4].threshold) >> (16 * (i % 4))) & 255u);
}

INLINE void widen_32(const uint8_t *src, uint16_t *dst) {
    _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_cvtepu8_epi16(load(src)));
    _mm256_storeu_si256((__m256i *)(void *)(dst + 16), _mm256_cvtepu8_epi16(load(src + 16)));
}

#include "select/block_topk_256_keys.h"

const frugi_block_kernel frugi_block_kernel_256_avx2 = {accumulate, accumulate_stored, select_batch};

/*
 * probabilistic.c - systematic sampling with probability proportional to magnitude.
 *
 * The scale: a histogram over the upper halves of the magnitudes gives for every bf16 u how many magnitudes reach it
 * and, because it also sums the lower halves as integers, the exact sum of the smaller ones; so one pass
 * serves all candidates. The draw: probabilities are multiples of 2^-32, so sums are exact, a thread knows the sum of
 * those before it, and an entry is selected when the running sum overflows 32 bits. Cost: one pass each; the
 * draw takes two with several threads.
 */
#include "select/probabilistic.h"

#include "base/float_bits.h"
#include "select/tensor_topk_scratch.h"

#include <math.h>

#define FLUSH           (((uint64_t)1 << 24) - 1) /* elements whose count and sum of lower halves fit together into 64 bits */
#define LOW_BITS        40
#define FINITE          (FRUGI_INF_BITS >> 16) /* bins of finite magnitudes */
#define CHUNK           FRUGI_TOPK_CHUNK
#define PROBABILITY_ONE 0x1p32

/* ---- scale ----------------------------------------------------------------------------------- */

static void flush_bins(uint64_t *bin, uint64_t *totals) {
    for (uint32_t i = 0; i < FINITE; i++) {
        totals[2 * i] += bin[i] >> LOW_BITS;
        totals[2 * i + 1] += bin[i] & (((uint64_t)1 << LOW_BITS) - 1);
    }
    memset(bin, 0, FRUGI_TOPK_BINS * sizeof *bin);
}

/* Count n <= FLUSH elements from `begin` on into the bins of one thread. */
static void fill_bins(const frugi_float_array *span, uint64_t begin, uint64_t n, uint64_t *bin) {
    frugi_topk_walk walk = {span, begin, n};
    for (frugi_float_array piece = frugi_topk_walk_next(&walk); piece.n; piece = frugi_topk_walk_next(&walk))
        for (uint64_t i = 0; i < piece.n; i++) {
            uint32_t key = frugi_magnitude(piece.x[i]);
            bin[key >> 16] += (uint64_t)1 << LOW_BITS | (key & 0xffffu);
        }
}

static void fill_totals(frugi_topk *whole, const frugi_float_array *span, uint64_t n, int threads) {
    memset(whole->totals, 0, 2 * FRUGI_TOPK_BINS * sizeof *whole->totals);
    memset(whole->bins, 0, (size_t)threads * FRUGI_TOPK_BINS * sizeof *whole->bins);
    uint64_t most = (uint64_t)threads * FLUSH;
    for (uint64_t begin = 0; begin < n; begin += most) {
        uint64_t part = n - begin < most ? n - begin : most;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
        for (int t = 0; t < threads; t++) {
            frugi_topk_walk walk = frugi_topk_walk_share(span, part, t, threads);
            fill_bins(span, begin + walk.skip, walk.left, whole->share[t].bin);
        }
        for (int t = 0; t < threads; t++)
            flush_bins(whole->share[t].bin, whole->totals);
    }
}

/* The sum of the magnitudes of bin i. */
static double bin_sum(const uint64_t *totals, uint32_t i) {
    double first = (double)frugi_bf16_f32((uint16_t)i), even = (double)frugi_bf16_f32((uint16_t)(i & ~1u));
    double step = ((double)frugi_bf16_f32((uint16_t)(i | 1u)) - even) *
                  0x1p-16; /* value of 1 in the lower half; the exponent is the same */
    return (double)totals[2 * i] * first + (double)totals[2 * i + 1] * step;
}

float frugi_probabilistic_scale(frugi_topk *whole, const frugi_float_array *span, size_t spans, uint64_t k,
                                int threads) {
    uint64_t n = frugi_topk_elements(span, spans), reaching = n;
    double smaller = 0;
    threads = frugi_topk_threads(whole, threads, n);
    fill_totals(whole, span, n, threads);
    if (n - whole->totals[0] <= k && frugi_topk_count(whole, span, spans, 1, threads) <= k)
        return 0.0f;
    for (uint32_t i = 0; i < FINITE; i++) { /* the sum of probabilities decreases with i */
        double scale = (double)frugi_bf16_f32((uint16_t)i);
        if (i > 0 && (double)reaching + smaller / scale <= (double)k)
            return (float)scale;
        reaching -= whole->totals[2 * i];
        smaller += bin_sum(whole->totals, i);
    }
    return INFINITY;
}

/* ---- draw ------------------------------------------------------------------------------------ */

typedef struct probabilities {
    uint32_t sure;  /* the smallest key with probability 1 */
    double per_one; /* 2^32 / scale */
} probabilities;

static probabilities probabilities_for(float scale) {
    uint32_t key = frugi_magnitude(scale);
    return (probabilities){key ? key : 1, key ? PROBABILITY_ONE / (double)scale : 0.0};
}

/* The probability of each element in multiples of 2^-32, rounded down; 0 for those with probability 1. */
static void compute_probabilities(const float *x, uint32_t n, probabilities c, uint32_t *p) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = frugi_magnitude(x[i]);
        uint32_t small = key < c.sure ? key : 0;
        p[i] = (uint32_t)((double)frugi_bits_f32(small) * c.per_one);
    }
}

/* The number of elements with probability 1, and the sum of the probabilities of the others. */
static void sum_probabilities(const frugi_topk *whole, const float *x, uint64_t n, probabilities c, uint64_t *sures,
                              uint64_t *sum) {
    uint32_t p[CHUNK];
    *sures = *sum = 0;
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint32_t part = (uint32_t)(n - i < CHUNK ? n - i : CHUNK);
        compute_probabilities(x + i, part, c, p);
        *sures += whole->kernel->count(x + i, part, c.sure);
        for (uint32_t j = 0; j < part; j++)
            *sum += p[j];
    }
}

/* Draw from the elements begin .. begin + n - 1, with a running sum that starts at `at`. */
static void draw_share(const frugi_topk *whole, const float *x, uint64_t begin, uint64_t n, probabilities c,
                       uint32_t at, uint32_t *sure, uint64_t *sures, uint32_t *drawn, uint64_t *draws) {
    uint32_t p[CHUNK], stage[FRUGI_TOPK_STAGE]; /* staged, because the lists have no room for the extra entries */
    float value[FRUGI_TOPK_STAGE];
    *sures = *draws = 0;
    for (uint64_t i = begin; i < begin + n; i += CHUNK) {
        uint32_t part = (uint32_t)(begin + n - i < CHUNK ? begin + n - i : CHUNK), got = 0;
        compute_probabilities(x + i, part, c, p);
        for (uint32_t j = 0; j < part; j++) {
            stage[got] = (uint32_t)i + j;
            at += p[j];
            got += at < p[j]; /* the sum has wrapped: it passed an integer */
        }
        memcpy(drawn + *draws, stage, got * sizeof *drawn);
        *draws += got;
        got = whole->kernel->emit(x + i, part, (uint32_t)i, c.sure, stage, value);
        memcpy(sure + *sures, stage, got * sizeof *sure);
        *sures += got;
    }
}

void frugi_probabilistic_draw(frugi_topk *whole, const frugi_float_array *span, float scale, uint32_t random,
                              uint32_t *sure, uint64_t *sures, uint32_t *drawn, uint64_t *draws, int threads) {
    probabilities c = probabilities_for(scale);
    threads = frugi_topk_threads(whole, threads, span->n);
    if (threads == 1) {
        draw_share(whole, span->x, 0, span->n, c, random, sure, sures, drawn, draws);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        frugi_topk_walk walk = frugi_topk_walk_share(span, span->n, t, threads);
        frugi_topk_share *share = &whole->share[t];
        sum_probabilities(whole, span->x + walk.skip, walk.left, c, &share->below, &share->inside);
    }
    uint64_t first = 0, at = random;
    for (int t = 0; t < threads; t++) {
        frugi_topk_share *share = &whole->share[t];
        share->first = first;
        share->allowance = at;
        first += share->below;
        at += share->inside;
    }
    *sures = first;
    *draws = at >> 32;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        frugi_topk_walk walk = frugi_topk_walk_share(span, span->n, t, threads);
        const frugi_topk_share *share = &whole->share[t];
        uint64_t some, more;
        draw_share(whole, span->x, walk.skip, walk.left, c, (uint32_t)share->allowance, sure + share->first, &some,
                   drawn + (share->allowance >> 32), &more);
    }
}

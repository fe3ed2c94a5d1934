/*
 * learned_mask.c - masks from scores that track the energy of units.
 *
 * Units are in one of three classes, in order of priority: overdue, in the mask, other. At most one class is selected
 * in part, so each unit gets one key - the maximum for a class that is selected completely, a rank for the class that
 * is selected in part, zero for the rest - and one exact top-k over the keys selects the units. Scores may be negative
 * and keys may not: the cutoff lies either among the positive scores or among the others, and only scores on that side
 * get different keys. Cost: a few passes over the units.
 */
#include "select/learned_mask.h"

#include "base/float_bits.h"
#include "base/alloc.h"
#include "base/status.h"

#include <float.h>
#include <math.h>

#define KEY_MAX (FRUGI_INF_BITS - 1) /* the key of the largest float */

typedef enum unit_class { OVERDUE, MASKED, OTHER } unit_class;

frug_status frugi_learned_create(uint64_t units, frugi_learned *learned) {
    frugi_learned made = {.units = units, .fresh = 1};
    if (units <= UINT32_MAX) {
        made.score = frugi_alloc((size_t)units * sizeof *made.score);
        made.waited = frugi_alloc((size_t)units * sizeof *made.waited);
        made.mask = frugi_alloc((size_t)units);
    }
    if (!made.score || !made.waited || !made.mask) {
        frugi_learned_destroy(&made);
        return frugi_fail(FRUG_ERR_MEMORY, "out of memory for the scores of %llu units", (unsigned long long)units);
    }
    *learned = made;
    return FRUG_OK;
}

void frugi_learned_destroy(frugi_learned *learned) {
    frugi_free(learned->score);
    frugi_free(learned->waited);
    frugi_free(learned->mask);
    *learned = (frugi_learned){0};
}

static void update_scores(frugi_learned *l, const float *energy, double rate) {
    double sum = 0;
    for (uint64_t u = 0; u < l->units; u++)
        sum += (double)energy[u];
    if (!(sum > 0))
        return;
    double mean = sum / (double)l->units;
    for (uint64_t u = 0; u < l->units; u++) {
        double s = (double)l->score[u] + rate * ((double)energy[u] / mean - 1.0);
        s = s < -(double)FLT_MAX ? -(double)FLT_MAX : s > (double)FLT_MAX ? (double)FLT_MAX : s;
        l->score[u] = (float)s;
    }
}

/* ---- selection ------------------------------------------------------------------------------- */

static unit_class class_of(const frugi_learned *l, uint64_t u, uint64_t age) {
    return l->waited[u] >= age ? OVERDUE : l->mask[u] ? MASKED : OTHER;
}

/* A key between 0 and KEY_MAX - 1 that orders the positive scores, or the others. */
static uint32_t rank_score(float score, int among_positive) {
    uint32_t m = frugi_magnitude(score);
    if (among_positive)
        return score > 0 ? (m < KEY_MAX ? m : KEY_MAX - 1) : 0;
    if (score > 0)
        return KEY_MAX - 1;
    return KEY_MAX - 2 - (m < KEY_MAX - 3 ? m : KEY_MAX - 3);
}

static uint64_t select_keys(frugi_topk *whole, const float *keys, uint64_t units, uint64_t k, uint32_t *list,
                            int threads) {
    frugi_float_array span = {keys, units};
    frugi_cutoff cut = frugi_topk_cutoff(whole, &span, 1, k, threads);
    return frugi_topk_emit(whole, &span, &cut, list, NULL, threads);
}

/* Set the mask to the k highest scores. */
static void renew_mask(frugi_learned *l, frugi_topk *whole, uint64_t k, float *keys, uint32_t *list, int threads) {
    uint64_t positive = 0;
    for (uint64_t u = 0; u < l->units; u++)
        positive += l->score[u] > 0;
    for (uint64_t u = 0; u < l->units; u++)
        keys[u] = frugi_bits_f32(rank_score(l->score[u], positive >= k));
    uint64_t got = select_keys(whole, keys, l->units, k, list, threads);
    memset(l->mask, 0, (size_t)l->units);
    for (uint64_t i = 0; i < got; i++)
        l->mask[list[i]] = 1;
    l->fresh = 0;
}

/* Only overdue units, those that have waited longest first. */
static void rank_waiting(const frugi_learned *l, uint64_t age, float *keys) {
    for (uint64_t u = 0; u < l->units; u++) {
        uint32_t waited = l->waited[u] < KEY_MAX ? l->waited[u] + 1 : KEY_MAX;
        keys[u] = frugi_bits_f32(class_of(l, u, age) == OVERDUE ? waited : 0);
    }
}

/* All of the classes before `cut`, the highest scores of class `cut`, none of the classes after. */
static void rank_classes(const frugi_learned *l, uint64_t age, unit_class cut, int among_positive, float *keys) {
    for (uint64_t u = 0; u < l->units; u++) {
        unit_class c = class_of(l, u, age);
        uint32_t key = c < cut ? KEY_MAX : c > cut ? 0 : rank_score(l->score[u], among_positive);
        keys[u] = frugi_bits_f32(key);
    }
}

uint64_t frugi_learned_step(frugi_learned *l, frugi_topk *whole, const float *energy, uint64_t k, uint64_t step,
                            uint64_t refresh, uint64_t age, double rate, float *scratch, uint32_t *list, int threads) {
    k = k < l->units ? k : l->units;
    update_scores(l, energy, rate);
    if (k > 0 && (l->fresh || refresh == 0 || step % refresh == 0))
        renew_mask(l, whole, k, scratch, list, threads);
    uint64_t size[3] = {0}, positive[3] = {0}, got = 0;
    for (uint64_t u = 0; u < l->units; u++) {
        unit_class c = class_of(l, u, age);
        size[c]++;
        positive[c] += l->score[u] > 0;
    }
    unit_class cut = size[OVERDUE] + size[MASKED] >= k ? MASKED : OTHER;
    uint64_t complete = size[OVERDUE] + (cut == OTHER ? size[MASKED] : 0);
    if (size[OVERDUE] >= k)
        rank_waiting(l, age, scratch);
    else
        rank_classes(l, age, cut, positive[cut] >= k - complete, scratch);
    if (k > 0)
        got = select_keys(whole, scratch, l->units, k, list, threads);
    for (uint64_t u = 0; u < l->units; u++)
        l->waited[u] += l->waited[u] < UINT32_MAX;
    for (uint64_t i = 0; i < got; i++)
        l->waited[list[i]] = 0;
    return got;
}

/* ---- state ----------------------------------------------------------------------------------- */

size_t frugi_learned_bytes(const frugi_learned *l) {
    return (size_t)l->units * (sizeof *l->score + sizeof *l->waited + sizeof *l->mask) + 1;
}

void frugi_learned_export(const frugi_learned *l, unsigned char *dst) {
    size_t n = (size_t)l->units;
    memcpy(dst, l->score, n * sizeof *l->score);
    memcpy(dst + 4 * n, l->waited, n * sizeof *l->waited);
    memcpy(dst + 8 * n, l->mask, n);
    dst[9 * n] = l->fresh;
}

int frugi_learned_check(const frugi_learned *like, const unsigned char *src) {
    size_t n = (size_t)like->units;
    for (size_t u = 0; u < n; u++)
        if ((frugi_get32(src + 4 * u) & FRUGI_ABS_MASK) >= FRUGI_INF_BITS || src[8 * n + u] > 1)
            return 0;
    return src[9 * n] <= 1;
}

void frugi_learned_import(frugi_learned *l, const unsigned char *src) {
    size_t n = (size_t)l->units;
    memcpy(l->score, src, n * sizeof *l->score);
    memcpy(l->waited, src + 4 * n, n * sizeof *l->waited);
    memcpy(l->mask, src + 8 * n, n);
    l->fresh = src[9 * n];
}

/*
 * bench_reference.c - the baseline of optimizers with few states: all means of AdamW, in double.
 *
 * Once on the entries that the optimizer selects from every gradient, and once on the whole gradient. Entries are
 * selected as the library does: the largest of every chunk, of equal ones the first, with even shares or with those of
 * lib/optim/sgc_adaptive.c.
 */
#include "program/bench/bench_gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BETA1        0.9
#define BETA2        0.999
#define EPS          1e-8
#define MAX_QUARTERS 16u /* share of a chunk at most, in quarters of an even share */

static void *zeros(uint64_t count, size_t bytes) {
    return calloc((size_t)count + 1, bytes);
}

int fgp_reference_open(fgp_reference *t, uint64_t d, const fgp_selection *choice) {
    double **arrays[] = {&t->mean, &t->square, &t->whole_mean, &t->whole_square, &t->step_sparse, &t->step_whole};
    int missing = 0;
    *t = (fgp_reference){.choice = *choice, .d = d};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        missing |= (*arrays[i] = zeros(d, sizeof(double))) == NULL;
    t->share = zeros(choice->c, sizeof *t->share);
    t->count = zeros(choice->c, sizeof *t->count);
    t->rounded = zeros(d, sizeof *t->rounded);
    t->chosen = zeros(d, 1);
    t->largest = zeros(d, 1);
    t->best = zeros(d, 1);
    t->key = zeros(d, sizeof *t->key);
    if (missing || !t->share || !t->count || !t->rounded || !t->chosen || !t->largest || !t->best || !t->key)
        return fgio_error("no memory for the means of %llu elements", (unsigned long long)d);
    for (uint32_t j = 0; j < choice->c && !choice->refresh; j++)
        t->share[j] = choice->s / choice->c;
    return FGIO_EXIT_OK;
}

void fgp_reference_close(fgp_reference *t) {
    free(t->mean), free(t->square), free(t->whole_mean), free(t->whole_square);
    free(t->step_sparse), free(t->step_whole);
    free(t->share), free(t->count), free(t->rounded), free(t->chosen), free(t->largest), free(t->best), free(t->key);
    *t = (fgp_reference){0};
}

/* ---- the largest ------------------------------------------------------------------------------------ */

/* The n-th largest of distinct keys, or a bound between it and the next, by radix selection from the top byte. */
static uint64_t selection_threshold(const uint64_t *key, uint64_t count, uint64_t n) {
    uint64_t found = 0, known = 0;
    uint64_t bin[256] = {0};
    unsigned byte = 255;
    for (int shift = 56; shift >= 0 && bin[byte] != n; shift -= 8) {
        memset(bin, 0, sizeof bin);
        byte = 255;
        for (uint64_t i = 0; i < count; i++)
            bin[key[i] >> shift & 255] += (key[i] & known) == found;
        while (bin[byte] < n)
            n -= bin[byte--];
        found |= (uint64_t)byte << shift;
        known |= UINT64_C(255) << shift;
    }
    return found;
}

void fgp_mark_largest(const float *x, uint64_t count, uint64_t n, uint64_t *key, uint8_t *mark) {
    memset(mark, 0, (size_t)count);
    if (n == 0)
        return;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        key[i] = (uint64_t)(bits & 0x7fffffffu) << 32 | (UINT32_MAX - i);
    }
    uint64_t least = selection_threshold(key, count, n < count ? n : count);
    for (uint64_t i = 0; i < count; i++)
        mark[i] = key[i] >= least;
}

static uint64_t chunk_begin(const fgp_reference *t, uint32_t chunk) {
    return t->d * chunk / t->choice.c;
}

/* The same for the mean, by chunks. */
static void mark_best(fgp_reference *t) {
    for (uint64_t i = 0; i < t->d; i++)
        t->rounded[i] = (float)t->mean[i];
    for (uint32_t j = 0; j < t->choice.c; j++) {
        uint64_t from = chunk_begin(t, j);
        fgp_mark_largest(t->rounded + from, chunk_begin(t, j + 1) - from, t->share[j], t->key, t->best + from);
    }
}

/* ---- shares ------------------------------------------------------------------------------------------- */

static uint32_t neediest_chunk(const fgp_reference *t, uint32_t unit, uint32_t most) {
    uint32_t at = UINT32_MAX;
    int64_t lack = 0;
    for (uint32_t j = 0; j < t->choice.c; j++) {
        int64_t own = (int64_t)t->count[j] - (int64_t)t->share[j];
        if (t->share[j] < most * unit && (at == UINT32_MAX || own > lack)) {
            at = j;
            lack = own;
        }
    }
    return at;
}

/* Each chunk gets as many quarters of an even share as it has of the s largest; the remainder goes to the neediest. */
static void distribute_shares(fgp_reference *t) {
    const fgp_selection *choice = &t->choice;
    uint32_t unit = (choice->s / choice->c + 3) / 4, left = choice->s / unit;
    uint64_t room = t->d / choice->c / ((uint64_t)choice->kappa * unit);
    uint32_t most = room < MAX_QUARTERS ? (uint32_t)room : MAX_QUARTERS, *count = t->count;
    for (uint32_t j = 0; j < choice->c; j++) {
        count[j] = 0;
        for (uint64_t i = chunk_begin(t, j); i < chunk_begin(t, j + 1); i++)
            count[j] += t->largest[i];
        uint32_t own = count[j] / unit;
        t->share[j] = (own < most ? own : most) * unit;
        left -= own < most ? own : most;
    }
    for (uint32_t at; left > 0 && (at = neediest_chunk(t, unit, most)) != UINT32_MAX; left--)
        t->share[at] += unit;
}

/* ---- a step --------------------------------------------------------------------------------------------- */

static void select_entries(fgp_reference *t, size_t step, const float *g) {
    double all = 0, kept = 0, both = 0;
    fgp_mark_largest(g, t->d, t->choice.s, t->key, t->largest);
    if (t->choice.refresh && step % t->choice.refresh == 0)
        distribute_shares(t);
    for (uint32_t j = 0; j < t->choice.c; j++) {
        uint64_t from = chunk_begin(t, j);
        fgp_mark_largest(g + from, chunk_begin(t, j + 1) - from, t->share[j], t->key, t->chosen + from);
    }
    for (uint64_t i = 0; i < t->d; i++) {
        double square = (double)g[i] * (double)g[i];
        all += square;
        kept += t->chosen[i] ? square : 0;
        both += t->chosen[i] && t->largest[i];
    }
    t->energy = all > 0 ? kept / all : 1;
    t->overlap = both / t->choice.s;
}

static int compare_descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Number of entries of the mean, how many have 90 % of its energy, and the error of its best approximation. */
static void measure_mean(fgp_reference *t) {
    double *squares = t->step_whole, all = 0, rest = 0, sum = 0;
    size_t n = 0, heavy = 0;
    for (uint64_t i = 0; i < t->d; i++) {
        double square = t->mean[i] * t->mean[i];
        all += square;
        rest += t->best[i] ? 0 : square;
        if (square > 0)
            squares[n++] = square;
    }
    qsort(squares, n, sizeof *squares, compare_descending);
    while (heavy < n && sum < 0.9 * all)
        sum += squares[heavy++];
    t->in_union = (double)n;
    t->heavy = (double)heavy;
    t->error_best = all > 0 ? sqrt(rest / all) : 0;
}

void fgp_reference_step(fgp_reference *t, size_t step, const float *g) {
    select_entries(t, step, g);
    t->correct1 = 1 - pow(BETA1, (double)step + 1);
    t->correct2 = 1 - pow(BETA2, (double)step + 1);
    for (uint64_t i = 0; i < t->d; i++) {
        double x = (double)g[i], own = t->chosen[i] ? x : 0;
        t->mean[i] = BETA1 * t->mean[i] + (1 - BETA1) * own;
        t->square[i] = BETA2 * t->square[i] + (1 - BETA2) * own * own;
        t->whole_mean[i] = BETA1 * t->whole_mean[i] + (1 - BETA1) * x;
        t->whole_square[i] = BETA2 * t->whole_square[i] + (1 - BETA2) * x * x;
    }
    mark_best(t);
    measure_mean(t);
    for (uint64_t i = 0; i < t->d; i++) {
        t->step_sparse[i] = t->mean[i] / t->correct1 / (sqrt(t->square[i] / t->correct2) + EPS);
        t->step_whole[i] = t->whole_mean[i] / t->correct1 / (sqrt(t->whole_square[i] / t->correct2) + EPS);
    }
}

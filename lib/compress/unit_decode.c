/*
 * unit_decode.c - add up sections by units of several frames.
 *
 * A thread owns a run of units. It goes through them in windows of at most 4096 elements: every voice (a section of a
 * frame) adds the units that it sends to a sum in the first cache, in the order of the frames, and then the sum
 * is added to its destination. A unit longer than a window is taken in pieces.
 */
#include "compress/compressor.h"

#include "codec/unit_value.h"

#include <string.h>

#define WINDOW FRUGI_BATCH_ELEMENTS

/** One thread's share of a sum. */
typedef struct share {
    const frug_compressor *c;
    frugi_worker *worker;
    frugi_listener *listener;
    size_t voices;
    const frugi_grid *grid;
    float *dst; /* the section's first element */
    float keep, gain;
    float *sum;
    uint8_t *touched; /* units of the window that a voice mentions */
} share;

static void decode(const frugi_voice *v, uint64_t from, uint64_t n, float *values) {
    frugi_group_decode(&v->section, v->payload, v->payload + v->section.value_at, from, n, values);
}

/* Elements of some units. */
static uint64_t sizes_of(const frugi_grid *g, const uint32_t *units, uint32_t n) {
    uint64_t sum = 0;
    if (frugi_grid_even(g))
        return n * g->h * g->w;
    for (uint32_t i = 0; i < n; i++)
        sum += frugi_grid_size(g, units[i]);
    return sum;
}

/* Go to the first unit of the share. */
static void tune_in(const share *s, const frugi_voice *voice, frugi_listener *l, uint64_t lo) {
    frugi_walk_start(&l->walk, &voice->section, voice->payload + voice->section.index_at);
    l->at = 0;
    for (uint32_t n = WINDOW; lo > 0 && n == WINDOW;) {
        n = frugi_walk_below(&l->walk, lo, s->worker->units, WINDOW);
        l->at += sizes_of(s->grid, s->worker->units, n);
    }
}

/* Add n values to a stretch of a unit that begins `inside` it, row by row, and leave the sum as nothing. */
static void finish_unit(const share *s, uint64_t unit, uint64_t inside, uint64_t n, float *sum) {
    frugi_tile t = frugi_grid_tile(s->grid, unit);
    uint64_t row = inside / t.w, col = inside % t.w;
    for (uint64_t done = 0; done < n; row++, col = 0) {
        uint64_t run = t.w - col < n - done ? t.w - col : n - done;
        frugi_finish(s->dst + t.at + row * s->grid->cols + col, sum + done, run, s->keep, s->gain);
        done += run;
    }
}

/* What one voice says of the units u .. end - 1. */
static void hear(const share *s, size_t i, uint64_t u, uint64_t end) {
    const frugi_voice *voice = &s->c->voice[i];
    frugi_listener *l = &s->listener[i];
    uint64_t size = s->grid->h * s->grid->w, done = 0;
    uint32_t *units = s->worker->units, n = frugi_walk_below(&l->walk, end, units, WINDOW);
    uint64_t total = sizes_of(s->grid, units, n);
    float *values = s->worker->values;
    decode(voice, l->at, total, values);
    l->at += total;
    if (size == 1) {
        for (uint32_t e = 0; e < n; e++)
            s->sum[units[e] - u] += values[e];
        return;
    }
    for (uint32_t e = 0; e < n; e++) {
        uint64_t here = frugi_grid_size(s->grid, units[e]);
        float *sum = s->sum + (units[e] - u) * size;
        for (uint64_t k = 0; k < here; k++)
            sum[k] += values[done + k];
        s->touched[units[e] - u] = 1;
        done += here;
    }
}

/* A window of small units. */
static void sum_window(const share *s, uint64_t u, uint64_t end) {
    uint64_t size = s->grid->h * s->grid->w, elements = s->grid->rows * s->grid->cols;
    for (size_t i = 0; i < s->voices; i++)
        hear(s, i, u, end);
    if (frugi_grid_flat(s->grid)) { /* the window is one stretch */
        uint64_t from = u * size, to = end * size < elements ? end * size : elements;
        frugi_finish(s->dst + from, s->sum, to - from, s->keep, s->gain);
        return;
    }
    for (uint64_t i = u; i < end; i++)
        if (s->touched[i - u] || s->keep != 1.0f)
            finish_unit(s, i, 0, frugi_grid_size(s->grid, i), s->sum + (i - u) * size);
    memset(s->touched, 0, end - u);
}

/* A unit longer than a window, piece by piece. */
static void sum_unit(const share *s, uint64_t u) {
    uint64_t size = frugi_grid_size(s->grid, u);
    bool any = false;
    for (size_t i = 0; i < s->voices; i++) {
        uint32_t unit;
        s->listener[i].mentions = frugi_walk_below(&s->listener[i].walk, u + 1, &unit, 1) != 0;
        any |= s->listener[i].mentions;
    }
    for (uint64_t at = 0; at < size && (any || s->keep != 1.0f); at += WINDOW) {
        uint64_t n = size - at < WINDOW ? size - at : WINDOW;
        for (size_t i = 0; i < s->voices; i++) {
            if (!s->listener[i].mentions)
                continue;
            decode(&s->c->voice[i], s->listener[i].at + at, n, s->worker->values);
            for (uint64_t k = 0; k < n; k++)
                s->sum[k] += s->worker->values[k];
        }
        finish_unit(s, u, at, n, s->sum);
    }
    for (size_t i = 0; i < s->voices; i++)
        s->listener[i].at += s->listener[i].mentions ? size : 0;
}

static void sum_share(share *s, uint64_t lo, uint64_t hi) {
    uint64_t size = s->grid->h * s->grid->w, window = size > WINDOW ? 1 : WINDOW / size;
    for (uint32_t e = 0; e < WINDOW; e++)
        s->sum[e] = frugi_nothing(s->gain);
    memset(s->touched, 0, WINDOW);
    for (size_t i = 0; i < s->voices; i++)
        tune_in(s, &s->c->voice[i], &s->listener[i], lo);
    for (uint64_t u = lo; u < hi; u += window)
        if (size > WINDOW)
            sum_unit(s, u);
        else
            sum_window(s, u, hi - u < window ? hi : u + window);
}

void frugi_sum_units(const frug_compressor *c, size_t voices, const frugi_target *t) {
    const frugi_section *first = &c->voice[0].section;
    uint64_t units = first->grid.units;
    int threads = frugi_threads_for(c, first->count);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; i++) {
        frugi_worker *w = &c->worker[i];
        share s = {.c = c,
                   .worker = w,
                   .listener = c->listener + (size_t)i * FRUGI_LAYERS * c->cursors,
                   .voices = voices,
                   .grid = &first->grid,
                   .dst = t->dst + (first->begin - t->begin),
                   .keep = t->keep,
                   .gain = t->gain,
                   .sum = w->acc,
                   .touched = (uint8_t *)w->idx};
        sum_share(&s, units * (uint64_t)i / (uint64_t)threads, units * ((uint64_t)i + 1) / (uint64_t)threads);
    }
}

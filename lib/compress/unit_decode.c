/*
 * unit_decode.c - add up the unit sections of several frames.
 *
 * Each thread sums a range of units, in windows of at most 4096 elements: the units that a section contains are added
 * to a sum in the L1 cache, section by section in the order of the frames; then the sum is added to its destination. A
 * unit longer than a window is summed window by window.
 */
#include "compress/decoder.h"

#include "codec/unit_value.h"
#include "compress/threads.h"

#include <string.h>

#define WINDOW FRUGI_DECODE_WINDOW

/** What one thread needs to sum a range of units. */
typedef struct unit_sum {
    const frugi_unit_source *source;
    const frugi_decode_scratch *scratch;
    frugi_unit_cursor *cursor; /* one per source */
    size_t sources;
    const frugi_grid *grid;
    float *dst; /* the section's first element */
    float keep, gain;
    float *sum;
    uint8_t *touched;  /* units of the window that a section contains */
    uint32_t *senders; /* mean=senders: sections that contain an element of the window; else NULL */
    size_t frames;
} unit_sum;

static void decode_values(const frugi_unit_source *v, uint64_t from, uint64_t n, float *values) {
    frugi_value_group_decode(&v->section, v->payload, v->payload + v->section.value_at, from, n, values);
}

/* Number of elements of n units. */
static uint64_t count_elements(const frugi_grid *g, const uint32_t *units, uint32_t n) {
    uint64_t sum = 0;
    if (frugi_grid_is_uniform(g))
        return n * g->h * g->w;
    for (uint32_t i = 0; i < n; i++)
        sum += frugi_grid_size(g, units[i]);
    return sum;
}

/* Move a cursor to the first unit from lo on. */
static void seek_units(const unit_sum *s, const frugi_unit_source *source, frugi_unit_cursor *cursor, uint64_t lo) {
    frugi_index_reader_start(&cursor->walk, &source->section, source->payload + source->section.index_at);
    cursor->at = 0;
    for (uint32_t n = WINDOW; lo > 0 && n == WINDOW;) {
        n = frugi_index_read_below(&cursor->walk, lo, s->scratch->units, WINDOW);
        cursor->at += count_elements(s->grid, s->scratch->units, n);
    }
}

/* Apply the sum of n elements of a unit, from its element `inside` on, row by row, and reset the sum. */
static void apply_unit(const unit_sum *s, uint64_t unit, uint64_t inside, uint64_t n, float *sum) {
    frugi_tile t = frugi_grid_tile(s->grid, unit);
    uint64_t row = inside / t.w, col = inside % t.w;
    for (uint64_t done = 0; done < n; row++, col = 0) {
        uint64_t run = t.w - col < n - done ? t.w - col : n - done;
        frugi_add_scaled_sum(s->dst + t.at + row * s->grid->cols + col, sum + done, run, s->keep, s->gain);
        done += run;
    }
}

/* Add the units u .. end - 1 of section i to the sum. */
static void accumulate_window(const unit_sum *s, size_t i, uint64_t u, uint64_t end) {
    const frugi_unit_source *source = &s->source[i];
    frugi_unit_cursor *cursor = &s->cursor[i];
    uint64_t size = s->grid->h * s->grid->w, done = 0;
    uint32_t *units = s->scratch->units, n = frugi_index_read_below(&cursor->walk, end, units, WINDOW);
    uint64_t total = count_elements(s->grid, units, n);
    float *values = s->scratch->values;
    decode_values(source, cursor->at, total, values);
    cursor->at += total;
    if (size == 1) {
        for (uint32_t e = 0; e < n; e++)
            s->sum[units[e] - u] += values[e];
        for (uint32_t e = 0; e < n && s->senders; e++)
            s->senders[units[e] - u]++;
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

/* Sum a window of whole units. */
static void sum_window(const unit_sum *s, uint64_t u, uint64_t end) {
    uint64_t size = s->grid->h * s->grid->w, elements = s->grid->rows * s->grid->cols;
    for (size_t i = 0; i < s->sources; i++)
        accumulate_window(s, i, u, end);
    if (s->senders)
        frugi_scale_by_senders(s->sum, s->senders, end - u, s->frames);
    if (frugi_grid_is_contiguous(s->grid)) { /* the window is one range */
        uint64_t from = u * size, to = end * size < elements ? end * size : elements;
        frugi_add_scaled_sum(s->dst + from, s->sum, to - from, s->keep, s->gain);
        return;
    }
    for (uint64_t i = u; i < end; i++)
        if (s->touched[i - u] || s->keep != 1.0f)
            apply_unit(s, i, 0, frugi_grid_size(s->grid, i), s->sum + (i - u) * size);
    memset(s->touched, 0, end - u);
}

/* Sum a unit that is longer than a window. */
static void sum_unit(const unit_sum *s, uint64_t u) {
    uint64_t size = frugi_grid_size(s->grid, u);
    bool any = false;
    for (size_t i = 0; i < s->sources; i++) {
        uint32_t unit;
        s->cursor[i].has_unit = frugi_index_read_below(&s->cursor[i].walk, u + 1, &unit, 1) != 0;
        any |= s->cursor[i].has_unit;
    }
    for (uint64_t at = 0; at < size && (any || s->keep != 1.0f); at += WINDOW) {
        uint64_t n = size - at < WINDOW ? size - at : WINDOW;
        for (size_t i = 0; i < s->sources; i++) {
            if (!s->cursor[i].has_unit)
                continue;
            decode_values(&s->source[i], s->cursor[i].at + at, n, s->scratch->values);
            for (uint64_t k = 0; k < n; k++)
                s->sum[k] += s->scratch->values[k];
        }
        apply_unit(s, u, at, n, s->sum);
    }
    for (size_t i = 0; i < s->sources; i++)
        s->cursor[i].at += s->cursor[i].has_unit ? size : 0;
}

/* Sum units lo .. hi - 1 on one thread. */
static void sum_units(unit_sum *s, uint64_t lo, uint64_t hi) {
    uint64_t size = s->grid->h * s->grid->w, window = size > WINDOW ? 1 : WINDOW / size;
    for (uint32_t e = 0; e < WINDOW; e++)
        s->sum[e] = frugi_sum_start(s->gain);
    memset(s->touched, 0, WINDOW);
    if (s->senders)
        memset(s->senders, 0, WINDOW * sizeof *s->senders);
    for (size_t i = 0; i < s->sources; i++)
        seek_units(s, &s->source[i], &s->cursor[i], lo);
    for (uint64_t u = lo; u < hi; u += window)
        if (size > WINDOW)
            sum_unit(s, u);
        else
            sum_window(s, u, hi - u < window ? hi : u + window);
}

void frugi_sum_unit_sections(const frug_decoder *d, size_t count, size_t count_frames, const frugi_target *t) {
    const frugi_section *first = &d->unit_source[0].section;
    uint64_t units = first->grid.units;
    int threads = frugi_threads_for(d->threads, first->count);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; i++) {
        const frugi_decode_scratch *scratch = &d->scratch[i];
        unit_sum s = {.source = d->unit_source,
                      .scratch = scratch,
                      .cursor = d->unit_cursor + (size_t)i * FRUGI_SECTIONS_PER_TENSOR * d->capacity,
                      .sources = count,
                      .grid = &first->grid,
                      .dst = t->dst + (first->begin - t->begin),
                      .keep = t->keep,
                      .gain = t->gain,
                      .sum = scratch->sum,
                      .touched = (uint8_t *)scratch->idx,
                      .senders = d->by_senders ? (uint32_t *)(void *)scratch->other_sum : NULL,
                      .frames = count_frames};
        sum_units(&s, units * (uint64_t)i / (uint64_t)threads, units * ((uint64_t)i + 1) / (uint64_t)threads);
    }
}

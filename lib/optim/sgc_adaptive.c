/*
 * sgc_adaptive.c - adaptive=1: chunks with large gradients get more of the s entries, and with them more measurements.
 *
 * Every `refresh` steps the s largest entries of the whole tensor are found, and each chunk gets as many entries as it
 * has of them, in shares of a fourth of s / c and at most sixteen of those. Shares that remain after rounding go to the
 * chunks with the largest deficit. The sum is s, so states need the same memory as with even chunks. If the share of a
 * chunk has changed, its means are recovered with the old matrix and measured with the new one.
 */
#include "optim/target.h"

#include "base/float_bits.h"

#include <string.h>

/* Count how many of the tensor's s largest entries are in each chunk. */
static void count_largest(frug_optimizer *o, const frugi_optim_target *t, const float *g, uint32_t *counts) {
    frugi_target_work *work = &o->targets->work;
    const frugi_float_array whole = {g, t->d};
    frugi_cutoff cut = frugi_topk_cutoff(work->whole, &whole, 1, o->options.s, 1);
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t from = frugi_chunk_begin(t, j);
        const frugi_float_array span = {g + from, frugi_chunk_begin(t, j + 1) - from};
        counts[j] = (uint32_t)frugi_topk_emit(work->whole, &span, &cut, work->x.index, NULL, 1);
    }
}

/* The chunk with the largest difference between its count and its share; the first of equals. */
static uint32_t largest_deficit(const frugi_optim_target *t, const uint32_t *counts, const uint8_t *level) {
    uint32_t best = UINT32_MAX;
    int64_t deficit = 0;
    for (uint32_t j = 0; j < t->c; j++) {
        int64_t own = (int64_t)counts[j] - (int64_t)level[j] * t->unit;
        if (level[j] < t->levels && (best == UINT32_MAX || own > deficit)) {
            best = j;
            deficit = own;
        }
    }
    return best;
}

static void assign_levels(const frugi_optim_target *t, uint64_t s, const uint32_t *counts, uint8_t *level) {
    uint64_t left = s / t->unit;
    for (uint32_t j = 0; j < t->c; j++) {
        uint32_t own = counts[j] / t->unit;
        level[j] = (uint8_t)(own < t->levels ? own : t->levels);
        left -= level[j];
    }
    for (; left > 0; left--)
        level[largest_deficit(t, counts, level)]++;
}

/* A chunk with too large numbers, which only a forged state can have, is reset. */
static void measure_chunk(const frugi_solver *solver, const frugi_entries *x, uint64_t at, uint32_t chunk, float *work,
                          float *state) {
    (void)frugi_matrix_apply(solver->matrix, x->index + at, x->value + at, x->count[chunk], work, state);
    if (frugi_largest_magnitude(state, solver->k) >= FRUGI_TARGET_STATE_LIMIT)
        memset(state, 0, solver->k * sizeof *state);
}

/* Write one moment for the new shares in `level`: copied where the share did not change, measured where it did. */
static void remeasure(frug_optimizer *o, const frugi_optim_target *t, const uint8_t *old, const float *saved,
                      const frugi_entries *x, float *state) {
    frugi_target_work *work = &o->targets->work;
    const uint32_t each = t->unit * (uint32_t)o->options.kappa;
    uint64_t at = 0;
    for (uint32_t j = 0; j < t->c; j++) {
        const frugi_solver *solver = frugi_chunk_solver(o, t, j);
        uint32_t level = o->targets->level[t->level_at + j];
        if (level == old[j])
            memcpy(state, saved, (size_t)level * each * sizeof *state);
        else if (solver)
            measure_chunk(solver, x, at, j, work->span, state);
        state += (uint64_t)level * each;
        saved += (uint64_t)old[j] * each;
        at += (uint64_t)old[j] * t->unit;
    }
}

bool frugi_shares_are_due(const frug_optimizer *o, const frugi_optim_target *t, uint64_t step) {
    const uint8_t *level = o->targets->level + t->level_at;
    bool none = true; /* no step yet, or all were skipped */
    for (uint32_t j = 0; j < t->c; j++)
        none &= level[j] == 0;
    return none || step % o->options.refresh == 0;
}

void frugi_assign_shares(frug_optimizer *o, const frugi_optim_target *t, const float *g) {
    frugi_optim_targets *all = o->targets;
    frugi_target_work *work = &all->work;
    uint8_t *level = all->level + t->level_at, *next = work->level;
    float *mean = all->mean + t->moment_at, *square = all->square + t->moment_at, *saved = work->measured;
    count_largest(o, t, g, work->x.count);
    assign_levels(t, o->options.s, work->x.count, next);
    if (memcmp(level, next, t->c) == 0)
        return;
    frugi_recover_chunks(o, t, mean, &work->x);
    frugi_recover_chunks(o, t, square, &work->y);
    memcpy(saved, mean, t->moments * sizeof *mean);
    memcpy(saved + t->moments, square, t->moments * sizeof *square);
    for (uint32_t j = 0; j < t->c; j++) { /* swap: level has the new shares from here on, next the old ones */
        uint8_t old = level[j];
        level[j] = next[j];
        next[j] = old;
    }
    remeasure(o, t, next, saved, &work->x, mean);
    remeasure(o, t, next, saved + t->moments, &work->y, square);
}

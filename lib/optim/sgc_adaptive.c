/*
 * sgc_adaptive.c - adaptive=1: chunks whose gradients are large get more of the s entries, and with them more
 * measurements.
 *
 * Every so often the s largest entries of the whole tensor are found, and each chunk gets as many entries as it has of
 * them, in shares of a fourth of s / c and at most sixteen of those. What is left over by rounding goes to those who
 * lack most. The sum is s, so states take the same memory as with even chunks. A chunk whose share changed has its
 * means recovered with the old matrix and measured with the new one.
 */
#include "optim/target.h"

#include "base/float_bits.h"

#include <string.h>

/* How many of the tensor's s largest are in each chunk, into counts. */
static void count_largest(frug_optimizer *o, const frugi_tuned *t, const float *g, uint32_t *counts) {
    frugi_target_work *work = &o->targets->work;
    const frugi_span whole = {g, t->d};
    frugi_cutoff cut = frugi_whole_cutoff(work->whole, &whole, 1, o->options.s, 1);
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t from = frugi_chunk_at(t, j);
        const frugi_span span = {g + from, frugi_chunk_at(t, j + 1) - from};
        counts[j] = (uint32_t)frugi_whole_emit(work->whole, &span, &cut, work->x.index, NULL, 1);
    }
}

/* The chunk that lacks most of what it has a claim to; the first of equals. */
static uint32_t most_lacking(const frugi_tuned *t, const uint32_t *counts, const uint8_t *level) {
    uint32_t best = UINT32_MAX;
    int64_t lack = 0;
    for (uint32_t j = 0; j < t->c; j++) {
        int64_t own = (int64_t)counts[j] - (int64_t)level[j] * t->unit;
        if (level[j] < t->levels && (best == UINT32_MAX || own > lack)) {
            best = j;
            lack = own;
        }
    }
    return best;
}

static void settle(const frugi_tuned *t, uint64_t s, const uint32_t *counts, uint8_t *level) {
    uint64_t left = s / t->unit;
    for (uint32_t j = 0; j < t->c; j++) {
        uint32_t own = counts[j] / t->unit;
        level[j] = (uint8_t)(own < t->levels ? own : t->levels);
        left -= level[j];
    }
    for (; left > 0; left--)
        level[most_lacking(t, counts, level)]++;
}

/* A chunk whose numbers got out of hand, which only a forged state can do, begins anew. */
static void measure_chunk(const frugi_solver *solver, const frugi_entries *x, uint64_t at, uint32_t chunk, float *work,
                          float *state) {
    (void)frugi_matrix_apply(solver->matrix, x->index + at, x->value + at, x->count[chunk], work, state);
    if (frugi_largest_magnitude(state, solver->k) >= FRUGI_TARGET_LARGE)
        memset(state, 0, solver->k * sizeof *state);
}

/* Write one moment anew: kept where the share is what it was, measured where it is not. level has the new shares. */
static void measure_anew(frug_optimizer *o, const frugi_tuned *t, const uint8_t *old, const float *kept,
                         const frugi_entries *x, float *state) {
    frugi_target_work *work = &o->targets->work;
    const uint32_t each = t->unit * (uint32_t)o->options.kappa;
    uint64_t at = 0;
    for (uint32_t j = 0; j < t->c; j++) {
        const frugi_solver *solver = frugi_chunk_solver(o, t, j);
        uint32_t level = o->targets->level[t->level_at + j];
        if (level == old[j])
            memcpy(state, kept, (size_t)level * each * sizeof *state);
        else if (solver)
            measure_chunk(solver, x, at, j, work->span, state);
        state += (uint64_t)level * each;
        kept += (uint64_t)old[j] * each;
        at += (uint64_t)old[j] * t->unit;
    }
}

bool frugi_shares_are_due(const frug_optimizer *o, const frugi_tuned *t, uint64_t step) {
    const uint8_t *level = o->targets->level + t->level_at;
    bool none = true; /* no step yet, or all were held back */
    for (uint32_t j = 0; j < t->c; j++)
        none &= level[j] == 0;
    return none || step % o->options.refresh == 0;
}

void frugi_share_out(frug_optimizer *o, const frugi_tuned *t, const float *g) {
    frugi_targets *all = o->targets;
    frugi_target_work *work = &all->work;
    uint8_t *level = all->level + t->level_at, *next = work->level;
    float *mean = all->mean + t->moment_at, *square = all->square + t->moment_at, *kept = work->measured;
    count_largest(o, t, g, work->x.count);
    settle(t, o->options.s, work->x.count, next);
    if (memcmp(level, next, t->c) == 0)
        return;
    frugi_recover_chunks(o, t, mean, &work->x);
    frugi_recover_chunks(o, t, square, &work->y);
    memcpy(kept, mean, t->moments * sizeof *mean);
    memcpy(kept + t->moments, square, t->moments * sizeof *square);
    for (uint32_t j = 0; j < t->c; j++) { /* from here on the new shares hold, and next has the old ones */
        uint8_t old = level[j];
        level[j] = next[j];
        next[j] = old;
    }
    measure_anew(o, t, next, kept, &work->x, mean);
    measure_anew(o, t, next, kept + t->moments, &work->y, square);
}

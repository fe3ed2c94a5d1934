/*
 * target_step.c - how a target moves: it is looked at once, held back whole where a number is not to be used, and
 * handed to its kind.
 *
 * A sketch moves in two halves, measuring and what follows from measurements. A step with the gradient at hand does
 * both at once; workers that add up measurements do the first, and after the sum the second. A gradient that is not to
 * be used is measured as NaN, so that the sum is one too and everybody holds the target back.
 */
#include "base/float_bits.h"
#include "base/clock.h"
#include "optim/target.h"

#include <math.h>

void frugi_largest(frugi_target_work *work, const float *x, uint64_t len, uint32_t n, uint32_t *index, float *value) {
    const frugi_span span = {x, len};
    frugi_cutoff cut = frugi_whole_cutoff(work->whole, &span, 1, n, 1);
    frugi_whole_emit(work->whole, &span, &cut, index, value, 1);
}

bool frugi_all_below(const float *x, uint64_t n, uint32_t bits) {
    uint32_t most = 0;
    for (uint64_t at = 0; at < n && most < bits; at += 1u << 20) {
        uint32_t own = frugi_largest_magnitude(x + at, n - at < 1u << 20 ? (uint32_t)(n - at) : 1u << 20);
        most = own > most ? own : most;
    }
    return most < bits;
}

void frugi_lap_ends(frugi_targets *all, frugi_lap lap) {
    double now = frugi_clock();
    all->seconds[lap] += now - all->since;
    all->since = now;
}

static uint64_t elements(const frugi_tuned *t) {
    return (uint64_t)t->side.rows * t->side.cols;
}

/* lora, galore and apollo decay in the same pass as they move. */
static void decay(const frugi_tuned *t, float keep, float *w) {
    for (uint64_t i = 0; keep != 1.0f && i < elements(t); i++)
        w[i] *= keep;
}

static bool begin_turn(frugi_targets *all, const frugi_tuned *t, const float *g) {
    all->since = frugi_clock();
    return frugi_all_below(g, elements(t), FRUGI_TARGET_HELD);
}

void frugi_target_measure(frug_optimizer *o, uint64_t step, const frugi_tuned *t, const float *g, float *measured) {
    if (begin_turn(o->targets, t, g)) {
        frugi_sketch_measure(o, step, t, g, measured);
        return;
    }
    for (uint64_t i = 0; i < 2 * t->moments; i++)
        measured[i] = NAN;
}

static void move_measured(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *measured,
                          float *w, float keep) {
    if (!frugi_all_below(measured, 2 * t->moments, FRUGI_TARGET_LARGER))
        return;
    decay(t, keep, w);
    frugi_move_sketch(o, move, t, measured, w);
}

void frugi_target_move_measured(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *measured,
                                float *w, float keep) {
    o->targets->since = frugi_clock();
    move_measured(o, move, t, measured, w, keep);
}

void frugi_target_move(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep) {
    frugi_targets *all = o->targets;
    if (!begin_turn(all, t, g))
        return;
    switch (o->options.kind) {
    case FRUGI_OPTIM_TABLE:
        decay(t, keep, w);
        frugi_move_table(o, move, t, g, w);
        break;
    case FRUGI_OPTIM_LORA: frugi_move_lora(o, move, t, g, w, keep); break;
    case FRUGI_OPTIM_GALORE: frugi_move_galore(o, move, t, g, w, keep); break;
    case FRUGI_OPTIM_APOLLO: frugi_move_apollo(o, move, t, g, w, keep); break;
    default:
        frugi_sketch_measure(o, move->step, t, g, all->work.measured);
        move_measured(o, move, t, all->work.measured, w, keep);
        break;
    }
    frugi_lap_ends(all, FRUGI_LAP_APPLY);
}

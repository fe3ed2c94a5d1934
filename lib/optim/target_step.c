/*
 * target_step.c - update a target: check its gradient, skip it as a whole if a number is too large or not finite, apply
 * the update rule of its kind.
 *
 * A sketch is updated in two halves: measuring, and the update from measurements. A step with the gradient does both;
 * workers that sum measurements run the first half, and after the sum the second. A gradient that has to be skipped is
 * measured as NaN, so that the sum is NaN, too, and all workers skip the target.
 */
#include "base/float_bits.h"
#include "base/clock.h"
#include "optim/target.h"

#include <math.h>

void frugi_select_largest(frugi_target_work *work, const float *x, uint64_t len, uint32_t n, uint32_t *index,
                          float *value) {
    const frugi_float_array span = {x, len};
    frugi_cutoff cut = frugi_topk_cutoff(work->whole, &span, 1, n, 1);
    frugi_topk_emit(work->whole, &span, &cut, index, value, 1);
}

bool frugi_all_below(const float *x, uint64_t n, uint32_t bits) {
    uint32_t most = 0;
    for (uint64_t at = 0; at < n && most < bits; at += 1u << 20) {
        uint32_t own = frugi_largest_magnitude(x + at, n - at < 1u << 20 ? (uint32_t)(n - at) : 1u << 20);
        most = own > most ? own : most;
    }
    return most < bits;
}

void frugi_phase_end(frugi_optim_targets *all, frugi_phase phase) {
    double now = frugi_clock();
    all->seconds[phase] += now - all->phase_start;
    all->phase_start = now;
}

static uint64_t elements(const frugi_optim_target *t) {
    return (uint64_t)t->side.rows * t->side.cols;
}

/* lora, galore, apollo and muon apply the decay in the same pass as the update. */
static void apply_decay(const frugi_optim_target *t, float decay_factor, float *w) {
    for (uint64_t i = 0; decay_factor != 1.0f && i < elements(t); i++)
        w[i] *= decay_factor;
}

static bool begin_update(frugi_optim_targets *all, const frugi_optim_target *t, const float *g) {
    all->phase_start = frugi_clock();
    return frugi_all_below(g, elements(t), FRUGI_TARGET_GRAD_LIMIT);
}

void frugi_target_measure(frug_optimizer *o, uint64_t step, const frugi_optim_target *t, const float *g,
                          float *measured) {
    if (begin_update(o->targets, t, g)) {
        frugi_sketch_measure(o, step, t, g, measured);
        return;
    }
    for (uint64_t i = 0; i < 2 * t->moments; i++)
        measured[i] = NAN;
}

static void update_measured(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t,
                            const float *measured, float *w, float decay_factor) {
    if (!frugi_all_below(measured, 2 * t->moments, FRUGI_TARGET_MEASURED_LIMIT))
        return;
    apply_decay(t, decay_factor, w);
    frugi_step_sketch(o, args, t, measured, w);
}

void frugi_target_update_measured(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t,
                                  const float *measured, float *w, float decay_factor) {
    o->targets->phase_start = frugi_clock();
    update_measured(o, args, t, measured, w, decay_factor);
}

void frugi_target_update(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                         float *w, float decay_factor) {
    frugi_optim_targets *all = o->targets;
    if (!begin_update(all, t, g))
        return;
    switch (o->options.kind) {
    case FRUGI_OPTIM_TABLE:
        apply_decay(t, decay_factor, w);
        frugi_step_table(o, args, t, g, w);
        break;
    case FRUGI_OPTIM_LORA: frugi_step_lora(o, args, t, g, w, decay_factor); break;
    case FRUGI_OPTIM_GALORE: frugi_step_galore(o, args, t, g, w, decay_factor); break;
    case FRUGI_OPTIM_APOLLO: frugi_step_apollo(o, args, t, g, w, decay_factor); break;
    case FRUGI_OPTIM_MUON:
    case FRUGI_OPTIM_MUON_MERGED:
        if (!frugi_step_muon(o, args, t, g, w, decay_factor))
            apply_decay(t, decay_factor, w);
        break;
    default:
        frugi_sketch_measure(o, args->step, t, g, all->work.measured);
        update_measured(o, args, t, all->work.measured, w, decay_factor);
        break;
    }
    frugi_phase_end(all, FRUGI_PHASE_APPLY);
}

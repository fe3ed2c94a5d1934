/*
 * receiver_momentum.c - receiver momentum whose weight decreases with sparsity: option inertia of merged and
 * adam-merged.
 *
 * The momentum is what waits in the residual, so where nearly everything is sent at once there is none: at the start of
 * a schedule that begins dense. At density d and decay b of the residual a gradient waits b (1 - d) / (1 - b (1 - d))
 * steps on average, while ordinary momentum m delays it by m / (1 - m). The receiver makes up for the difference D with
 * a velocity of its own, of momentum D / (1 + D): m at density 1, and 0 where the residual delays enough.
 *
 * The velocity is one float per compressed parameter. It is freed before the first step from which on its momentum
 * stays at or below LIMIT: the delay of the residual varies by as much anyway. Densities are those of the schedule and
 * of warm-up; differences between tensors and single dense steps are ignored.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "compress/compressor_access.h"
#include "optim/optimizer.h"
#include "schedule/density.h"

#define LIMIT       0.5
#define MAX_SAMPLES 16384u /* steps of a schedule that are sampled: all, or evenly spread */
#define NEGLIGIBLE  1e-20  /* does not change 1 when subtracted */
#define ALWAYS      UINT64_MAX

/* Momentum by the schedule, whether or not the velocity still exists. */
static double momentum_at(const frugi_inertia *i, uint64_t step) {
    if (i->fixed)
        return i->momentum;
    double density = step < i->warmup ? 1 : frugi_schedule_density(&i->schedule, step, i->total);
    double retained = i->beta * (1 - density), missing = i->momentum / (1 - i->momentum) - retained / (1 - retained);
    return retained == 0 ? i->momentum : retained < 1 && missing > 0 ? missing / (1 + missing) : 0;
}

static bool is_needed_at(const frugi_inertia *i, uint64_t step) {
    return momentum_at(i, step) > (i->fixed ? 0 : LIMIT);
}

/* The first step from which on it is not needed. */
static uint64_t find_end(const frugi_inertia *i) {
    uint64_t end = i->total > i->warmup ? i->total : i->warmup, stride = end / MAX_SAMPLES + 1;
    if (is_needed_at(i, end)) /* the density is constant from there on */
        return ALWAYS;
    while (end > 0 && !is_needed_at(i, end - 1))
        end -= end < stride ? end : stride;
    while (is_needed_at(i, end)) /* less than one stride, and 0 steps if end was the last step */
        end++;
    return end;
}

frug_status frugi_inertia_create(frug_optimizer *o, const frug_compressor *c) {
    const frugi_optim_options *f = &o->options;
    frugi_inertia *i = &o->inertia;
    if (f->inertia == 0)
        return FRUG_OK;
    const struct frug_config *config = c ? frugi_compressor_config(c) : NULL;
    i->fixed = f->inertia > 0;
    i->momentum = i->fixed ? f->inertia : f->kind == FRUGI_OPTIM_MERGED ? f->momentum : f->beta1;
    FRUG_FAIL_IF(!i->fixed && (!config || config->feedback != FRUGI_FEEDBACK_MERGED), FRUG_ERR_CONFIG,
                 "config: inertia=auto needs a compressor with feedback=merged; give a number or off");
    FRUG_FAIL_IF(
        config && (config->hold_rule != FRUGI_HOLD_NUMBER || config->hold > 0), FRUG_ERR_CONFIG,
        "config: the compressor's hold already provides momentum, inertia would count it twice; use hold=off or "
        "inertia=off");
    if (config) {
        i->beta = config->beta;
        i->schedule = config->schedule;
        i->total = frugi_compressor_options(c).total_steps;
        i->warmup = config->warmup;
    }
    i->product = 1;
    i->end = find_end(i);
    i->floats = o->used[FRUGI_UPDATE_DIRECT] + FRUGI_OPTIM_BLOCK * o->used[FRUGI_UPDATE_ROOT];
    if (i->end == 0)
        return FRUG_OK;
    i->velocity = frugi_alloc((size_t)i->floats * sizeof *i->velocity);
    FRUG_FAIL_IF(!i->velocity, FRUG_ERR_MEMORY, "optimizer: no memory for %llu floats of velocity",
                 (unsigned long long)i->floats);
    return FRUG_OK;
}

void frugi_inertia_destroy(frug_optimizer *o) {
    frugi_free(o->inertia.velocity);
    o->inertia.velocity = NULL;
}

bool frugi_inertia_is_permanent(const frug_optimizer *o) {
    return o->inertia.velocity && o->inertia.end == ALWAYS;
}

/* The product of all momenta up to this step is 1 minus the sum of the weights of a mean. */
void frugi_inertia_seek(frug_optimizer *o, uint64_t step) {
    frugi_inertia *i = &o->inertia;
    if (i->velocity && step >= i->end)
        frugi_inertia_destroy(o);
    if (!i->velocity || step + 1 == i->known)
        return;
    uint64_t from = step >= i->known ? i->known : 0;
    double product = from ? i->product : 1;
    for (; from <= step && product > NEGLIGIBLE; from++)
        product *= momentum_at(i, from);
    i->product = product;
    i->now = momentum_at(i, step);
    i->known = step + 1;
}

frug_status frug_optimizer_seek(frug_optimizer *o, uint64_t step) {
    FRUG_FAIL_IF(!o, FRUG_ERR_ARG, "seek: null optimizer");
    frugi_inertia_seek(o, step);
    return FRUG_OK;
}

void frugi_step_inertia(const frugi_step_args *args, float *restrict u, float *restrict w, const float *restrict g,
                        uint32_t n, float decay_factor) {
    const float inertia = args->inertia, rate = args->inertia_rate;
    for (uint32_t i = 0; i < n; i++) {
        u[i] = inertia * u[i] + g[i];
        w[i] = w[i] * decay_factor - rate * u[i];
    }
}

/* m = running mean of the gradients; mean = m with its bias corrected. */
void frugi_step_mean(const frugi_step_args *args, float *restrict m, const float *restrict g, uint32_t n,
                     float *restrict mean) {
    const float inertia = args->inertia, one_minus_inertia = args->one_minus_inertia, gain = args->inertia_gain;
    for (uint32_t i = 0; i < n; i++) {
        m[i] = inertia * m[i] + one_minus_inertia * g[i];
        mean[i] = gain * m[i];
    }
}

/*
 * optimizer_step.c - update a range of weights, from a gradient or from measurements of it.
 *
 * A step processes blocks of 256 elements, which stay in L1: check the gradient, then apply the update rule of the
 * tensor. A block whose gradient contains a NaN, an infinity or a magnitude from 2^63 on is skipped as a whole, weights
 * and states: so no state ever contains a NaN or an infinity. Tensors that are updated as a whole are skipped as a
 * whole (target_step.c).
 */
#include "base/float_bits.h"
#include "base/status.h"
#include "optim/target.h"

#include <math.h>

/*
 * The square of the longest step that AdamW can take, in multiples of the rate: with weights a_i of the mean and b_i of
 * the mean square, both with sum one, (sum a_i x_i)^2 <= (sum b_i x_i^2) (sum a_i^2 / b_i). Infinite for beta2 = 0.
 */
static double max_step_squared(double beta1, double beta2, uint64_t t) {
    double ratio = beta1 * beta1 / beta2;
    double terms = fabs(ratio - 1) < 1e-9 ? (double)t : (frugi_power(ratio, t) - 1) / (ratio - 1);
    double correct1 = 1 - frugi_power(beta1, t), correct2 = 1 - frugi_power(beta2, t), first = (1 - beta1) / correct1;
    return first * first / ((1 - beta2) / correct2) * terms;
}

/* Updates of the mean squares up to step t - 1; one of a step that is frozen counts in that step only. */
static uint64_t square_updates(const frug_optimizer *o, uint64_t t) {
    if (t <= o->frozen_since)
        return t;
    return t <= o->frozen_until ? o->frozen_since + 1 : t - (o->frozen_until - o->frozen_since);
}

/* Everything that depends on step and rate, computed in double and rounded once. */
static frugi_step_args make_step_args(const frug_optimizer *o, uint64_t step, double rate) {
    const frugi_optim_options *f = &o->options;
    const double gain = frug_optimizer_gain(o, rate), merged = rate * gain;
    rate = frugi_is_muon(f) ? merged : rate; /* for all tensors, and for decay */
    uint64_t t = step < UINT64_MAX ? step + 1 : step;
    uint64_t seen = t < f->window ? t : f->window;
    double correct1 = 1 - frugi_power(f->beta1, t), correct2 = 1 - frugi_power(f->beta2, square_updates(o, t));
    frugi_step_args args = {
        .step = step,
        .rate = (float)rate,
        .merged = (float)merged,
        .decay_factor = f->coupled ? 1.0f : (float)(1 - rate * f->decay),
        .momentum = (float)f->momentum,
        .coupled = f->coupled ? (float)f->decay : 0.0f,
        .beta1 = (float)f->beta1,
        .one_minus_beta1 = (float)(1 - f->beta1),
        .beta2 = (float)f->beta2,
        .one_minus_beta2 = (float)(1 - f->beta2),
        .squares_frozen = step >= o->frozen_since && step < o->frozen_until,
        .eps = (float)f->eps,
        .adam_rate = (float)(rate / correct1),
        .root_gain = (float)(1 / sqrt(correct2)),
        .mean_gain = (float)(1 / correct1),
    };
    if (frugi_has_targets(f) && f->beta2 > 0) { /* infinite: min_root is 0, no bound */
        double least = 1 / (correct1 * sqrt(max_step_squared(f->beta1, f->beta2, t)));
        args.min_root = least < 1e30 ? (float)least : 0.0f;
    }
    if (o->inertia.velocity) {
        args.inertia = (float)o->inertia.now;
        args.one_minus_inertia = (float)(1 - o->inertia.now);
        args.inertia_rate = (float)(rate * gain * (1 - o->inertia.now));
        args.inertia_gain = (float)(1 / (1 - o->inertia.product));
    }
    if (seen) {
        args.window_rate = (float)(rate / (1 - frugi_power(f->beta1, seen)));
        args.window_root = (float)(1 / sqrt(1 - frugi_power(f->beta2, seen)));
    }
    return args;
}

/* One block: n elements from `within` on, a multiple of the block length into its tensor. */
static void update_block(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_tensor *p, uint64_t within,
                         uint32_t n, const float *g, float *w) {
    const float decay_factor = p->decays ? args->decay_factor : 1.0f;
    const uint64_t first = p->at + within, block = p->at + within / FRUGI_OPTIM_BLOCK;
    float added[FRUGI_OPTIM_BLOCK];
    if (p->decays && args->coupled > 0) {
        for (uint32_t i = 0; i < n; i++)
            added[i] = g[i] + args->coupled * w[i];
        g = added;
    }
    if (frugi_largest_magnitude(g, n) >= FRUGI_OPTIM_GRAD_LIMIT)
        return;
    switch (p->rule) {
    case FRUGI_UPDATE_DIRECT:
        if (o->inertia.velocity && !p->dense)
            frugi_step_inertia(args, o->inertia.velocity + first, w, g, n, decay_factor);
        else
            frugi_step_direct(w, g, n, decay_factor, p->dense ? args->rate : args->merged);
        break;
    case FRUGI_UPDATE_MOMENTUM:
        frugi_step_momentum(args, o->options.nesterov != 0, o->momentum + first, w, g, n, decay_factor);
        break;
    case FRUGI_UPDATE_SUM: frugi_step_sum(o->sum + first, w, g, n, decay_factor, args->merged); break;
    case FRUGI_UPDATE_ADAM: frugi_step_adam(args, o->mean + first, o->square + first, w, g, n, decay_factor); break;
    case FRUGI_UPDATE_ROOT:
        frugi_step_root(o, args, block, p->first_number + within / FRUGI_OPTIM_BLOCK, w, g, n, decay_factor);
        break;
    case FRUGI_UPDATE_SIGN: frugi_step_sign(w, g, n, decay_factor, args->rate); break;
    case FRUGI_UPDATE_WINDOW: frugi_step_window(o, args, block, w, g, n, decay_factor); break;
    default: break;
    }
}

static frug_status check_boundary(const frug_optimizer *o, uint64_t at, const char *which) {
    for (size_t i = 0; i < o->tensors; i++) {
        const frugi_optim_tensor *p = &o->tensor[i];
        bool inside = at > p->begin && at < p->begin + p->count;
        FRUG_FAIL_IF(inside && p->rule == FRUGI_UPDATE_TARGET, FRUG_ERR_ARG,
                     "range: its %s at element %llu cuts tensor '%s', which %s updates as a whole", which,
                     (unsigned long long)at, o->layout->tensor[p->number].name,
                     frug_optimizer_at(o->options.kind)->name);
        FRUG_FAIL_IF(inside && (at - p->begin) % FRUGI_OPTIM_BLOCK != 0, FRUG_ERR_ARG,
                     "range: its %s at element %llu cuts a block of %u in tensor '%s'", which, (unsigned long long)at,
                     FRUGI_OPTIM_BLOCK, o->layout->tensor[p->number].name);
    }
    return FRUG_OK;
}

frug_status frugi_optim_range_check(const frug_optimizer *o, uint64_t begin, uint64_t count) {
    uint64_t n = frug_layout_elements(o->layout);
    FRUG_FAIL_IF(begin > n || count > n - begin, FRUG_ERR_ARG,
                 "range: %llu elements from %llu on exceed the layout of %llu", (unsigned long long)count,
                 (unsigned long long)begin, (unsigned long long)n);
    for (size_t i = 0; i < o->tensors; i++) {
        const frugi_optim_tensor *p = &o->tensor[i];
        const frug_tensor *t = &o->layout->tensor[p->number];
        FRUG_FAIL_IF(t->absent && p->begin < begin + count && begin < p->begin + p->count, FRUG_ERR_ARG,
                     "range: it has elements of tensor '%s', which is absent", t->name);
    }
    FRUG_TRY(check_boundary(o, begin, "begin"));
    return check_boundary(o, begin + count, "end");
}

bool frugi_optim_range_next(const frug_optimizer *o, uint64_t begin, uint64_t count, size_t *next,
                            frugi_optim_range *range) {
    while (*next < o->tensors) {
        const frugi_optim_tensor *p = &o->tensor[(*next)++];
        uint64_t from = p->begin > begin ? p->begin : begin;
        uint64_t end = p->begin + p->count < begin + count ? p->begin + p->count : begin + count;
        *range = (frugi_optim_range){.tensor = p, .from = from, .count = end - from};
        if (from < end && p->rule != FRUGI_UPDATE_FROZEN)
            return true;
    }
    return false;
}

static void update_range(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_range *range, const float *g,
                         float *w) {
    const frugi_optim_tensor *p = range->tensor;
    if (p->rule == FRUGI_UPDATE_TARGET) {
        frugi_target_update(o, args, &o->targets->target[p->at], g, w, p->decays ? args->decay_factor : 1.0f);
        return;
    }
    for (uint64_t at = 0; at < range->count; at += FRUGI_OPTIM_BLOCK) {
        uint64_t left = range->count - at;
        uint32_t n = left < FRUGI_OPTIM_BLOCK ? (uint32_t)left : FRUGI_OPTIM_BLOCK;
        update_block(o, args, p, range->from - p->begin + at, n, g + at, w + at);
    }
}

static frug_status check_step(const frug_optimizer *o, uint64_t begin, uint64_t count, double rate,
                              const float *weights) {
    FRUG_FAIL_IF(!o || !weights, FRUG_ERR_ARG, "step: null optimizer or weights");
    FRUG_FAIL_IF(!(rate >= 0 && rate <= 1e9), FRUG_ERR_ARG, "step: the learning rate must be from 0 to 1e9");
    return frugi_optim_range_check(o, begin, count);
}

frug_status frug_optimizer_step(frug_optimizer *o, uint64_t step, frug_range range, const float *grad, double rate,
                                float *weights) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!grad, FRUG_ERR_ARG, "step: null gradient");
    FRUG_TRY(check_step(o, begin, count, rate, weights));
    frugi_inertia_seek(o, step);
    const frugi_step_args args = make_step_args(o, step, rate);
    frugi_optim_range part;
    for (size_t next = 0; frugi_optim_range_next(o, begin, count, &next, &part);)
        update_range(o, &args, &part, grad + (part.from - begin), weights + (part.from - begin));
    return FRUG_OK;
}

frug_status frug_optimizer_step_measured(frug_optimizer *o, uint64_t step, frug_range range, const float *measured,
                                         double rate, float *weights) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_TRY(check_step(o, begin, count, rate, weights));
    FRUG_FAIL_IF(!measured && frug_optimizer_measure_count(o, step, (frug_range){begin, count}), FRUG_ERR_ARG,
                 "step: null measurements");
    frugi_inertia_seek(o, step);
    const frugi_step_args args = make_step_args(o, step, rate);
    frugi_optim_range part;
    for (size_t next = 0; frugi_optim_range_next(o, begin, count, &next, &part);) {
        const frugi_optim_target *t = frugi_optim_range_sketch(o, step, &part);
        float *w = weights + (part.from - begin);
        uint64_t floats = frugi_optim_range_floats(o, step, &part); /* before the step changes the state */
        if (t)
            frugi_target_update_measured(o, &args, t, measured, w, part.tensor->decays ? args.decay_factor : 1.0f);
        else
            update_range(o, &args, &part, measured, w);
        measured += floats;
    }
    return FRUG_OK;
}

/*
 * optimizer_step.c - move a range of weights, by a gradient or by what was measured of it.
 *
 * A step goes from block to block of 256 elements, which stay in the first cache: look at the gradient, then move the
 * weights the way of the tensor they belong to. A block whose gradient holds a NaN, an infinity or anything from 2^63
 * on is held back whole, weights and states: so no state ever holds a NaN or an infinity, whatever arrives. Tensors
 * that are looked at whole are held back whole (target_step.c).
 */
#include "base/float_bits.h"
#include "base/status.h"
#include "optim/target.h"

#include <math.h>

/*
 * The square of the longest step that AdamW can take, in multiples of the rate: with weights a_i of the mean and b_i of
 * the mean square, both of sum one, (sum a_i x_i)^2 <= (sum b_i x_i^2) (sum a_i^2 / b_i). Infinite for beta2 = 0.
 */
static double longest_step2(double beta1, double beta2, uint64_t t) {
    double ratio = beta1 * beta1 / beta2;
    double terms = fabs(ratio - 1) < 1e-9 ? (double)t : (frugi_power(ratio, t) - 1) / (ratio - 1);
    double correct1 = 1 - frugi_power(beta1, t), correct2 = 1 - frugi_power(beta2, t), first = (1 - beta1) / correct1;
    return first * first / ((1 - beta2) / correct2) * terms;
}

/* Everything that depends on step and rate, worked out in double and rounded once. */
static frugi_move plan_move(const frug_optimizer *o, uint64_t step, double rate) {
    const frugi_optim_options *f = &o->options;
    uint64_t t = step < UINT64_MAX ? step + 1 : step;
    uint64_t seen = t < f->window ? t : f->window;
    double correct1 = 1 - frugi_power(f->beta1, t), correct2 = 1 - frugi_power(f->beta2, t);
    frugi_move move = {
        .step = step,
        .rate = (float)rate,
        .merged = (float)(rate * o->gain),
        .keep = f->coupled ? 1.0f : (float)(1 - rate * f->decay),
        .momentum = (float)f->momentum,
        .coupled = f->coupled ? (float)f->decay : 0.0f,
        .beta1 = (float)f->beta1,
        .rest1 = (float)(1 - f->beta1),
        .beta2 = (float)f->beta2,
        .rest2 = (float)(1 - f->beta2),
        .eps = (float)f->eps,
        .adam_rate = (float)(rate / correct1),
        .root_gain = (float)(1 / sqrt(correct2)),
        .mean_gain = (float)(1 / correct1),
    };
    if (frugi_has_targets(f) && f->beta2 > 0) { /* an infinity makes it 0, which is no bound */
        double least = 1 / (correct1 * sqrt(longest_step2(f->beta1, f->beta2, t)));
        move.least_root = least < 1e30 ? (float)least : 0.0f;
    }
    if (o->inertia.velocity) {
        move.inertia = (float)o->inertia.now;
        move.inertia_rest = (float)(1 - o->inertia.now);
        move.inertia_rate = (float)(rate * o->gain * (1 - o->inertia.now));
        move.inertia_gain = (float)(1 / (1 - o->inertia.product));
    }
    if (seen) {
        move.window_rate = (float)(rate / (1 - frugi_power(f->beta1, seen)));
        move.window_root = (float)(1 / sqrt(1 - frugi_power(f->beta2, seen)));
    }
    return move;
}

/* One block: n elements from `within` on, a multiple of the block length into its part. */
static void move_block(frug_optimizer *o, const frugi_move *move, const frugi_part *p, uint64_t within, uint32_t n,
                       const float *g, float *w) {
    const float keep = p->decays ? move->keep : 1.0f;
    const uint64_t first = p->at + within, block = p->at + within / FRUGI_OPTIM_BLOCK;
    float added[FRUGI_OPTIM_BLOCK];
    if (p->decays && move->coupled > 0) {
        for (uint32_t i = 0; i < n; i++)
            added[i] = g[i] + move->coupled * w[i];
        g = added;
    }
    if (frugi_largest_magnitude(g, n) >= FRUGI_OPTIM_HELD)
        return;
    switch (p->way) {
    case FRUGI_WAY_DIRECT:
        if (o->inertia.velocity && !p->whole)
            frugi_move_inertia(move, o->inertia.velocity + first, w, g, n, keep);
        else
            frugi_move_direct(w, g, n, keep, p->whole ? move->rate : move->merged);
        break;
    case FRUGI_WAY_MOMENTUM:
        frugi_move_momentum(move, o->options.nesterov != 0, o->momentum + first, w, g, n, keep);
        break;
    case FRUGI_WAY_SUM: frugi_move_sum(o->sum + first, w, g, n, keep, move->merged); break;
    case FRUGI_WAY_ADAM: frugi_move_adam(move, o->mean + first, o->square + first, w, g, n, keep); break;
    case FRUGI_WAY_ROOT: frugi_move_root(o, move, block, w, g, n, keep); break;
    case FRUGI_WAY_SIGN: frugi_move_sign(w, g, n, keep, move->rate); break;
    case FRUGI_WAY_WINDOW: frugi_move_window(o, move, block, w, g, n, keep); break;
    default: break;
    }
}

static frug_status check_cut(const frug_optimizer *o, uint64_t at, const char *which) {
    for (size_t i = 0; i < o->parts; i++) {
        const frugi_part *p = &o->part[i];
        bool inside = at > p->begin && at < p->begin + p->count;
        FRUG_FAIL_IF(inside && p->way == FRUGI_WAY_TARGET, FRUG_ERR_ARG,
                     "range: its %s at element %llu cuts tensor '%s', which %s moves as a whole", which,
                     (unsigned long long)at, o->layout->tensor[p->tensor].name,
                     frug_optimizer_at(o->options.kind)->name);
        FRUG_FAIL_IF(inside && (at - p->begin) % FRUGI_OPTIM_BLOCK != 0, FRUG_ERR_ARG,
                     "range: its %s at element %llu cuts a block of %u in tensor '%s'", which, (unsigned long long)at,
                     FRUGI_OPTIM_BLOCK, o->layout->tensor[p->tensor].name);
    }
    return FRUG_OK;
}

frug_status frugi_range_check(const frug_optimizer *o, uint64_t begin, uint64_t count) {
    uint64_t n = frug_layout_elements(o->layout);
    FRUG_FAIL_IF(begin > n || count > n - begin, FRUG_ERR_ARG,
                 "range: %llu elements from %llu on leave a layout of %llu", (unsigned long long)count,
                 (unsigned long long)begin, (unsigned long long)n);
    FRUG_TRY(check_cut(o, begin, "begin"));
    return check_cut(o, begin + count, "end");
}

bool frugi_stretch_next(const frug_optimizer *o, uint64_t begin, uint64_t count, size_t *next, frugi_stretch *stretch) {
    while (*next < o->parts) {
        const frugi_part *p = &o->part[(*next)++];
        uint64_t from = p->begin > begin ? p->begin : begin;
        uint64_t end = p->begin + p->count < begin + count ? p->begin + p->count : begin + count;
        *stretch = (frugi_stretch){.part = p, .from = from, .count = end - from};
        if (from < end && p->way != FRUGI_WAY_FROZEN)
            return true;
    }
    return false;
}

static void move_stretch(frug_optimizer *o, const frugi_move *move, const frugi_stretch *stretch, const float *g,
                         float *w) {
    const frugi_part *p = stretch->part;
    if (p->way == FRUGI_WAY_TARGET) {
        frugi_target_move(o, move, &o->targets->target[p->at], g, w, p->decays ? move->keep : 1.0f);
        return;
    }
    for (uint64_t at = 0; at < stretch->count; at += FRUGI_OPTIM_BLOCK) {
        uint64_t left = stretch->count - at;
        uint32_t n = left < FRUGI_OPTIM_BLOCK ? (uint32_t)left : FRUGI_OPTIM_BLOCK;
        move_block(o, move, p, stretch->from - p->begin + at, n, g + at, w + at);
    }
}

static frug_status check_step(const frug_optimizer *o, uint64_t begin, uint64_t count, double rate,
                              const float *weights) {
    FRUG_FAIL_IF(!o || !weights, FRUG_ERR_ARG, "step: no optimizer or no weights");
    FRUG_FAIL_IF(!(rate >= 0 && rate <= 1e9), FRUG_ERR_ARG, "step: a learning rate is a number from 0 to 1e9");
    return frugi_range_check(o, begin, count);
}

frug_status frug_optimizer_step(frug_optimizer *o, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                double rate, float *weights) {
    FRUG_FAIL_IF(!grad, FRUG_ERR_ARG, "step: no gradient");
    FRUG_TRY(check_step(o, begin, count, rate, weights));
    frugi_inertia_seek(o, step);
    const frugi_move move = plan_move(o, step, rate);
    frugi_stretch stretch;
    for (size_t next = 0; frugi_stretch_next(o, begin, count, &next, &stretch);)
        move_stretch(o, &move, &stretch, grad + (stretch.from - begin), weights + (stretch.from - begin));
    return FRUG_OK;
}

frug_status frug_optimizer_step_measured(frug_optimizer *o, uint64_t step, uint64_t begin, uint64_t count,
                                         const float *measured, double rate, float *weights) {
    FRUG_TRY(check_step(o, begin, count, rate, weights));
    FRUG_FAIL_IF(!measured && frug_optimizer_wants(o, step, begin, count), FRUG_ERR_ARG, "step: nothing measured");
    frugi_inertia_seek(o, step);
    const frugi_move move = plan_move(o, step, rate);
    frugi_stretch stretch;
    for (size_t next = 0; frugi_stretch_next(o, begin, count, &next, &stretch);) {
        const frugi_tuned *t = frugi_stretch_sketch(o, step, &stretch);
        float *w = weights + (stretch.from - begin);
        uint64_t taken = frugi_stretch_wants(o, step, &stretch); /* before the step changes what is due */
        if (t)
            frugi_target_move_measured(o, &move, t, measured, w, stretch.part->decays ? move.keep : 1.0f);
        else
            move_stretch(o, &move, &stretch, measured, w);
        measured += taken;
    }
    return FRUG_OK;
}

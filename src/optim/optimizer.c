/*
 * optimizer.c - make an optimiser, and move a range of weights.
 *
 * A step goes from block to block of 256 elements, which stay in the first cache: look at the gradient, then move the
 * weights the way of the tensor they belong to. A block whose gradient holds a NaN, an infinity or anything from 2^63
 * on is held back whole, weights and states: so no state ever holds a NaN or an infinity, whatever arrives.
 */
#include "optim/optimizer.h"

#include "common/bits.h"
#include "common/memory.h"
#include "common/status.h"
#include "compress/compressor.h"
#include "optim/target.h"

#include <math.h>

/* ---- making one ----------------------------------------------------------- */

static frugi_way way_of(const frugi_optim_options *options, bool whole, const frug_tensor *tensor) {
    frugi_way plain = options->momentum > 0 ? FRUGI_WAY_MOMENTUM : FRUGI_WAY_DIRECT;
    if (frugi_has_targets(options))
        return frugi_is_target(options, tensor) ? FRUGI_WAY_TARGET
               : options->others_adamw          ? FRUGI_WAY_ADAM
                                                : FRUGI_WAY_FROZEN;
    switch (options->kind) {
    case FRUGI_OPTIM_SGD: return plain;
    case FRUGI_OPTIM_ADAMW: return FRUGI_WAY_ADAM;
    case FRUGI_OPTIM_MERGED: return whole ? plain : FRUGI_WAY_DIRECT;
    case FRUGI_OPTIM_ADAM_MERGED: return whole ? FRUGI_WAY_ADAM : FRUGI_WAY_ROOT;
    case FRUGI_OPTIM_MICROADAM: return whole ? FRUGI_WAY_ADAM : FRUGI_WAY_WINDOW;
    default: return FRUGI_WAY_DIRECT;
    }
}

static uint64_t blocks_of(uint64_t count) {
    return count / FRUGI_OPTIM_BLOCK + (count % FRUGI_OPTIM_BLOCK != 0);
}

/* What a part takes of its way's count. */
static uint64_t used_by(const frugi_part *p) {
    switch (p->way) {
    case FRUGI_WAY_ROOT:
    case FRUGI_WAY_WINDOW: return blocks_of(p->count);
    case FRUGI_WAY_TARGET: return 1;
    default: return p->count;
    }
}

/* The compressor's own word, and not its plan for a step: warm-up sends everything whole, but for a while only. */
static bool travels_whole(const frug_compressor *c, uint64_t element) {
    return c && c->piece[frugi_piece_at(c, element)].dense;
}

static frug_status make_parts(frug_optimizer *o, const frug_compressor *c) {
    o->part = frugi_calloc(o->layout->count + 1, sizeof *o->part);
    FRUG_FAIL_IF(!o->part, FRUG_ERR_MEMORY, "optimizer: no memory for %zu tensors", o->layout->count);
    for (size_t i = 0; i < o->layout->count; i++) {
        const frug_tensor *t = &o->layout->tensor[i];
        uint64_t n = frugi_tensor_elements(t);
        if (!n)
            continue;
        frugi_part *p = &o->part[o->parts++];
        *p = (frugi_part){.begin = t->offset, .count = n, .tensor = (uint32_t)i, .whole = travels_whole(c, t->offset)};
        p->decays = o->options.decay > 0 && (t->ndim >= 2 || o->options.decay_all);
        p->way = way_of(&o->options, p->whole, t);
        p->at = o->used[p->way];
        o->used[p->way] += used_by(p);
        o->shape_hash = o->shape_hash * 0x100000001b3u + (uint64_t)p->way + 1;
        if (p->way == FRUGI_WAY_TARGET)
            FRUG_TRY(frugi_target_add(o, t, (uint32_t)i));
    }
    return FRUG_OK;
}

/* Cut the arena up; with a NULL arena, measure it. */
static size_t arrange(frug_optimizer *o) {
    const frugi_optim_options *f = &o->options;
    const size_t width = frugi_state_bytes(f->state);
    const uint64_t lists = o->used[FRUGI_WAY_WINDOW] * f->window, roots = o->used[FRUGI_WAY_ROOT];
    unsigned char *at = o->arena;
    size_t used = 0;
#define TAKE(pointer, bytes) ((pointer) = (void *)(at ? at + used : NULL), used += (size_t)(bytes))
    TAKE(o->momentum, 4 * o->used[FRUGI_WAY_MOMENTUM]);
    TAKE(o->mean, 4 * o->used[FRUGI_WAY_ADAM]);
    TAKE(o->square, 4 * o->used[FRUGI_WAY_ADAM]);
    TAKE(o->root, roots * FRUGI_OPTIM_BLOCK * width);
    TAKE(o->scale, f->state == FRUGI_STATE_INT8 ? 2 * roots : 0);
    TAKE(o->value, lists * f->entries * width);
    TAKE(o->index, lists * f->entries);
    TAKE(o->count, lists);
#undef TAKE
    return used + frugi_targets_arrange(o->targets, at ? at + used : NULL);
}

/* By squaring: the last bit of pow() differs between C libraries. */
static double power(double base, uint64_t n) {
    double result = 1;
    for (; n; n >>= 1, base *= base)
        if (n & 1)
            result *= base;
    return result;
}

static frug_status decide_gain(frug_optimizer *o, const frug_compressor *c) {
    o->gain = o->options.gain > 0 ? o->options.gain : 1;
    if (o->options.kind != FRUGI_OPTIM_MERGED || o->options.gain > 0)
        return FRUG_OK;
    frugi_feedback feedback = c ? c->config.feedback : FRUGI_FEEDBACK_MERGED;
    FRUG_FAIL_IF(feedback != FRUGI_FEEDBACK_MERGED && feedback != FRUGI_FEEDBACK_DGC, FRUG_ERR_CONFIG,
                 "config: optimizer merged: this compressor's feedback holds no momentum; feedback=merged and dgc do, "
                 "with others take sgd");
    if (feedback == FRUGI_FEEDBACK_MERGED) /* dgc's momentum has gathered strength already */
        o->gain = 1 / (1 - o->options.momentum);
    return FRUG_OK;
}

static frug_status fill(frug_optimizer *o, const char *text, const frug_layout *layout, const frug_compressor *c) {
    FRUG_TRY(frugi_optim_parse(text, &o->options));
    FRUG_TRY(frugi_layout_copy(layout, &o->layout));
    o->layout_hash = frug_layout_hash(layout);
    FRUG_FAIL_IF(c && c->layout_hash != o->layout_hash, FRUG_ERR_ARG, "optimizer: the compressor has another layout");
    FRUG_TRY(decide_gain(o, c));
    FRUG_TRY(make_parts(o, c));
    FRUG_TRY(frugi_targets_reserve(o));
    frugi_optim_print(&o->options, o->text);
    for (uint32_t age = 0; age < o->options.window; age++) {
        o->age1[age] = (float)((1 - o->options.beta1) * power(o->options.beta1, age));
        o->age2[age] = (float)((1 - o->options.beta2) * power(o->options.beta2, age));
    }
    o->arena_bytes = arrange(o);
    o->arena = frugi_alloc(o->arena_bytes);
    FRUG_FAIL_IF(!o->arena, FRUG_ERR_MEMORY, "optimizer: no memory for %zu bytes of state", o->arena_bytes);
    arrange(o);
    frugi_targets_begin(o);
    return FRUG_OK;
}

frug_status frug_optimizer_create(const char *text, const frug_layout *layout, const frug_compressor *compressor,
                                  frug_optimizer **optimizer) {
    FRUG_FAIL_IF(!text || !layout || !optimizer, FRUG_ERR_ARG,
                 "optimizer: no text, no layout or no place for the result");
    frug_optimizer *made = frugi_calloc(1, sizeof *made);
    FRUG_FAIL_IF(!made, FRUG_ERR_MEMORY, "optimizer: out of memory");
    frug_status status = fill(made, text, layout, compressor);
    if (status == FRUG_OK)
        *optimizer = made;
    else
        frug_optimizer_destroy(made);
    return status;
}

void frug_optimizer_destroy(frug_optimizer *o) {
    if (!o)
        return;
    frug_layout_destroy(o->layout);
    frugi_targets_destroy(o->targets);
    frugi_free(o->part);
    frugi_free(o->arena);
    frugi_free(o);
}

const char *frug_optimizer_text(const frug_optimizer *o) {
    return o ? o->text : "";
}

double frug_optimizer_gain(const frug_optimizer *o) {
    return o ? o->gain : 1;
}

int frug_optimizer_cuts(const frug_optimizer *o, size_t tensor) {
    for (size_t i = 0; o && i < o->parts; i++)
        if (o->part[i].tensor == tensor)
            return o->part[i].way != FRUGI_WAY_TARGET;
    return 1;
}

uint64_t frug_optimizer_states(const frug_optimizer *o) {
    if (!o)
        return 0;
    uint64_t whole = o->targets ? 2 * o->targets->moments : 0;
    return o->used[FRUGI_WAY_MOMENTUM] + 2 * o->used[FRUGI_WAY_ADAM] + whole +
           FRUGI_OPTIM_BLOCK * o->used[FRUGI_WAY_ROOT] +
           o->used[FRUGI_WAY_WINDOW] * o->options.window * o->options.entries;
}

/* ---- moving weights ------------------------------------------------------- */

/*
 * The square of the longest step that AdamW can take, in multiples of the rate: with weights a_i of the mean and b_i of
 * the mean square, both of sum one, (sum a_i x_i)^2 <= (sum b_i x_i^2) (sum a_i^2 / b_i). Infinite for beta2 = 0.
 */
static double longest_step2(double beta1, double beta2, uint64_t t) {
    double ratio = beta1 * beta1 / beta2;
    double terms = fabs(ratio - 1) < 1e-9 ? (double)t : (power(ratio, t) - 1) / (ratio - 1);
    double correct1 = 1 - power(beta1, t), correct2 = 1 - power(beta2, t), first = (1 - beta1) / correct1;
    return first * first / ((1 - beta2) / correct2) * terms;
}

/* Everything that depends on step and rate, worked out in double and rounded once. */
static frugi_move plan_move(const frug_optimizer *o, uint64_t step, double rate) {
    const frugi_optim_options *f = &o->options;
    uint64_t t = step < UINT64_MAX ? step + 1 : step;
    uint64_t seen = t < f->window ? t : f->window;
    double correct1 = 1 - power(f->beta1, t), correct2 = 1 - power(f->beta2, t);
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
    if (seen) {
        move.window_rate = (float)(rate / (1 - power(f->beta1, seen)));
        move.window_root = (float)(1 / sqrt(1 - power(f->beta2, seen)));
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
    case FRUGI_WAY_DIRECT: frugi_move_direct(w, g, n, keep, p->whole ? move->rate : move->merged); break;
    case FRUGI_WAY_MOMENTUM:
        frugi_move_momentum(move, o->options.nesterov != 0, o->momentum + first, w, g, n, keep);
        break;
    case FRUGI_WAY_ADAM: frugi_move_adam(move, o->mean + first, o->square + first, w, g, n, keep); break;
    case FRUGI_WAY_ROOT: frugi_move_root(o, move, block, w, g, n, keep); break;
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

static frug_status check_step(const frug_optimizer *o, uint64_t begin, uint64_t count, const float *grad, double rate,
                              const float *weights) {
    FRUG_FAIL_IF(!o || !grad || !weights, FRUG_ERR_ARG, "step: no optimizer, no gradient or no weights");
    FRUG_FAIL_IF(!(rate >= 0 && rate <= 1e9), FRUG_ERR_ARG, "step: a learning rate is a number from 0 to 1e9");
    uint64_t n = frug_layout_elements(o->layout);
    FRUG_FAIL_IF(begin > n || count > n - begin, FRUG_ERR_ARG,
                 "range: %llu elements from %llu on leave a layout of %llu", (unsigned long long)count,
                 (unsigned long long)begin, (unsigned long long)n);
    FRUG_TRY(check_cut(o, begin, "begin"));
    return check_cut(o, begin + count, "end");
}

frug_status frug_optimizer_step(frug_optimizer *o, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                double rate, float *weights) {
    FRUG_TRY(check_step(o, begin, count, grad, rate, weights));
    const frugi_move move = plan_move(o, step, rate);
    for (size_t i = 0; i < o->parts; i++) {
        const frugi_part *p = &o->part[i];
        uint64_t from = p->begin > begin ? p->begin : begin;
        uint64_t end = p->begin + p->count < begin + count ? p->begin + p->count : begin + count;
        if (from >= end || p->way == FRUGI_WAY_FROZEN)
            continue;
        if (p->way == FRUGI_WAY_TARGET) {
            frugi_target_move(o, &move, &o->targets->target[p->at], grad + (from - begin), weights + (from - begin),
                              p->decays ? move.keep : 1.0f);
            continue;
        }
        for (uint64_t at = from; at < end; at += FRUGI_OPTIM_BLOCK) {
            uint32_t n = end - at < FRUGI_OPTIM_BLOCK ? (uint32_t)(end - at) : FRUGI_OPTIM_BLOCK;
            move_block(o, &move, p, at - p->begin, n, grad + (at - begin), weights + (at - begin));
        }
    }
    return FRUG_OK;
}

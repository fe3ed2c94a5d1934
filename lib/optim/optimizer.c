/*
 * optimizer.c - make an optimiser: which tensor moves which way, and one arena for what is kept about all of them.
 */
#include "optim/optimizer.h"

#include "base/alloc.h"
#include "base/status.h"
#include "compress/compressor.h"
#include "optim/target.h"
#include "schedule/density.h"

static frugi_way way_of(const frugi_optim_options *options, bool whole, bool changes, const frug_tensor *tensor) {
    frugi_way plain = options->momentum > 0 ? FRUGI_WAY_MOMENTUM : FRUGI_WAY_DIRECT;
    if (frugi_has_targets(options))
        return frugi_is_target(options, tensor)  ? FRUGI_WAY_TARGET
               : frugi_is_other(options, tensor) ? FRUGI_WAY_ADAM
                                                 : FRUGI_WAY_FROZEN;
    switch (options->kind) {
    case FRUGI_OPTIM_SGD: return plain;
    case FRUGI_OPTIM_ADAMW: return FRUGI_WAY_ADAM;
    case FRUGI_OPTIM_MERGED: return whole ? plain : changes ? FRUGI_WAY_SUM : FRUGI_WAY_DIRECT;
    case FRUGI_OPTIM_ADAM_MERGED: return whole ? FRUGI_WAY_ADAM : FRUGI_WAY_ROOT;
    case FRUGI_OPTIM_SIGN: return whole ? FRUGI_WAY_ADAM : FRUGI_WAY_SIGN;
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

/* Frames of feedback=ef21 hold changes of the gradient, which the receiver has to add up. */
static bool sends_changes(const frug_compressor *c) {
    return c && c->config.feedback == FRUGI_FEEDBACK_EF21;
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
        p->way = way_of(&o->options, p->whole, sends_changes(c), t);
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
    TAKE(o->sum, 4 * o->used[FRUGI_WAY_SUM]);
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

/*
 * The mean square should span several arrivals of an entry, which come every 1 / density steps: about six of them, and
 * from 100 to 1000 steps.
 */
#define ARRIVALS    0.16 /* 1 - beta2 for a density of 1 */
#define LEAST_BETA2 0.99
#define MOST_BETA2  0.999

static void decide_beta2(frug_optimizer *o, const frug_compressor *c) {
    if (o->options.beta2 >= 0)
        return;
    double beta2 = c ? 1 - ARRIVALS * frugi_schedule_final_density(&c->config.schedule) : LEAST_BETA2;
    o->options.beta2 = beta2 < LEAST_BETA2 ? LEAST_BETA2 : beta2 > MOST_BETA2 ? MOST_BETA2 : beta2;
}

static frug_status decide_gain(frug_optimizer *o, const frug_compressor *c) {
    o->gain = o->options.gain > 0 ? o->options.gain : 1;
    FRUG_FAIL_IF(sends_changes(c) && o->options.kind != FRUGI_OPTIM_MERGED, FRUG_ERR_CONFIG,
                 "config: feedback=ef21 sends changes of the gradient, which only optimizer merged adds up; take "
                 "merged, or another feedback");
    if (o->options.kind != FRUGI_OPTIM_MERGED || o->options.gain > 0)
        return FRUG_OK;
    frugi_feedback feedback = c ? c->config.feedback : FRUGI_FEEDBACK_MERGED;
    FRUG_FAIL_IF(feedback != FRUGI_FEEDBACK_MERGED && feedback != FRUGI_FEEDBACK_DGC && feedback != FRUGI_FEEDBACK_EF21,
                 FRUG_ERR_CONFIG,
                 "config: optimizer merged: this compressor's feedback holds no momentum; feedback=merged, dgc and "
                 "ef21 do, with others take sgd");
    if (feedback != FRUGI_FEEDBACK_DGC) /* whose momentum is a sum already, not a mean */
        o->gain = 1 / (1 - o->options.momentum);
    return FRUG_OK;
}

static frug_status fill(frug_optimizer *o, const char *text, const frug_layout *layout, const frug_compressor *c) {
    FRUG_TRY(frugi_optim_parse(text, &o->options));
    FRUG_TRY(frugi_layout_copy(layout, &o->layout));
    o->layout_hash = frug_layout_hash(layout);
    FRUG_FAIL_IF(c && c->layout_hash != o->layout_hash, FRUG_ERR_ARG, "optimizer: the compressor has another layout");
    FRUG_TRY(decide_gain(o, c));
    decide_beta2(o, c);
    FRUG_TRY(frugi_names_check(&o->options, o->layout));
    FRUG_TRY(make_parts(o, c));
    FRUG_TRY(frugi_targets_reserve(o));
    frugi_optim_print(&o->options, o->text);
    for (uint32_t age = 0; age < o->options.window; age++) {
        o->age1[age] = (float)((1 - o->options.beta1) * frugi_power(o->options.beta1, age));
        o->age2[age] = (float)((1 - o->options.beta2) * frugi_power(o->options.beta2, age));
    }
    o->arena_bytes = arrange(o);
    o->arena = frugi_alloc(o->arena_bytes);
    FRUG_FAIL_IF(!o->arena, FRUG_ERR_MEMORY, "optimizer: no memory for %zu bytes of state", o->arena_bytes);
    arrange(o);
    frugi_targets_begin(o);
    return frugi_inertia_begin(o, c);
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
    frugi_inertia_end(o);
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
    return o->used[FRUGI_WAY_MOMENTUM] + o->used[FRUGI_WAY_SUM] + 2 * o->used[FRUGI_WAY_ADAM] + whole +
           (o->inertia.velocity ? o->inertia.floats : 0) + FRUGI_OPTIM_BLOCK * o->used[FRUGI_WAY_ROOT] +
           o->used[FRUGI_WAY_WINDOW] * o->options.window * o->options.entries;
}

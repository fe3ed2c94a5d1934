/* optimizer.c - create an optimizer: select the update rule of each tensor, allocate one arena for all states. */
#include "optim/optimizer.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "compress/compressor_access.h"
#include "optim/target.h"
#include "schedule/density.h"

#include <math.h>

/* The rule of a tensor that is no target. */
static frugi_update_rule choose_rule(const frugi_optim_options *options, bool dense, bool differences,
                                     const frug_tensor *tensor) {
    frugi_update_rule plain = options->momentum > 0 ? FRUGI_UPDATE_MOMENTUM : FRUGI_UPDATE_DIRECT;
    switch (options->kind) {
    case FRUGI_OPTIM_SGD: return plain;
    case FRUGI_OPTIM_ADAMW:
    case FRUGI_OPTIM_MUON: return FRUGI_UPDATE_ADAM;
    case FRUGI_OPTIM_MERGED: return dense ? plain : differences ? FRUGI_UPDATE_SUM : FRUGI_UPDATE_DIRECT;
    case FRUGI_OPTIM_ADAM_MERGED:
    case FRUGI_OPTIM_MUON_MERGED: return dense ? FRUGI_UPDATE_ADAM : FRUGI_UPDATE_ROOT;
    case FRUGI_OPTIM_SIGN: return dense ? FRUGI_UPDATE_ADAM : FRUGI_UPDATE_SIGN;
    case FRUGI_OPTIM_MICROADAM: return dense ? FRUGI_UPDATE_ADAM : FRUGI_UPDATE_WINDOW;
    default: return frugi_is_other(options, tensor) ? FRUGI_UPDATE_ADAM : FRUGI_UPDATE_FROZEN;
    }
}

/* muon-merged needs the momentum of a residual. */
static bool is_target(const frug_optimizer *o, bool dense, const frug_tensor *tensor) {
    return frugi_has_targets(&o->options) && !(dense && o->options.kind == FRUGI_OPTIM_MUON_MERGED) &&
           frugi_is_target(&o->options, o->layout, tensor);
}

static uint64_t blocks_of(uint64_t count) {
    return count / FRUGI_OPTIM_BLOCK + (count % FRUGI_OPTIM_BLOCK != 0);
}

/* What a tensor adds to o->used[] of its rule. */
static uint64_t state_units(const frugi_optim_tensor *p) {
    switch (p->rule) {
    case FRUGI_UPDATE_ROOT:
    case FRUGI_UPDATE_WINDOW: return blocks_of(p->count);
    case FRUGI_UPDATE_TARGET: return 1;
    default: return p->count;
    }
}

/*
 * From the compressor's configuration, not its density at a step: warm-up sends everything dense, but only for a while.
 */
static bool is_sent_dense(const frug_compressor *c, uint64_t element) {
    const frugi_partition *p = c ? frugi_compressor_partition(c) : NULL;
    return p && p->view[frugi_view_at(p, element)].dense;
}

/* Frames of feedback=ef21 contain differences of the gradient, which the receiver has to add up. */
static bool sends_differences(const frug_compressor *c) {
    return c && frugi_compressor_config(c)->feedback == FRUGI_FEEDBACK_EF21;
}

static frug_status make_tensors(frug_optimizer *o, const frug_compressor *c) {
    uint64_t blocks[FRUGI_UPDATE_RULES] = {0};
    o->tensor = frugi_calloc(o->layout->count + 1, sizeof *o->tensor);
    FRUG_FAIL_IF(!o->tensor, FRUG_ERR_MEMORY, "optimizer: no memory for %zu tensors", o->layout->count);
    for (size_t i = 0; i < o->layout->count; i++) {
        const frug_tensor *t = &o->layout->tensor[i];
        uint64_t n = frugi_tensor_elements(t);
        if (!n)
            continue;
        frugi_optim_tensor *p = &o->tensor[o->tensors++];
        *p = (frugi_optim_tensor){
            .begin = t->offset, .count = n, .number = (uint32_t)i, .dense = is_sent_dense(c, t->offset)};
        p->decays = o->options.decay > 0 && (t->ndim >= 2 || o->options.decay_all);
        p->rule = is_target(o, p->dense, t) ? FRUGI_UPDATE_TARGET
                                            : choose_rule(&o->options, p->dense, sends_differences(c), t);
        p->first_number = blocks[p->rule];
        blocks[p->rule] += blocks_of(n);
        p->rule = t->absent ? FRUGI_UPDATE_FROZEN : p->rule;
        p->at = o->used[p->rule];
        o->used[p->rule] += state_units(p);
        o->shape_hash = o->shape_hash * FRUGI_HASH_PRIME + (uint64_t)p->rule + 1;
        if (p->rule == FRUGI_UPDATE_TARGET)
            FRUG_TRY(frugi_target_add(o, t, p));
    }
    return FRUG_OK;
}

/* Set the pointers into the arena; with a NULL arena, only compute its size. */
static size_t place_arena(frug_optimizer *o) {
    const frugi_optim_options *f = &o->options;
    const size_t width = frugi_state_bytes(f->state);
    const uint64_t lists = o->used[FRUGI_UPDATE_WINDOW] * f->window, roots = o->used[FRUGI_UPDATE_ROOT];
    unsigned char *at = o->arena;
    size_t used = 0;
#define PLACE(pointer, bytes) ((pointer) = (void *)(at ? at + used : NULL), used += (size_t)(bytes))
    PLACE(o->momentum, 4 * o->used[FRUGI_UPDATE_MOMENTUM]);
    PLACE(o->sum, 4 * o->used[FRUGI_UPDATE_SUM]);
    PLACE(o->mean, 4 * o->used[FRUGI_UPDATE_ADAM]);
    PLACE(o->square, 4 * o->used[FRUGI_UPDATE_ADAM]);
    PLACE(o->root, roots * FRUGI_OPTIM_BLOCK * width);
    PLACE(o->scale, f->state == FRUGI_STATE_INT8 ? 2 * roots : 0);
    PLACE(o->value, lists * f->entries * width);
    PLACE(o->index, lists * f->entries);
    PLACE(o->count, lists);
#undef PLACE
    return used + frugi_targets_place_arena(o->targets, f->state, at ? at + used : NULL);
}

/*
 * The mean square should span several arrivals of an entry, which arrives every 1 / density steps: about six of them,
 * and from 100 to 1000 steps.
 */
#define BETA2_PER_DENSITY 0.16 /* 1 - beta2 at density 1 */
#define MIN_BETA2         0.99
#define MAX_BETA2         0.999

static void resolve_beta2(frug_optimizer *o, const frug_compressor *c) {
    if (o->options.beta2 >= 0)
        return;
    double beta2 =
        c ? 1 - BETA2_PER_DENSITY * frugi_schedule_final_density(&frugi_compressor_config(c)->schedule) : MIN_BETA2;
    o->options.beta2 = beta2 < MIN_BETA2 ? MIN_BETA2 : beta2 > MAX_BETA2 ? MAX_BETA2 : beta2;
}

/*
 * adam-merged with retention. At high rates noise is the limit: a retained entry is sent again, so its update continues
 * for some steps, and half of the rate makes up for it however often that is. At low rates it is not, and entries that
 * are seldom sent need a larger rate to move as far as with dense AdamW. A rate is high if a step of equal signs
 * changes what a matrix does by as much as the matrix itself: rate times width. Trained weights are to change little,
 * so with gain=finetune a rate is high sooner, and just above the usual ones.
 */
#define MIN_ADAM_GAIN      0.5
#define MAX_ADAM_GAIN      2.0
#define GAIN_AT_DENSITY_1  0.625   /* at low rates; with the fourth root of the density */
#define HIGH_RATE          0.25    /* times the width */
#define HIGH_FINETUNE_RATE 0.03125 /* usual are 0.02 and less */

static double mean_width(const frug_layout *layout) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < frug_layout_count(layout); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        if (frug_layout_get(layout, i, &t) != FRUG_OK || t.ndim < 2)
            continue;
        const double n = (double)frugi_tensor_elements(&t), rows = n > 0 ? (double)t.shape[0] : 1;
        const double side = fmin(rows, n / rows);
        sum +=
            n * (side > 1 ? side : sqrt(n) / 2); /* one row: sparse weights, of a matrix four times as long as wide */
        all += n;
    }
    return all > 0 ? sum / all : 0;
}

static void resolve_adam_gain(frug_optimizer *o, const frug_compressor *c) {
    const struct frug_config *config = c ? frugi_compressor_config(c) : NULL;
    const double density = config ? frugi_schedule_final_density(&config->schedule) : 1;
    const double retention = config ? frugi_retention(config, density) : 0;
    if (retention <= 0)
        return;
    const double low = GAIN_AT_DENSITY_1 / sqrt(sqrt(density));
    o->gain = fmax(MIN_ADAM_GAIN, 1 - retention);
    o->gain_low = fmin(MAX_ADAM_GAIN, fmax(1, low));
    o->mean_width = mean_width(o->layout);
    o->high_rate = o->options.gain < 0 ? HIGH_FINETUNE_RATE : HIGH_RATE;
}

/* Momentum belongs to one side, the residuals of the workers or the optimizer. */
static void warn_of_momentum(const frugi_optim_options *f, frugi_feedback feedback) {
    const bool workers = feedback == FRUGI_FEEDBACK_MERGED || feedback == FRUGI_FEEDBACK_DGC;
    const bool own = (f->kind == FRUGI_OPTIM_SGD && f->momentum > 0) || (f->kind == FRUGI_OPTIM_ADAMW && f->beta1 > 0);
    const bool leaves = f->kind == FRUGI_OPTIM_ADAM_MERGED || (f->kind == FRUGI_OPTIM_MUON_MERGED && f->momentum <= 0);
    if (workers && own)
        frugi_log(FRUG_LOG_WARN, "optimizer: momentum is applied twice: by the compressor's residual and by the "
                                 "optimizer; use merged or adam-merged");
    if (!workers && leaves)
        frugi_log(FRUG_LOG_WARN, "optimizer: no momentum: this optimizer leaves it to feedback=merged, which the "
                                 "compressor does not have; use adamw or muon");
}

static frug_status resolve_gain(frug_optimizer *o, const frug_compressor *c) {
    o->gain = o->options.gain > 0 ? o->options.gain : 1;
    FRUG_FAIL_IF(sends_differences(c) && o->options.kind != FRUGI_OPTIM_MERGED, FRUG_ERR_CONFIG,
                 "config: feedback=ef21 sends changes of the gradient, which only optimizer=merged adds up; use "
                 "optimizer=merged, or another feedback");
    FRUG_FAIL_IF(o->options.gain < 0 && o->options.kind != FRUGI_OPTIM_ADAM_MERGED, FRUG_ERR_CONFIG,
                 "config: gain=finetune is for adam-merged, whose gain depends on the rate");
    if (c)
        warn_of_momentum(&o->options, frugi_compressor_config(c)->feedback);
    if (o->options.kind == FRUGI_OPTIM_ADAM_MERGED && o->options.gain <= 0)
        resolve_adam_gain(o, c);
    if (o->options.kind != FRUGI_OPTIM_MERGED || o->options.gain > 0)
        return FRUG_OK;
    frugi_feedback feedback = c ? frugi_compressor_config(c)->feedback : FRUGI_FEEDBACK_MERGED;
    FRUG_FAIL_IF(
        feedback != FRUGI_FEEDBACK_MERGED && feedback != FRUGI_FEEDBACK_DGC && feedback != FRUGI_FEEDBACK_EF21,
        FRUG_ERR_CONFIG,
        "config: optimizer merged needs a compressor with feedback=merged, dgc or ef21, whose residual has the "
        "momentum; with others use sgd");
    if (feedback != FRUGI_FEEDBACK_DGC) /* DGC's momentum is a sum already, not a mean */
        o->gain = 1 / (1 - o->options.momentum);
    return FRUG_OK;
}

static frug_status init(frug_optimizer *o, const char *text, const frug_layout *layout, const frug_compressor *c) {
    FRUG_TRY(frugi_optim_parse(text, &o->options));
    FRUG_TRY(frugi_layout_copy(layout, &o->layout));
    o->layout_hash = frug_layout_hash(layout);
    FRUG_FAIL_IF(c && frugi_compressor_layout_hash(c) != o->layout_hash, FRUG_ERR_ARG,
                 "optimizer: the compressor has another layout");
    FRUG_TRY(resolve_gain(o, c));
    resolve_beta2(o, c);
    FRUG_TRY(frugi_names_check(&o->options, o->layout));
    FRUG_TRY(make_tensors(o, c));
    FRUG_TRY(frugi_targets_reserve(o));
    frugi_optim_print(&o->options, o->text);
    for (uint32_t age = 0; age < o->options.window; age++) {
        o->age_weight1[age] = (float)((1 - o->options.beta1) * frugi_power(o->options.beta1, age));
        o->age_weight2[age] = (float)((1 - o->options.beta2) * frugi_power(o->options.beta2, age));
    }
    o->arena_bytes = place_arena(o);
    o->arena = frugi_alloc(o->arena_bytes);
    FRUG_FAIL_IF(!o->arena, FRUG_ERR_MEMORY, "optimizer: no memory for %zu bytes of state", o->arena_bytes);
    place_arena(o);
    frugi_targets_init(o);
    return frugi_inertia_create(o, c);
}

frug_status frug_optimizer_create(const char *text, const frug_layout *layout, const frug_compressor *compressor,
                                  frug_optimizer **optimizer) {
    FRUG_FAIL_IF(!text || !layout || !optimizer, FRUG_ERR_ARG, "optimizer: null text, layout or result pointer");
    frug_optimizer *created = frugi_calloc(1, sizeof *created);
    FRUG_FAIL_IF(!created, FRUG_ERR_MEMORY, "optimizer: out of memory");
    frug_status status = init(created, text, layout, compressor);
    if (status == FRUG_OK)
        *optimizer = created;
    else
        frug_optimizer_destroy(created);
    return status;
}

void frug_optimizer_destroy(frug_optimizer *o) {
    if (!o)
        return;
    frug_layout_destroy(o->layout);
    frugi_targets_destroy(o->targets);
    frugi_inertia_destroy(o);
    frugi_free(o->tensor);
    frugi_free(o->arena);
    frugi_free(o);
}

const char *frug_optimizer_text(const frug_optimizer *o) {
    return o ? o->text : "";
}

double frug_optimizer_gain(const frug_optimizer *o, double rate) {
    if (!o || o->mean_width <= 0)
        return o ? o->gain : 1;
    const double x = rate * o->mean_width / o->high_rate, fourth = x * x * x * x;
    const double fall = o->options.gain < 0 ? fourth * fourth : fourth;
    return o->gain + (o->gain_low - o->gain) / (1 + fall);
}

int frug_optimizer_can_split(const frug_optimizer *o, size_t tensor) {
    for (size_t i = 0; o && i < o->tensors; i++)
        if (o->tensor[i].number == tensor)
            return o->tensor[i].rule != FRUGI_UPDATE_TARGET;
    return 1;
}

uint64_t frug_optimizer_state_count(const frug_optimizer *o) {
    if (!o)
        return 0;
    uint64_t moments = o->targets ? 2 * o->targets->moments + FRUGI_OPTIM_BLOCK * o->targets->codes : 0;
    return o->used[FRUGI_UPDATE_MOMENTUM] + o->used[FRUGI_UPDATE_SUM] + 2 * o->used[FRUGI_UPDATE_ADAM] + moments +
           (o->inertia.velocity ? o->inertia.floats : 0) + FRUGI_OPTIM_BLOCK * o->used[FRUGI_UPDATE_ROOT] +
           o->used[FRUGI_UPDATE_WINDOW] * o->options.window * o->options.entries;
}

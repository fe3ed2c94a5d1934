/*
 * value_memory.c - where values and their gradients lie. Values follow one another; gradients are placed in the order
 * in which the backward pass comes to them, each at the lowest place that no other living one covers.
 *
 * With FGT_KEEP_BLOCKS the values that stay inside of a block follow those that are kept, and those of every block
 * begin at the same place. With FGT_KEEP_NONE values are placed as gradients are, in the order of the forward pass.
 */
#include "trainer/nn/graph.h"

#include "trainer/base/counted_alloc.h"
#include "io/error.h"

#include <stdlib.h>

#define MOST_FLOATS ((size_t)1 << 48) /* far more than any machine has, and a value more does not overflow */

typedef struct stay {
    size_t begin, end; /* floats */
    fgt_value *value;
} stay;

typedef struct plan {
    fgt_graph *g;
    size_t data;  /* floats of values */
    size_t kept;  /* of them, those that are no block's own; known from the first time on */
    stay *living; /* ascending */
    size_t count, room;
    size_t height; /* floats of gradients */
    bool too_large;
} plan;

/* Of a value for the whole batch; 0, and the plan is no good, where that is beyond all measure. */
static size_t floats_of(plan *p, const fgt_value *v) {
    size_t floats;
    if (__builtin_mul_overflow((size_t)p->g->most, v->each, &floats) || floats > MOST_FLOATS || p->data > MOST_FLOATS ||
        p->height > MOST_FLOATS) {
        p->too_large = true;
        return 0;
    }
    return (floats + 15) / 16 * 16;
}

/* The first time only lengths count. */
static float *at_place(const plan *p, size_t at) {
    return p->g->activations ? p->g->activations + at : NULL;
}

static bool is_inside(const plan *p, const fgt_value *v) {
    return p->g->keep == FGT_KEEP_BLOCKS && v->block && !v->crosses;
}

/* Values of a block follow one another in the list, as they were made. */
static void place_data(plan *p) {
    size_t kept = 0, inside = 0, most = 0;
    uint32_t block = 0;
    for (fgt_value *v = p->g->values; v; v = v->next) {
        if (v->alias || v->external)
            continue;
        if (is_inside(p, v)) {
            inside = v->block == block ? inside : 0;
            block = v->block;
            v->data = at_place(p, p->kept + inside);
            inside += floats_of(p, v);
            most = inside > most ? inside : most;
        } else {
            v->data = at_place(p, kept);
            kept += floats_of(p, v);
        }
        p->data = kept + most;
    }
    p->kept = kept;
}

/* First fit among those that live. Returns the place. */
static size_t settle(plan *p, fgt_value *v) {
    size_t at = 0, i = 0, need = floats_of(p, v);
    while (i < p->count && p->living[i].begin < at + need) {
        at = p->living[i].end;
        i++;
    }
    for (size_t j = p->count; j > i; j--)
        p->living[j] = p->living[j - 1];
    p->living[i] = (stay){at, at + need, v};
    p->count++;
    p->height = p->height > at + need ? p->height : at + need;
    return at;
}

static void leave(plan *p, const fgt_value *v) {
    size_t i = 0;
    while (i < p->count && p->living[i].value != v)
        i++;
    if (i == p->count)
        return;
    for (p->count--; i < p->count; i++)
        p->living[i] = p->living[i + 1];
}

/* In the order of the backward pass: whoever uses a value first gives its gradient a place. */
static void place_gradients(plan *p) {
    for (const fgt_node *node = p->g->last; node; node = node->previous) {
        for (fgt_value *v = p->g->values; v; v = v->next)
            if (!v->alias && v->wants_grad && !v->own_grad && v->last == node->number)
                v->grad = at_place(p, p->data + settle(p, v));
        if (!node->out->alias && !node->out->kept)
            leave(p, node->out);
    }
}

/* In the order of the forward pass: a value is there from its node to the last that uses it. */
static void place_passing(plan *p) {
    for (const fgt_node *node = p->g->first; node; node = node->next) {
        for (fgt_value *v = p->g->values; v; v = v->next)
            if (!v->alias && !v->external && v->made == node->number)
                v->data = at_place(p, settle(p, v));
        for (fgt_value *v = p->g->values; v; v = v->next)
            if (v->last == node->number)
                leave(p, v);
    }
}

static void share(fgt_value *v) {
    const fgt_value *root = v;
    while (root->alias)
        root = root->alias;
    v->data = root->data;
    v->grad = root->grad;
}

static void place(plan *p) {
    p->data = p->count = p->height = 0;
    if (p->g->keep == FGT_KEEP_NONE) {
        place_passing(p);
        return;
    }
    place_data(p);
    place_gradients(p);
}

static int too_large(const fgt_graph *g) {
    return fgio_error("the model with batches of %u is too large for any memory", g->most);
}

static size_t work_floats(const fgt_graph *g) {
    return (size_t)g->threads * g->work_each + g->work_shared;
}

static int lay_out(plan *p) {
    fgt_graph *g = p->g;
    place(p);
    if (p->too_large)
        return too_large(g);
    g->weights = fgt_hold(FGT_USE_WEIGHTS, (size_t)g->elements * sizeof(float));
    float *memory = fgt_hold(FGT_USE_ACTIVATIONS, (p->data + p->height) * sizeof(float));
    g->work = fgt_hold(FGT_USE_ACTIVATIONS, work_floats(g) * sizeof(float));
    if (!g->weights || !memory || !g->work) {
        fgt_let_go(memory);
        return fgio_error("not enough memory for the model with batches of %u", g->most);
    }
    g->activations = memory;
    place(p);
    for (fgt_value *v = g->values; v; v = v->next)
        if (v->own_grad)
            v->grad = v->data;
    for (fgt_value *v = g->values; v; v = v->next)
        if (v->alias)
            share(v);
    for (fgt_param *q = g->params; q; q = q->next)
        q->w = g->weights + q->tensor.offset;
    return FGIO_EXIT_OK;
}

static int begin_plan(fgt_graph *g, plan *p) {
    *p = (plan){.g = g};
    for (const fgt_value *v = g->values; v; v = v->next)
        p->room++;
    p->living = calloc(p->room + 1, sizeof *p->living);
    if (p->living && !g->broken)
        return FGIO_EXIT_OK;
    free(p->living);
    return fgio_error("not enough memory for the model with batches of %u", g->most);
}

int fgt_graph_finish(fgt_graph *g) {
    plan p;
    if (begin_plan(g, &p) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    int status = lay_out(&p);
    free(p.living);
    return status;
}

int fgt_graph_measure(fgt_graph *g, uint64_t *weights, uint64_t *activations) {
    plan p;
    if (begin_plan(g, &p) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    place(&p);
    free(p.living);
    *weights = g->elements * sizeof(float);
    *activations = (p.data + p.height + work_floats(g)) * sizeof(float);
    return p.too_large ? too_large(g) : FGIO_EXIT_OK;
}

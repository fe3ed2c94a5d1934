/*
 * place.c - where values and their gradients lie. Values follow one another; gradients are placed in the order in which
 * the backward pass comes to them, each at the lowest place that no other living one covers.
 */
#include "nn/graph.h"

#include "memory.h"
#include "say.h"

#include <stdlib.h>

#define MOST_FLOATS ((size_t)1 << 48) /* far more than any machine has, and a value more does not overflow */

typedef struct stay {
    size_t begin, end; /* floats */
    frugi_value *value;
} stay;

typedef struct plan {
    frugi_graph *g;
    size_t data;  /* floats of values */
    stay *living; /* ascending */
    size_t count, room;
    size_t height; /* floats of gradients */
    bool too_large;
} plan;

/* Of a value for the whole batch; 0, and the plan is no good, where that is beyond all measure. */
static size_t floats_of(plan *p, const frugi_value *v) {
    size_t floats;
    if (__builtin_mul_overflow((size_t)p->g->most, v->each, &floats) || floats > MOST_FLOATS || p->data > MOST_FLOATS ||
        p->height > MOST_FLOATS) {
        p->too_large = true;
        return 0;
    }
    return (floats + 15) / 16 * 16;
}

static void place_data(plan *p) {
    for (frugi_value *v = p->g->values; v; v = v->next)
        if (!v->alias && !v->external) {
            if (p->g->activations) /* the first time only lengths count */
                v->data = p->g->activations + p->data;
            p->data += floats_of(p, v);
        }
}

/* First fit among those that live. */
static void settle(plan *p, frugi_value *v) {
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
    if (p->g->activations)
        v->grad = p->g->activations + p->data + at;
}

static void leave(plan *p, const frugi_value *v) {
    size_t i = 0;
    while (i < p->count && p->living[i].value != v)
        i++;
    if (i == p->count || v->kept)
        return;
    for (p->count--; i < p->count; i++)
        p->living[i] = p->living[i + 1];
}

/* In the order of the backward pass: whoever uses a value first gives its gradient a place. */
static void place_gradients(plan *p) {
    for (const frugi_node *node = p->g->last; node; node = node->previous) {
        for (frugi_value *v = p->g->values; v; v = v->next)
            if (!v->alias && v->wants_grad && !v->own_grad && v->last == node->number)
                settle(p, v);
        if (!node->out->alias)
            leave(p, node->out);
    }
}

static void share(frugi_value *v) {
    const frugi_value *root = v;
    while (root->alias)
        root = root->alias;
    v->data = root->data;
    v->grad = root->grad;
}

static void place(plan *p) {
    p->data = p->count = p->height = 0;
    place_data(p);
    place_gradients(p);
}

static int lay_out(plan *p) {
    frugi_graph *g = p->g;
    place(p);
    if (p->too_large)
        return frugi_error("the model with batches of %u is too large for any memory", g->most);
    g->weights = frugi_hold(FRUGI_USE_WEIGHTS, (size_t)g->elements * sizeof(float));
    float *memory = frugi_hold(FRUGI_USE_ACTIVATIONS, (p->data + p->height) * sizeof(float));
    g->work = frugi_hold(FRUGI_USE_ACTIVATIONS, (size_t)g->threads * g->work_each * sizeof(float));
    if (!g->weights || !memory || !g->work) {
        frugi_let_go(memory);
        return frugi_error("not enough memory for the model with batches of %u", g->most);
    }
    g->activations = memory;
    place(p);
    for (frugi_value *v = g->values; v; v = v->next)
        if (v->own_grad)
            v->grad = v->data;
    for (frugi_value *v = g->values; v; v = v->next)
        if (v->alias)
            share(v);
    for (frugi_param *q = g->params; q; q = q->next)
        q->w = g->weights + q->tensor.offset;
    return FRUGI_EXIT_OK;
}

int frugi_graph_finish(frugi_graph *g) {
    plan p = {.g = g};
    for (const frugi_value *v = g->values; v; v = v->next)
        p.room++;
    p.living = calloc(p.room + 1, sizeof *p.living);
    if (!p.living || g->broken) {
        free(p.living);
        return frugi_error("not enough memory for the model with batches of %u", g->most);
    }
    int status = lay_out(&p);
    free(p.living);
    return status;
}

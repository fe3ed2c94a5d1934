/*
 * value_memory.c - addresses of values and their gradients. Values are contiguous; gradients are allocated in the order
 * of the backward pass, each at the lowest address that is free (first fit).
 *
 * With FGT_KEEP_BLOCKS the values that are local to a block follow the others, and all blocks use the same memory. With
 * FGT_KEEP_NONE values are allocated as gradients are, in the order of the forward pass.
 */
#include "trainer/nn/graph.h"

#include "trainer/base/counted_alloc.h"
#include "io/error.h"

#include <stdlib.h>

#define FLOATS_MAX ((size_t)1 << 48) /* far more than any machine has; adding one more value does not overflow */

typedef struct allocation {
    size_t begin, end; /* floats */
    fgt_value *value;
} allocation;

typedef struct plan {
    fgt_graph *g;
    size_t data;           /* floats of values */
    size_t outside_blocks; /* of them, those outside of blocks; known after the first pass */
    allocation *live;      /* ascending */
    size_t count, capacity;
    size_t peak; /* floats of gradients */
    bool too_large;
} plan;

/* Floats of a value for the whole batch; 0, and too_large is set, where that is beyond the limit. */
static size_t floats_of(plan *p, const fgt_value *v) {
    size_t floats;
    if (__builtin_mul_overflow((size_t)p->g->batch_max, v->sample_size, &floats) || floats > FLOATS_MAX ||
        p->data > FLOATS_MAX || p->peak > FLOATS_MAX) {
        p->too_large = true;
        return 0;
    }
    return (floats + 15) / 16 * 16;
}

/* The first pass only computes sizes. */
static float *address_of(const plan *p, size_t at) {
    return p->g->activations ? p->g->activations + at : NULL;
}

static bool is_block_local(const plan *p, const fgt_value *v) {
    return p->g->keep == FGT_KEEP_BLOCKS && v->block && !v->used_outside_block;
}

/* Values of a block are consecutive in the list. */
static void assign_values(plan *p) {
    size_t outside_blocks = 0, local = 0, most = 0;
    uint32_t block = 0;
    for (fgt_value *v = p->g->values; v; v = v->next) {
        if (v->alias || v->external)
            continue;
        if (is_block_local(p, v)) {
            local = v->block == block ? local : 0;
            block = v->block;
            v->data = address_of(p, p->outside_blocks + local);
            local += floats_of(p, v);
            most = local > most ? local : most;
        } else {
            v->data = address_of(p, outside_blocks);
            outside_blocks += floats_of(p, v);
        }
        p->data = outside_blocks + most;
    }
    p->outside_blocks = outside_blocks;
}

/* First fit among the live allocations. Returns the offset. */
static size_t allocate_first_fit(plan *p, fgt_value *v) {
    size_t at = 0, i = 0, need = floats_of(p, v);
    while (i < p->count && p->live[i].begin < at + need) {
        at = p->live[i].end;
        i++;
    }
    for (size_t j = p->count; j > i; j--)
        p->live[j] = p->live[j - 1];
    p->live[i] = (allocation){at, at + need, v};
    p->count++;
    p->peak = p->peak > at + need ? p->peak : at + need;
    return at;
}

static void release(plan *p, const fgt_value *v) {
    size_t i = 0;
    while (i < p->count && p->live[i].value != v)
        i++;
    if (i == p->count)
        return;
    for (p->count--; i < p->count; i++)
        p->live[i] = p->live[i + 1];
}

/* In the order of the backward pass: a gradient is allocated at the first node that writes it. */
static void assign_gradients(plan *p) {
    for (const fgt_node *node = p->g->last; node; node = node->previous) {
        for (fgt_value *v = p->g->values; v; v = v->next)
            if (!v->alias && v->wants_grad && !v->grad_in_place && v->last_use == node->number)
                v->grad = address_of(p, p->data + allocate_first_fit(p, v));
        if (!node->out->alias && !node->out->keep_grad)
            release(p, node->out);
    }
}

/* In the order of the forward pass: a value is live from its node to its last use. */
static void assign_values_by_lifetime(plan *p) {
    for (const fgt_node *node = p->g->first; node; node = node->next) {
        for (fgt_value *v = p->g->values; v; v = v->next)
            if (!v->alias && !v->external && v->producer == node->number)
                v->data = address_of(p, allocate_first_fit(p, v));
        for (fgt_value *v = p->g->values; v; v = v->next)
            if (v->last_use == node->number)
                release(p, v);
    }
}

static void share_with_root(fgt_value *v) {
    const fgt_value *root = v;
    while (root->alias)
        root = root->alias;
    v->data = root->data;
    v->grad = root->grad;
}

static void assign_addresses(plan *p) {
    p->data = p->count = p->peak = 0;
    if (p->g->keep == FGT_KEEP_NONE) {
        assign_values_by_lifetime(p);
        return;
    }
    assign_values(p);
    assign_gradients(p);
}

static int too_large(const fgt_graph *g) {
    return fgio_error("the model with batches of %u is too large for any memory", g->batch_max);
}

static size_t work_floats(const fgt_graph *g) {
    return (size_t)g->threads * g->work_each + g->work_shared;
}

static size_t weight_bytes(const fgt_graph *g) {
    return (size_t)fgt_graph_weight_index(g, g->elements) * sizeof(float);
}

static int allocate_memory(plan *p) {
    fgt_graph *g = p->g;
    assign_addresses(p);
    if (p->too_large)
        return too_large(g);
    g->weights = g->owner ? g->owner->weights : fgt_counted_alloc(FGT_USE_WEIGHTS, weight_bytes(g));
    float *memory = fgt_counted_alloc(FGT_USE_ACTIVATIONS, (p->data + p->peak) * sizeof(float));
    g->work = fgt_counted_alloc(FGT_USE_ACTIVATIONS, work_floats(g) * sizeof(float));
    if (!g->weights || !memory || !g->work) {
        fgt_counted_free(memory);
        return fgio_error("not enough memory for the model with batches of %u", g->batch_max);
    }
    g->activations = memory;
    assign_addresses(p);
    for (fgt_value *v = g->values; v; v = v->next)
        if (v->grad_in_place)
            v->grad = v->data;
    for (fgt_value *v = g->values; v; v = v->next)
        if (v->alias)
            share_with_root(v);
    for (fgt_param *q = g->params; q; q = q->next)
        q->w = q->tensor.absent ? NULL : g->weights + fgt_graph_weight_index(g, q->tensor.offset);
    return FGIO_EXIT_OK;
}

static int plan_open(fgt_graph *g, plan *p) {
    *p = (plan){.g = g};
    for (const fgt_value *v = g->values; v; v = v->next)
        p->capacity++;
    p->live = calloc(p->capacity + 1, sizeof *p->live);
    if (p->live && !g->build_failed)
        return FGIO_EXIT_OK;
    free(p->live);
    return fgio_error("not enough memory for the model with batches of %u", g->batch_max);
}

int fgt_graph_finish(fgt_graph *g) {
    plan p;
    if (plan_open(g, &p) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    int status = allocate_memory(&p);
    free(p.live);
    return status;
}

int fgt_graph_measure(fgt_graph *g, uint64_t *weights, uint64_t *activations) {
    plan p;
    if (plan_open(g, &p) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    assign_addresses(&p);
    free(p.live);
    *weights = weight_bytes(g);
    *activations = (p.data + p.peak + work_floats(g)) * sizeof(float);
    return p.too_large ? too_large(g) : FGIO_EXIT_OK;
}

/*
 * graph.c - adding nodes, initializing parameters, and running the forward and backward pass.
 *
 * Forward keeps every value, because backward needs most of them, unless g->keep says otherwise: then backward
 * recomputes each block first. The gradient of a value is live from the last node that uses the value to the node that
 * makes it; gradients that are never live together share memory, first fit (value_memory.c).
 */
#include "trainer/nn/graph.h"

#include "trainer/nn/fake_quantize.h"

#include "trainer/base/counted_alloc.h"
#include "trainer/base/keyed_random.h"
#include "io/error.h"

#include <stdlib.h>
#include <string.h>

#define LINE        16u               /* floats of a cache line */
#define WEIGHTS_MAX ((size_t)1 << 48) /* far more than any machine has; adding one more tensor does not overflow */

static size_t round_to_line(size_t floats) {
    return (floats + LINE - 1) / LINE * LINE;
}

fgt_graph *fgt_graph_create(uint32_t most, int threads) {
    fgt_graph *g = calloc(1, sizeof *g);
    if (g) {
        g->batch_max = g->n = most;
        g->threads = threads > 0 ? threads : 1;
    }
    return g;
}

void fgt_node_destroy(fgt_node *node) {
    if (node->op->destroy)
        node->op->destroy(node);
    else
        free(node->state);
    free(node);
}

void fgt_graph_destroy(fgt_graph *g) {
    if (!g)
        return;
    for (fgt_node *node = g->first, *next; node; node = next) {
        next = node->next;
        fgt_node_destroy(node);
    }
    for (fgt_value *v = g->values, *next; v; v = next) {
        next = v->next;
        free(v);
    }
    for (fgt_param *p = g->params, *next; p; p = next) {
        next = p->next;
        free((char *)(uintptr_t)p->tensor.name);
        frug_sparse_destroy(p->packed);
        free(p->input_squares);
        free(p->input_counts);
        free(p);
    }
    for (fgt_buffer *b = g->buffers, *next; b; b = next) {
        next = b->next;
        free(b->name);
        fgt_counted_free(g->owner ? NULL : b->data);
        free(b);
    }
    fgt_counted_free(g->owner ? NULL : g->weights);
    fgt_counted_free(g->activations);
    fgt_counted_free(g->work);
    free(g);
}

static fgt_value *add_value(fgt_graph *g, uint32_t ndim, const uint32_t *dims) {
    fgt_value *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->ndim = ndim;
    v->sample_size = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        v->dims[i] = dims[i];
        g->build_failed |= __builtin_mul_overflow(v->sample_size, (size_t)dims[i], &v->sample_size);
    }
    v->wants_grad = true;
    v->producer = v->last_use = g->nodes;
    v->block = g->block;
    v->next = g->values;
    g->values = v;
    return v;
}

/* After an allocation failed builders continue with this node, which is never run, so that they need no checks. */
static fgt_node *placeholder_node(fgt_graph *g) {
    static const fgt_op placeholder = {.name = "nothing"};
    static fgt_value placeholder_out;
    static fgt_node placeholder_self = {.op = &placeholder, .out = &placeholder_out};
    g->build_failed = true;
    return &placeholder_self;
}

fgt_node *fgt_node_add(fgt_graph *g, const fgt_op *op, fgt_value *in, uint32_t ndim, const uint32_t *dims,
                       size_t state_bytes) {
    fgt_node *node = calloc(1, sizeof *node);
    fgt_value *out = node ? add_value(g, ndim, dims) : NULL;
    void *own = out && state_bytes ? calloc(1, state_bytes) : NULL;
    if (!out || (state_bytes && !own)) {
        free(node);
        return placeholder_node(g);
    }
    node->op = op;
    node->state = own;
    node->out = out;
    node->number = g->nodes++;
    node->block = g->block;
    node->previous = g->last;
    *(g->last ? &g->last->next : &g->first) = node;
    g->last = node;
    if (in)
        fgt_node_input(node, 0, in);
    return node;
}

void fgt_node_input(fgt_node *node, int i, fgt_value *in) {
    node->in[i] = in;
    for (fgt_value *v = in; v; v = v->alias) {
        v->last_use = v->last_use > node->number ? v->last_use : node->number;
        v->used_outside_block |= v->block != node->block;
    }
}

fgt_value *fgt_node_saved_value(fgt_graph *g, const fgt_node *node, size_t each) {
    fgt_value *v = add_value(g, 0, NULL);
    if (!v)
        return NULL;
    v->sample_size = each;
    v->wants_grad = false;
    v->producer = v->last_use = node->number;
    return v;
}

void fgt_block_begin(fgt_graph *g) {
    g->block = ++g->blocks;
}

void fgt_block_end(fgt_graph *g) {
    g->block = 0;
}

void fgt_node_in_place(fgt_node *node) {
    if (!node->in[0]) /* the graph ran out of memory */
        return;
    node->out->alias = node->in[0];
    node->out->wants_grad = node->in[0]->wants_grad;
}

static fgt_value *root_of(fgt_value *v) {
    while (v->alias)
        v = v->alias;
    return v;
}

void fgt_value_grad_in_place(fgt_value *value) {
    root_of(value)->grad_in_place = true;
}

void fgt_value_keep_grad(fgt_value *value) {
    root_of(value)->keep_grad = true;
}

fgt_param *fgt_param_add(fgt_graph *g, const char *name, frug_role role, uint32_t ndim, const uint64_t *shape,
                         fgt_init init, float init_scale) {
    fgt_param *p = calloc(1, sizeof *p);
    char *copy = p ? strdup(name) : NULL;
    if (!copy) {
        static fgt_param placeholder;
        free(p);
        g->build_failed = true;
        return &placeholder;
    }
    p->tensor = (frug_tensor)FRUG_TENSOR_INIT;
    p->tensor.name = copy;
    p->tensor.role = role;
    p->tensor.ndim = ndim;
    p->rows = p->tile = ndim ? (size_t)shape[0] : 1;
    p->cols = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        p->tensor.shape[i] = shape[i];
        g->build_failed |= i && __builtin_mul_overflow(p->cols, (size_t)shape[i], &p->cols);
    }
    size_t count = 0;
    g->build_failed |=
        __builtin_mul_overflow(p->rows, p->cols, &count) || count > WEIGHTS_MAX || g->elements > WEIGHTS_MAX;
    p->tensor.offset = g->elements;
    g->elements += g->build_failed ? 0 : round_to_line(count);
    p->init = init;
    p->init_scale = init_scale;
    *(g->params_end ? &g->params_end->next : &g->params) = p;
    g->params_end = p;
    return p;
}

fgt_buffer *fgt_buffer_add(fgt_graph *g, const char *name, size_t count, float value) {
    fgt_buffer *b = calloc(1, sizeof *b);
    if (b) {
        b->name = strdup(name);
        b->data = fgt_counted_alloc(FGT_USE_WEIGHTS, count * sizeof *b->data);
    }
    if (!b || !b->name || !b->data) {
        static fgt_buffer placeholder;
        g->build_failed = true;
        if (b) {
            free(b->name);
            fgt_counted_free(b->data);
            free(b);
        }
        return &placeholder;
    }
    b->count = count;
    b->node = g->nodes - 1;
    for (size_t i = 0; i < count; i++)
        b->data[i] = value;
    *(g->buffers_end ? &g->buffers_end->next : &g->buffers) = b;
    g->buffers_end = b;
    return b;
}

void fgt_graph_share(fgt_graph *g, const fgt_graph *owner) {
    g->owner = owner;
    const fgt_buffer *from = owner->buffers;
    for (fgt_buffer *b = g->buffers; b; b = b->next, from = from->next) {
        fgt_counted_free(b->data);
        b->data = from->data;
    }
}

void fgt_work_reserve(fgt_graph *g, size_t floats) {
    g->work_each = g->work_each > round_to_line(floats) ? g->work_each : round_to_line(floats);
}

float *fgt_work(fgt_graph *g, int thread) {
    return g->work + (size_t)thread * g->work_each;
}

void fgt_work_shared_reserve(fgt_graph *g, size_t floats) {
    g->work_shared = g->work_shared > floats ? g->work_shared : floats;
}

float *fgt_work_shared(fgt_graph *g) {
    return g->work + (size_t)g->threads * g->work_each;
}

float *fgt_input_grad(fgt_node *node, int i, bool *add) {
    fgt_value *v = node->in[i] ? root_of(node->in[i]) : NULL;
    if (!v || !v->grad)
        return NULL;
    *add = v->grad_written && node->out->alias != node->in[i];
    v->grad_written = true;
    return v->grad;
}

/* ---- running ---- */

static void run_forward(fgt_graph *g, fgt_node *node) {
    node->op->forward(g, node);
    fgt_fake_quantize_value(g, node->out);
}

void fgt_graph_begin(fgt_graph *g, const fgt_batch *batch, bool training) {
    g->batch = batch;
    g->n = batch->n;
    g->training = training;
    g->score = (fgt_score){0};
    for (fgt_value *v = g->values; v; v = v->next)
        v->grad_written = false;
}

void fgt_graph_forward_nodes(fgt_graph *g, fgt_node *first, const fgt_node *last) {
    for (fgt_node *node = first; node; node = node == last ? NULL : node->next) {
        run_forward(g, node);
        g->resident_block = node->block ? node->block : g->resident_block;
    }
}

void fgt_graph_forward(fgt_graph *g, const fgt_batch *batch, bool training) {
    fgt_graph_begin(g, batch, training);
    fgt_graph_forward_nodes(g, g->first, g->last);
}

/* Recomputes the values of a block up to a node, which those of other blocks have overwritten. Values that are used
 * outside of the block are still there. The weights are those of the forward pass, because no gradient of the block is
 * complete yet. */
static void recompute_block(fgt_graph *g, const fgt_node *last) {
    fgt_node *node = g->first;
    while (node->block != last->block)
        node = node->next;
    g->recomputing = true;
    for (; node != last->next; node = node->next)
        if (!root_of(node->out)->used_outside_block)
            run_forward(g, node);
    g->recomputing = false;
    g->resident_block = last->block;
}

void fgt_graph_backward_nodes(fgt_graph *g, const fgt_node *first, fgt_node *last, fgt_sink *sink) {
    g->sink = sink;
    for (fgt_node *node = last; node; node = node == first ? NULL : node->previous)
        if (node->op->backward && !node->skip_backward) {
            if (g->keep == FGT_KEEP_BLOCKS && node->block && node->block != g->resident_block)
                recompute_block(g, node);
            node->op->backward(g, node);
        }
    g->sink = NULL;
}

void fgt_graph_backward(fgt_graph *g, fgt_sink *sink) {
    for (fgt_value *v = g->values; v; v = v->next)
        v->grad_written = false;
    fgt_graph_backward_nodes(g, g->first, g->last, sink);
}

/* ---- parameters ---- */

fgt_param *fgt_param_find(const fgt_graph *g, const char *name) {
    fgt_param *p = g->params;
    while (p && strcmp(p->tensor.name, name) != 0)
        p = p->next;
    return p;
}

fgt_buffer *fgt_buffer_find(const fgt_graph *g, const char *name) {
    fgt_buffer *b = g->buffers;
    while (b && strcmp(b->name, name) != 0)
        b = b->next;
    return b;
}

static float draw_weight(const fgt_param *p, uint64_t bits) {
    switch (p->init) {
    case FGT_INIT_ONE: return 1.0f;
    case FGT_INIT_NORMAL: return p->init_scale * fgt_normal(bits);
    case FGT_INIT_UNIFORM: return p->init_scale * (2.0f * fgt_uniform(bits) - 1.0f);
    case FGT_INIT_ZERO: break;
    }
    return 0.0f;
}

void fgt_graph_init(fgt_graph *g, uint64_t seed) {
    uint64_t number = 0;
    for (fgt_param *p = g->params; p; p = p->next, number++)
        for (size_t i = 0; p->w && i < p->rows * p->cols; i++)
            p->w[i] = draw_weight(p, fgt_random(seed, FGT_STREAM_WEIGHTS | number << 8, i));
}

uint64_t fgt_graph_weight_index(const fgt_graph *g, uint64_t element) {
    uint64_t absent = 0;
    for (const fgt_param *p = g->params; p && p->tensor.offset < element; p = p->next)
        if (p->tensor.absent)
            absent += (p->next ? p->next->tensor.offset : g->elements) - p->tensor.offset;
    return element - absent;
}

int fgt_graph_layout(const fgt_graph *g, frug_layout **layout) {
    frug_layout *made = NULL;
    frug_status status = frug_layout_create(&made);
    for (const fgt_param *p = g->params; p && status == FRUG_OK; p = p->next)
        status = p->frozen && !p->tensor.absent ? FRUG_OK : frug_layout_add(made, &p->tensor);
    if (status != FRUG_OK) {
        frug_layout_destroy(made);
        return fgio_library_error("model");
    }
    *layout = made;
    return FGIO_EXIT_OK;
}

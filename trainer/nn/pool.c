/*
 * pool.c - max pooling over windows, and mean pooling over planes.
 *
 * The index of the maximum is not saved but found again in backward: the first entry that equals the output, which is
 * also where PyTorch adds the gradient.
 */
#include "trainer/nn/ops.h"

#include <string.h>

typedef struct window {
    uint32_t k, stride, pad;
} window;

/* Rows or columns of the input in the window of output i: begin .. end - 1. */
static void window_range(const window *w, uint32_t i, uint32_t size, uint32_t *begin, uint32_t *end) {
    uint32_t from = i * w->stride, to = from + w->k;
    *begin = from > w->pad ? from - w->pad : 0;
    *end = to > w->pad ? to - w->pad : 0;
    *end = *end < size ? *end : size;
}

/** An entry of a plane. */
typedef struct entry {
    float value;
    uint32_t index;
} entry;

static inline entry entry_at(const float *x, uint32_t index) {
    return (entry){x[index], index};
}

/* The first where they are equal. NaN is larger than everything. By bits, because compilers turn a choice of floats
 * into a branch, and none can be predicted. */
static inline entry larger_of(entry a, entry b) {
    uint32_t second = (uint32_t)0 - (uint32_t)(!(b.value <= a.value) & (a.value == a.value)), first_bits, second_bits;
    memcpy(&first_bits, &a.value, sizeof first_bits);
    memcpy(&second_bits, &b.value, sizeof second_bits);
    first_bits = (first_bits & ~second) | (second_bits & second);
    entry larger = {.index = (a.index & ~second) | (b.index & second)};
    memcpy(&larger.value, &first_bits, sizeof first_bits);
    return larger;
}

/* The largest entry in the window of output (i, j). */
static inline entry window_max(const window *w, const uint32_t *dims, const float *x, uint32_t i, uint32_t j) {
    uint32_t y0, y1, x0, x1;
    if (w->k == 2 && w->pad == 0) { /* the usual one, without loops */
        uint32_t at = i * w->stride * dims[2] + j * w->stride, below = at + dims[2];
        return larger_of(larger_of(entry_at(x, at), entry_at(x, at + 1)),
                         larger_of(entry_at(x, below), entry_at(x, below + 1)));
    }
    window_range(w, i, dims[1], &y0, &y1);
    window_range(w, j, dims[2], &x0, &x1);
    entry best = entry_at(x, y0 * dims[2] + x0);
    for (uint32_t y = y0; y < y1; y++)
        for (uint32_t c = x0; c < x1; c++)
            best = larger_of(best, entry_at(x, y * dims[2] + c));
    return best;
}

static void max_forward(fgt_graph *g, fgt_node *node) {
    const uint32_t *in = node->in[0]->dims, *out = node->out->dims;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t p = 0; p < (size_t)g->n * in[0]; p++) {
        const float *x = node->in[0]->data + p * in[1] * in[2];
        float *y = node->out->data + p * out[1] * out[2];
        for (uint32_t i = 0; i < out[1]; i++)
            for (uint32_t j = 0; j < out[2]; j++)
                *y++ = window_max(node->state, in, x, i, j).value;
    }
}

static void max_backward(fgt_graph *g, fgt_node *node) {
    const uint32_t *in = node->in[0]->dims, *out = node->out->dims;
    bool add = false;
    float *grad = fgt_input_grad(node, 0, &add);
    if (!grad)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t p = 0; p < (size_t)g->n * in[0]; p++) {
        const float *x = node->in[0]->data + p * in[1] * in[2], *dy = node->out->grad + p * out[1] * out[2];
        float *dx = grad + p * in[1] * in[2];
        if (!add)
            memset(dx, 0, (size_t)in[1] * in[2] * sizeof *dx);
        for (uint32_t i = 0; i < out[1]; i++)
            for (uint32_t j = 0; j < out[2]; j++)
                dx[window_max(node->state, in, x, i, j).index] += *dy++;
    }
}

fgt_value *fgt_op_max_pool(fgt_graph *g, fgt_value *x, uint32_t kernel, uint32_t stride, uint32_t pad) {
    static const fgt_op op = {.name = "max_pool", .forward = max_forward, .backward = max_backward};
    uint32_t dims[3] = {x->dims[0], (x->dims[1] + 2 * pad - kernel) / stride + 1,
                        (x->dims[2] + 2 * pad - kernel) / stride + 1};
    fgt_node *node = fgt_node_add(g, &op, x, 3, dims, sizeof(window));
    if (node->state)
        *(window *)node->state = (window){kernel, stride, pad};
    return node->out;
}

static void mean_forward(fgt_graph *g, fgt_node *node) {
    size_t channels = node->out->sample_size, plane = node->in[0]->sample_size / channels;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t p = 0; p < g->n * channels; p++) {
        double sum = 0.0;
        for (size_t i = 0; i < plane; i++)
            sum += (double)node->in[0]->data[p * plane + i];
        node->out->data[p] = (float)(sum / (double)plane);
    }
}

static void mean_backward(fgt_graph *g, fgt_node *node) {
    size_t channels = node->out->sample_size, plane = node->in[0]->sample_size / channels;
    bool add = false;
    float *grad = fgt_input_grad(node, 0, &add);
    if (!grad)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t p = 0; p < g->n * channels; p++) {
        float dy = node->out->grad[p] / (float)plane, *dx = grad + p * plane;
        for (size_t i = 0; i < plane; i++)
            dx[i] = (add ? dx[i] : 0.0f) + dy;
    }
}

fgt_value *fgt_op_mean_pool(fgt_graph *g, fgt_value *x) {
    static const fgt_op op = {.name = "mean_pool", .forward = mean_forward, .backward = mean_backward};
    return fgt_node_add(g, &op, x, 1, x->dims, 0)->out;
}

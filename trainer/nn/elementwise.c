/*
 * elementwise.c - element-wise operations: ReLU in place, the sum of two values, and the shortcut of CIFAR ResNets that
 * skips pixels and adds channels of zeros.
 */
#include "trainer/nn/ops.h"

#include <string.h>

/* ---- ReLU ---- */

static void relu_forward(fgt_graph *g, fgt_node *node) {
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < g->n; i++) {
        float *x = node->out->data + i * node->out->sample_size;
        for (size_t j = 0; j < node->out->sample_size; j++)
            x[j] = x[j] > 0.0f ? x[j] : 0.0f;
    }
}

static void relu_backward(fgt_graph *g, fgt_node *node) {
    bool add = false;
    float *grad = fgt_input_grad(node, 0, &add);
    if (!grad)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < g->n; i++) {
        const float *x = node->out->data + i * node->out->sample_size;
        float *restrict dx = grad + i * node->out->sample_size;
        for (size_t j = 0; j < node->out->sample_size; j++)
            dx[j] = x[j] > 0.0f ? dx[j] : 0.0f;
    }
}

fgt_value *fgt_op_relu(fgt_graph *g, fgt_value *x) {
    static const fgt_op op = {.name = "relu", .forward = relu_forward, .backward = relu_backward};
    fgt_node *node = fgt_node_add(g, &op, x, x->ndim, x->dims, 0);
    fgt_node_in_place(node);
    return node->out;
}

/* ---- x + y ---- */

static void add_forward(fgt_graph *g, fgt_node *node) {
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < g->n; i++) {
        size_t at = i * node->out->sample_size;
        const float *x = node->in[0]->data + at, *y = node->in[1]->data + at;
        float *restrict sum = node->out->data + at;
        for (size_t j = 0; j < node->out->sample_size; j++)
            sum[j] = x[j] + y[j];
    }
}

static void add_backward(fgt_graph *g, fgt_node *node) {
    for (int i = 0; i < 2; i++) {
        bool add = false;
        float *grad = fgt_input_grad(node, i, &add);
        if (!grad)
            continue;
#pragma omp parallel for num_threads(g->threads) schedule(static)
        for (size_t k = 0; k < g->n; k++) {
            const float *from = node->out->grad + k * node->out->sample_size;
            float *restrict to = grad + k * node->out->sample_size;
            if (!add)
                memcpy(to, from, node->out->sample_size * sizeof *to);
            for (size_t j = 0; add && j < node->out->sample_size; j++)
                to[j] += from[j];
        }
    }
}

fgt_value *fgt_op_add(fgt_graph *g, fgt_value *x, fgt_value *y) {
    static const fgt_op op = {.name = "add", .forward = add_forward, .backward = add_backward};
    fgt_node *node = fgt_node_add(g, &op, x, x->ndim, x->dims, 0);
    fgt_node_input(node, 1, y);
    return node->out;
}

/* ---- the shortcut ---- */

typedef struct shortcut {
    uint32_t stride, pad_channels; /* channels of zeros before the first */
} shortcut;

/* One sample: out(front + c, y, x) = in(c, y stride, x stride). */
static void shortcut_sample(const fgt_node *node, const float *x, float *y) {
    const shortcut *s = node->state;
    const uint32_t *in = node->in[0]->dims, *out = node->out->dims;
    memset(y, 0, node->out->sample_size * sizeof *y);
    y += (size_t)s->pad_channels * out[1] * out[2];
    for (uint32_t c = 0; c < in[0]; c++)
        for (uint32_t i = 0; i < out[1]; i++)
            for (uint32_t j = 0; j < out[2]; j++)
                *y++ = x[((size_t)c * in[1] + i * s->stride) * in[2] + j * s->stride];
}

static void shortcut_forward(fgt_graph *g, fgt_node *node) {
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < g->n; i++)
        shortcut_sample(node, node->in[0]->data + i * node->in[0]->sample_size,
                        node->out->data + i * node->out->sample_size);
}

static void shortcut_sample_backward(const fgt_node *node, const float *dy, float *dx) {
    const shortcut *s = node->state;
    const uint32_t *in = node->in[0]->dims, *out = node->out->dims;
    dy += (size_t)s->pad_channels * out[1] * out[2];
    for (uint32_t c = 0; c < in[0]; c++)
        for (uint32_t i = 0; i < out[1]; i++)
            for (uint32_t j = 0; j < out[2]; j++)
                dx[((size_t)c * in[1] + i * s->stride) * in[2] + j * s->stride] += *dy++;
}

static void shortcut_backward(fgt_graph *g, fgt_node *node) {
    bool add = false;
    float *grad = fgt_input_grad(node, 0, &add);
    if (!grad)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < g->n; i++) {
        float *dx = grad + i * node->in[0]->sample_size;
        if (!add)
            memset(dx, 0, node->in[0]->sample_size * sizeof *dx);
        shortcut_sample_backward(node, node->out->grad + i * node->out->sample_size, dx);
    }
}

fgt_value *fgt_op_pad_shortcut(fgt_graph *g, fgt_value *x, uint32_t channels, uint32_t stride) {
    static const fgt_op op = {.name = "shortcut", .forward = shortcut_forward, .backward = shortcut_backward};
    uint32_t dims[3] = {channels, (x->dims[1] + stride - 1) / stride, (x->dims[2] + stride - 1) / stride};
    fgt_node *node = fgt_node_add(g, &op, x, 3, dims, sizeof(shortcut));
    if (node->state)
        *(shortcut *)node->state = (shortcut){stride, (channels - x->dims[0]) / 2};
    return node->out;
}

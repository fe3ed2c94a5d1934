/*
 * activation.c - GELU in both of its forms, and tanh. Backward recomputes from the input, so that later operations may
 * change the output in place.
 *
 * A vector at a time, past the end of the batch where it is no multiple of one: values are padded to whole cache
 * lines (the pixels of a batch are not, but no activation follows them directly).
 */
#include "trainer/nn/ops.h"

#include "trainer/nn/fastmath.h"

typedef enum function { GELU_TANH, GELU_ERF, TANH } function;

/* The normal CDF Phi(x) of GELU x * Phi(x), and the slope of GELU. 1/2 (1 + tanh u) is 1 / (1 + exp(-2 u)). */
static inline vec gelu_cdf_tanh(vec x, vec *slope) {
    vec z = x * x;
    vec cdf = 1.0f / (1.0f + fgt_exp(x * (-1.5957691f - 0.071354814f * z))); /* -2 sqrt(2 / pi) ... */
    *slope = cdf + x * cdf * (1.0f - cdf) * (1.5957691f + 0.21406444f * z);
    return cdf;
}

static inline vec gelu_cdf_erf(vec x, vec *slope) {
    vec cdf = 0.5f + 0.5f * fgt_erf(x * 0.70710678f);
    *slope = cdf + x * (0.39894228f * fgt_exp(x * x * -0.5f));
    return cdf;
}

static inline vec activate(function f, vec x, vec *slope) {
    if (f == TANH) {
        vec y = fgt_tanh(x);
        *slope = 1.0f - y * y;
        return y;
    }
    return x * (f == GELU_TANH ? gelu_cdf_tanh(x, slope) : gelu_cdf_erf(x, slope));
}

static inline void forward(fgt_graph *g, fgt_node *node, function f) {
    const float *x = node->in[0]->data;
    float *y = node->out->data;
    const size_t vectors = (g->n * node->out->sample_size + LANES - 1) / LANES;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < vectors; i++) {
        vec slope;
        store(y + LANES * i, activate(f, load(x + LANES * i), &slope));
    }
}

static inline void backward(fgt_graph *g, fgt_node *node, function f) {
    const float *x = node->in[0]->data, *dy = node->out->grad;
    const size_t vectors = (g->n * node->out->sample_size + LANES - 1) / LANES;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (!dx)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < vectors; i++) {
        vec slope, before = add ? load(dx + LANES * i) : splat(0.0f);
        activate(f, load(x + LANES * i), &slope);
        store(dx + LANES * i, before + slope * load(dy + LANES * i));
    }
}

static void gelu_tanh_forward(fgt_graph *g, fgt_node *node) {
    forward(g, node, GELU_TANH);
}

static void gelu_tanh_backward(fgt_graph *g, fgt_node *node) {
    backward(g, node, GELU_TANH);
}

static void gelu_erf_forward(fgt_graph *g, fgt_node *node) {
    forward(g, node, GELU_ERF);
}

static void gelu_erf_backward(fgt_graph *g, fgt_node *node) {
    backward(g, node, GELU_ERF);
}

static void tanh_forward(fgt_graph *g, fgt_node *node) {
    forward(g, node, TANH);
}

static void tanh_backward(fgt_graph *g, fgt_node *node) {
    backward(g, node, TANH);
}

static const fgt_op ops[] = {
    [GELU_TANH] = {.name = "gelu_tanh", .forward = gelu_tanh_forward, .backward = gelu_tanh_backward},
    [GELU_ERF] = {.name = "gelu", .forward = gelu_erf_forward, .backward = gelu_erf_backward},
    [TANH] = {.name = "tanh", .forward = tanh_forward, .backward = tanh_backward},
};

fgt_value *fgt_op_gelu(fgt_graph *g, fgt_value *x, bool tanh_form) {
    return fgt_node_add(g, &ops[tanh_form ? GELU_TANH : GELU_ERF], x, x->ndim, x->dims, 0)->out;
}

fgt_value *fgt_op_tanh(fgt_graph *g, fgt_value *x) {
    return fgt_node_add(g, &ops[TANH], x, x->ndim, x->dims, 0)->out;
}

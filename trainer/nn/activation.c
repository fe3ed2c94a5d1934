/*
 * activation.c - GELU in both of its forms, and tanh. Backward recomputes from the input, so that later operations may
 * change the output in place.
 *
 * Four elements at a time, past the end of the batch where it is no multiple of four: values are padded to whole cache
 * lines (the pixels of a batch are not, but no activation follows them directly).
 */
#include "trainer/nn/ops.h"

#include "trainer/nn/fastmath.h"

typedef enum function { GELU_TANH, GELU_ERF, TANH } function;

/* The normal CDF Phi(x) of GELU x * Phi(x), and the slope of GELU. 1/2 (1 + tanh u) is 1 / (1 + exp(-2 u)). */
static inline fgt_f4 gelu_cdf_tanh(fgt_f4 x, fgt_f4 *slope) {
    fgt_f4 z = x * x;
    fgt_f4 cdf = 1.0f / (1.0f + fgt_exp4(x * (-1.5957691f - 0.071354814f * z))); /* -2 sqrt(2 / pi) ... */
    *slope = cdf + x * cdf * (1.0f - cdf) * (1.5957691f + 0.21406444f * z);
    return cdf;
}

static inline fgt_f4 gelu_cdf_erf(fgt_f4 x, fgt_f4 *slope) {
    fgt_f4 cdf = 0.5f + 0.5f * fgt_erf4(x * 0.70710678f);
    *slope = cdf + x * (0.39894228f * fgt_exp4(x * x * -0.5f));
    return cdf;
}

static inline fgt_f4 activate(function f, fgt_f4 x, fgt_f4 *slope) {
    if (f == TANH) {
        fgt_f4 y = fgt_tanh4(x);
        *slope = 1.0f - y * y;
        return y;
    }
    return x * (f == GELU_TANH ? gelu_cdf_tanh(x, slope) : gelu_cdf_erf(x, slope));
}

static inline void forward(fgt_graph *g, fgt_node *node, function f) {
    const float *x = node->in[0]->data;
    float *y = node->out->data;
    const size_t fours = (g->n * node->out->sample_size + 3) / 4;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < fours; i++) {
        fgt_f4 slope;
        fgt_f4_store(y + 4 * i, activate(f, fgt_f4_load(x + 4 * i), &slope));
    }
}

static inline void backward(fgt_graph *g, fgt_node *node, function f) {
    const float *x = node->in[0]->data, *dy = node->out->grad;
    const size_t fours = (g->n * node->out->sample_size + 3) / 4;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (!dx)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < fours; i++) {
        fgt_f4 slope, before = add ? fgt_f4_load(dx + 4 * i) : fgt_f4_splat(0.0f);
        activate(f, fgt_f4_load(x + 4 * i), &slope);
        fgt_f4_store(dx + 4 * i, before + slope * fgt_f4_load(dy + 4 * i));
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

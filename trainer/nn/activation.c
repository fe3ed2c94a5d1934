/*
 * activation.c - GELU in both of its forms, and tanh. Backward computes from the input again, so that the output may be
 * changed in place by what follows.
 *
 * Four elements at a time, past the end of the batch where it is no multiple of four: values lie on whole cache lines
 * (the pixels of a batch do not; none of these stands directly behind them).
 */
#include "trainer/nn/ops.h"

#include "trainer/nn/fastmath.h"

typedef enum form { GELU_TANH, GELU_ERF, TANH } form;

/* Phi(x) of GELU x * Phi(x), and the slope of GELU. 1/2 (1 + tanh u) is 1 / (1 + exp(-2 u)). */
static inline frugi_f4 share_tanh(frugi_f4 x, frugi_f4 *slope) {
    frugi_f4 z = x * x;
    frugi_f4 share = 1.0f / (1.0f + frugi_exp4(x * (-1.5957691f - 0.071354814f * z))); /* -2 sqrt(2 / pi) ... */
    *slope = share + x * share * (1.0f - share) * (1.5957691f + 0.21406444f * z);
    return share;
}

static inline frugi_f4 share_erf(frugi_f4 x, frugi_f4 *slope) {
    frugi_f4 share = 0.5f + 0.5f * frugi_erf4(x * 0.70710678f);
    *slope = share + x * (0.39894228f * frugi_exp4(x * x * -0.5f));
    return share;
}

static inline frugi_f4 apply(form f, frugi_f4 x, frugi_f4 *slope) {
    if (f == TANH) {
        frugi_f4 y = frugi_tanh4(x);
        *slope = 1.0f - y * y;
        return y;
    }
    return x * (f == GELU_TANH ? share_tanh(x, slope) : share_erf(x, slope));
}

static inline void forward(frugi_graph *g, frugi_node *node, form f) {
    const float *x = node->in[0]->data;
    float *y = node->out->data;
    const size_t fours = (g->n * node->out->each + 3) / 4;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < fours; i++) {
        frugi_f4 slope;
        frugi_f4_store(y + 4 * i, apply(f, frugi_f4_load(x + 4 * i), &slope));
    }
}

static inline void backward(frugi_graph *g, frugi_node *node, form f) {
    const float *x = node->in[0]->data, *dy = node->out->grad;
    const size_t fours = (g->n * node->out->each + 3) / 4;
    bool add = false;
    float *dx = frugi_grad_of(node, 0, &add);
    if (!dx)
        return;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < fours; i++) {
        frugi_f4 slope, before = add ? frugi_f4_load(dx + 4 * i) : frugi_f4_all(0.0f);
        apply(f, frugi_f4_load(x + 4 * i), &slope);
        frugi_f4_store(dx + 4 * i, before + slope * frugi_f4_load(dy + 4 * i));
    }
}

static void gelu_tanh_forward(frugi_graph *g, frugi_node *node) {
    forward(g, node, GELU_TANH);
}

static void gelu_tanh_backward(frugi_graph *g, frugi_node *node) {
    backward(g, node, GELU_TANH);
}

static void gelu_erf_forward(frugi_graph *g, frugi_node *node) {
    forward(g, node, GELU_ERF);
}

static void gelu_erf_backward(frugi_graph *g, frugi_node *node) {
    backward(g, node, GELU_ERF);
}

static void tanh_forward(frugi_graph *g, frugi_node *node) {
    forward(g, node, TANH);
}

static void tanh_backward(frugi_graph *g, frugi_node *node) {
    backward(g, node, TANH);
}

static const frugi_op ops[] = {
    [GELU_TANH] = {.name = "gelu_tanh", .forward = gelu_tanh_forward, .backward = gelu_tanh_backward},
    [GELU_ERF] = {.name = "gelu", .forward = gelu_erf_forward, .backward = gelu_erf_backward},
    [TANH] = {.name = "tanh", .forward = tanh_forward, .backward = tanh_backward},
};

frugi_value *frugi_op_gelu(frugi_graph *g, frugi_value *x, bool tanh_form) {
    return frugi_node_add(g, &ops[tanh_form ? GELU_TANH : GELU_ERF], x, x->ndim, x->dims, 0)->out;
}

frugi_value *frugi_op_tanh(frugi_graph *g, frugi_value *x) {
    return frugi_node_add(g, &ops[TANH], x, x->ndim, x->dims, 0)->out;
}

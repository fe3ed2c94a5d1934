/*
 * conv.c - convolution of (C, H, W) as a node: selects the implementation of each pass.
 *
 * Every implementation divides forward and the input gradient by samples, and the weight gradient in its own way. The
 * results do not depend on the number of threads.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/ops.h"
#include "trainer/nn/gradient_tiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void add_bias(const fgt_conv *v, const float *bias, float *y) {
    size_t plane = (size_t)v->Y * v->X;
    for (size_t o = 0; o < v->O; o++)
        for (size_t j = 0; j < plane; j++)
            y[o * plane + j] += bias[o];
}

static void conv_forward(fgt_graph *g, fgt_node *node) {
    const fgt_conv *v = node->state;
    v->run.forward(g, v, node->in[0]->data, node->param[0]->w, node->out->data);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < (node->param[1] ? g->n : 0); i++)
        add_bias(v, node->param[1]->w, node->out->data + i * node->out->sample_size);
}

static void input_gradient(fgt_graph *g, fgt_node *node) {
    const fgt_conv *v = node->state;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (dx)
        v->run.input_grad(g, v, node->out->grad, node->param[0]->w, dx, add);
}

static void bias_gradient(fgt_graph *g, fgt_node *node) {
    const fgt_conv *v = node->state;
    size_t plane = (size_t)v->Y * v->X;
    float *db = g->sink->open(g->sink, node->param[1], 0);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (uint32_t o = 0; o < v->O; o++) {
        double sum = 0.0;
        for (size_t i = 0; i < g->n; i++) {
            const float *dy = node->out->grad + (i * v->O + o) * plane;
            for (size_t j = 0; j < plane; j++)
                sum += (double)dy[j];
        }
        db[o] = (float)sum;
    }
    g->sink->close(g->sink, node->param[1], 0);
}

static void weight_gradient(fgt_graph *g, fgt_node *node, size_t first) {
    const fgt_conv *v = node->state;
    const fgt_param *p = node->param[0];
    size_t rows = fgt_tile_rows(p, first);
    float *dw = g->sink->open(g->sink, p, first);
    v->run.weight_grad(g, v, node->in[0]->data, node->out->grad,
                       (fgt_conv_tile){(uint32_t)first, (uint32_t)(first + rows), dw});
    g->sink->close(g->sink, p, first);
}

static void conv_backward(fgt_graph *g, fgt_node *node) {
    const fgt_param *p = node->param[0];
    input_gradient(g, node);
    if (node->param[1] && !node->param[1]->frozen)
        bias_gradient(g, node);
    if (p->frozen)
        return;
    for (size_t end = fgt_last_tile_begin(p) + p->tile; end > 0; end -= p->tile) /* from the end of the buffer */
        weight_gradient(g, node, end - p->tile);
}

static void add_params(fgt_graph *g, fgt_node *node, const char *name, const fgt_conv *v, bool bias) {
    char text[256];
    double fan_in = (double)v->C * v->k * v->k, fan_out = (double)v->O * v->k * v->k;
    float bound = (float)(1.0 / sqrt(fan_in));
    snprintf(text, sizeof text, "%s.weight", name);
    node->param[0] =
        fgt_param_add(g, text, FRUG_ROLE_CONV, 4, (uint64_t[]){v->O, v->C, v->k, v->k},
                      bias ? FGT_INIT_UNIFORM : FGT_INIT_NORMAL, bias ? bound : (float)sqrt(2.0 / fan_out));
    if (!bias)
        return;
    snprintf(text, sizeof text, "%s.bias", name);
    node->param[1] = fgt_param_add(g, text, FRUG_ROLE_BIAS, 1, (uint64_t[]){v->O}, FGT_INIT_UNIFORM, bound);
}

static void destroy(fgt_node *node) {
#if defined(FGT_HAVE_ONEDNN)
    fgt_conv_onednn_destroy(((const fgt_conv *)node->state)->onednn);
#endif
    free(node->state);
}

/* Selects the implementation, and reserves its work space. */
static void plan(fgt_graph *g, fgt_conv *v) {
    v->direct = fgt_conv_direct_kernel(v);
    v->run = v->direct ? fgt_conv_direct : fgt_conv_gemm;
    fgt_conv_gemm_plan(v);
    fgt_work_reserve(g, v->direct ? fgt_conv_direct_work(v) : fgt_conv_gemm_work(v));
    fgt_work_shared_reserve(g, v->direct ? fgt_conv_direct_shared_work(v) : fgt_conv_gemm_shared_work(v));
#if defined(FGT_HAVE_ONEDNN)
    fgt_conv_onednn_plan(g, v);
#endif
}

fgt_value *fgt_op_conv(fgt_graph *g, const char *name, fgt_value *x, fgt_conv_shape shape) {
    static const fgt_op op = {
        .name = "conv", .forward = conv_forward, .backward = conv_backward, .destroy = destroy, .is_product = true};
    fgt_conv v = {.C = x->dims[0], .H = x->dims[1], .W = x->dims[2], .O = shape.channels};
    v.k = shape.kernel;
    v.stride = shape.stride;
    v.pad = shape.pad;
    v.Y = (v.H + 2 * v.pad - v.k) / v.stride + 1;
    v.X = (v.W + 2 * v.pad - v.k) / v.stride + 1;
    fgt_node *node = fgt_node_add(g, &op, x, 3, (uint32_t[]){v.O, v.Y, v.X}, sizeof v);
    add_params(g, node, name, &v, shape.bias);
    if (node->state) {
        plan(g, &v);
        *(fgt_conv *)node->state = v;
    }
    return node->out;
}

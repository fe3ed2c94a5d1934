/*
 * conv.c - convolution of (C, H, W) as a node: selects the implementation and divides the work among threads.
 *
 * Forward and the input gradient are divided by samples. The weight gradient of direct convolutions is divided by input
 * channels, or by output channels where there are few, so that every thread writes its own tile directly into the
 * memory of the sink and nothing is summed over threads; conv_gemm.c divides its own. The results do not depend on the
 * number of threads.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/ops.h"
#include "trainer/nn/parallel_ranges.h"
#include "trainer/nn/gradient_tiles.h"

#include <math.h>
#include <stdio.h>

static void add_bias(const fgt_conv *v, size_t n, const float *bias, float *y) {
    size_t plane = (size_t)v->Y * v->X;
    for (size_t i = 0; i < n * v->O; i++)
        for (size_t j = 0; j < plane; j++)
            y[i * plane + j] += bias[i % v->O];
}

/* Number of groups of samples: conv_direct.c can process any number at once. */
static size_t groups_of(const fgt_graph *g, const fgt_conv *v) {
    return v->direct ? (size_t)g->threads : fgt_conv_gemm_groups(v, g->n);
}

static void forward_group(fgt_node *node, const float *w, size_t first, size_t n, float *work) {
    const fgt_conv *v = node->state;
    const float *x = node->in[0]->data + first * node->in[0]->sample_size;
    float *y = node->out->data + first * node->out->sample_size;
    (v->direct ? fgt_conv_direct_forward : fgt_conv_gemm_forward)(v, n, x, w, y, work);
    if (node->param[1])
        add_bias(v, n, node->param[1]->w, y);
}

static void conv_forward(fgt_graph *g, fgt_node *node) {
    const fgt_conv *v = node->state;
    const float *w = v->direct ? fgt_work_shared(g) : node->param[0]->w;
    size_t groups = groups_of(g, v);
    if (v->direct)
        fgt_conv_direct_pack(g, v, node->param[0]->w);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++)
        for (size_t i = fgt_range_begin(groups, t, g->threads); i < fgt_range_begin(groups, t + 1, g->threads); i++) {
            size_t first = g->n * i / groups, n = g->n * (i + 1) / groups - first;
            forward_group(node, w, first, n, fgt_work(g, t));
        }
}

static void input_gradient(fgt_graph *g, fgt_node *node) {
    const fgt_conv *v = node->state;
    size_t groups = groups_of(g, v), in = node->in[0]->sample_size, out = node->out->sample_size;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (!dx)
        return;
    const float *w = v->direct ? fgt_work_shared(g) : node->param[0]->w;
    if (v->direct)
        fgt_conv_direct_pack_reversed(g, v, node->param[0]->w);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++)
        for (size_t i = fgt_range_begin(groups, t, g->threads); i < fgt_range_begin(groups, t + 1, g->threads); i++) {
            size_t first = g->n * i / groups, n = g->n * (i + 1) / groups - first;
            (v->direct ? fgt_conv_direct_input_grad : fgt_conv_gemm_input_grad)(v, n, node->out->grad + first * out, w,
                                                                                dx + first * in, add, fgt_work(g, t));
        }
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

/* The tile of the weight gradient that thread t computes, of rows first .. first + rows - 1. */
static fgt_conv_tile thread_tile(const fgt_conv *v, size_t first, size_t rows, float *dw, int t, int threads) {
    fgt_conv_tile tile = {(uint32_t)first, (uint32_t)(first + rows), 0, v->C, dw};
    if (v->C >= 8 * (uint32_t)threads) { /* in pairs, so that tiles of the kernels are whole */
        tile.c0 = (uint32_t)fgt_range_begin(v->C / 2, t, threads) * 2;
        tile.c1 = t == threads - 1 ? v->C : (uint32_t)fgt_range_begin(v->C / 2, t + 1, threads) * 2;
    } else {
        size_t from = fgt_range_begin(rows, t, threads);
        tile.o0 = (uint32_t)(first + from);
        tile.o1 = (uint32_t)(first + fgt_range_begin(rows, t + 1, threads));
        tile.dw += from * v->C * v->k * v->k;
    }
    return tile;
}

static void direct_weight_gradient(fgt_graph *g, fgt_node *node, size_t first, size_t rows, float *dw) {
    const fgt_conv *v = node->state;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        fgt_conv_tile tile = thread_tile(v, first, rows, dw, t, g->threads);
        if (tile.o0 < tile.o1 && tile.c0 < tile.c1)
            fgt_conv_direct_weight_grad(v, g->n, node->in[0]->data, node->out->grad, tile, fgt_work(g, t));
    }
}

static void weight_gradient(fgt_graph *g, fgt_node *node, size_t first) {
    const fgt_conv *v = node->state;
    const fgt_param *p = node->param[0];
    size_t rows = fgt_tile_rows(p, first);
    float *dw = g->sink->open(g->sink, p, first);
    if (v->direct)
        direct_weight_gradient(g, node, first, rows, dw);
    else
        fgt_conv_gemm_weight_grad(g, v, node->in[0]->data, node->out->grad,
                                  (fgt_conv_tile){(uint32_t)first, (uint32_t)(first + rows), 0, v->C, dw});
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

fgt_value *fgt_op_conv(fgt_graph *g, const char *name, fgt_value *x, fgt_conv_shape shape) {
    static const fgt_op op = {.name = "conv", .forward = conv_forward, .backward = conv_backward};
    fgt_conv v = {.C = x->dims[0], .H = x->dims[1], .W = x->dims[2], .O = shape.channels};
    v.k = shape.kernel;
    v.stride = shape.stride;
    v.pad = shape.pad;
    v.Y = (v.H + 2 * v.pad - v.k) / v.stride + 1;
    v.X = (v.W + 2 * v.pad - v.k) / v.stride + 1;
    v.direct = fgt_conv_direct_kernel(&v);
    fgt_conv_gemm_plan(&v);
    fgt_node *node = fgt_node_add(g, &op, x, 3, (uint32_t[]){v.O, v.Y, v.X}, sizeof v);
    if (node->state)
        *(fgt_conv *)node->state = v;
    add_params(g, node, name, &v, shape.bias);
    fgt_work_reserve(g, v.direct ? fgt_conv_direct_work(&v) : fgt_conv_gemm_work(&v));
    fgt_work_shared_reserve(g, v.direct ? fgt_conv_direct_shared_work(&v) : fgt_conv_gemm_shared_work(&v));
    return node->out;
}

/*
 * norm_layer.c - layer norm over the last dimension: y = (x - mean) / sqrt(variance + epsilon) * weight + bias.
 *
 * Forward saves mean and 1 / deviation of every row. The gradients of weight and bias are sums over rows, computed as a
 * fixed number of partial sums, so that they do not depend on the number of threads.
 */
#include "trainer/nn/ops.h"

#include "trainer/base/counted_alloc.h"
#include "trainer/nn/fastmath.h"
#include "trainer/nn/gradient_tiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PARTIAL_SUMS = 16 };

typedef struct norm {
    size_t width;
    float epsilon;
    float *mean, *scale; /* batch_max x rows each */
    float *sums;         /* PARTIAL_SUMS x 2 x width: of dy * normalized x, of dy */
} norm;

static size_t rows_of(const fgt_graph *g, const fgt_node *node) {
    const norm *own = node->state;
    return g->n * (node->out->sample_size / own->width);
}

static float row_sum(const float *x, size_t n) {
    vec sum[2] = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        sum[0] += load(x + i);
        sum[1] += load(x + i + LANES);
    }
    float total = lane_sum(sum[0] + sum[1]);
    for (; i < n; i++)
        total += x[i];
    return total;
}

static float row_squares(const float *x, float mean, size_t n) {
    vec sum[2] = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        vec a = load(x + i) - mean, b = load(x + i + LANES) - mean;
        sum[0] += a * a;
        sum[1] += b * b;
    }
    float total = lane_sum(sum[0] + sum[1]);
    for (; i < n; i++)
        total += (x[i] - mean) * (x[i] - mean);
    return total;
}

static void norm_forward(fgt_graph *g, fgt_node *node) {
    const norm *own = node->state;
    const size_t C = own->width, rows = rows_of(g, node);
    const float *w = node->param[0]->w, *b = node->param[1]->w;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < rows; i++) {
        const float *x = node->in[0]->data + i * C;
        float *y = node->out->data + i * C;
        float mean = row_sum(x, C) / (float)C;
        float scale = 1.0f / sqrtf(row_squares(x, mean, C) / (float)C + own->epsilon);
        own->mean[i] = mean;
        own->scale[i] = scale;
        for (size_t c = 0; c < C; c++)
            y[c] = (x[c] - mean) * scale * w[c] + b[c];
    }
}

typedef struct row {
    const float *x, *dy, *w;
    float *dx; /* or NULL */
    float mean, scale;
    bool add;
    size_t width;
} row;

/* Add to the sums over rows. */
static void add_param_grads(const row *r, float *restrict dw, float *restrict db) {
    for (size_t c = 0; c < r->width; c++) {
        dw[c] += r->dy[c] * ((r->x[c] - r->mean) * r->scale);
        db[c] += r->dy[c];
    }
}

static void input_gradient(const row *r) {
    vec sum = {0}, sum_xhat = {0};
    size_t c = 0;
    for (; c + LANES <= r->width; c += LANES) {
        vec d = load(r->dy + c) * load(r->w + c);
        sum += d;
        sum_xhat += d * ((load(r->x + c) - r->mean) * r->scale);
    }
    float total = lane_sum(sum), total_xhat = lane_sum(sum_xhat);
    for (; c < r->width; c++) {
        total += r->dy[c] * r->w[c];
        total_xhat += r->dy[c] * r->w[c] * ((r->x[c] - r->mean) * r->scale);
    }
    total /= (float)r->width;
    total_xhat /= (float)r->width;
    for (c = 0; c < r->width; c++) {
        float d = r->dy[c] * r->w[c] - total - (r->x[c] - r->mean) * r->scale * total_xhat;
        r->dx[c] = (r->add ? r->dx[c] : 0.0f) + r->scale * d;
    }
}

static void norm_backward(fgt_graph *g, fgt_node *node) {
    const norm *own = node->state;
    const size_t C = own->width, rows = rows_of(g, node);
    const bool both_frozen = node->param[0]->frozen && node->param[1]->frozen;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < PARTIAL_SUMS; part++) {
        float *dw = own->sums + part * 2 * C, *db = dw + C;
        memset(dw, 0, 2 * C * sizeof *dw);
        for (size_t i = rows * part / PARTIAL_SUMS; i < rows * (part + 1) / PARTIAL_SUMS; i++) {
            row r = {node->in[0]->data + i * C,
                     node->out->grad + i * C,
                     node->param[0]->w,
                     dx ? dx + i * C : NULL,
                     own->mean[i],
                     own->scale[i],
                     add,
                     C};
            if (!both_frozen)
                add_param_grads(&r, dw, db);
            if (dx)
                input_gradient(&r);
        }
    }
    if (both_frozen)
        return;
    for (size_t part = 1; part < PARTIAL_SUMS; part++)
        for (size_t c = 0; c < 2 * C; c++)
            own->sums[c] += own->sums[part * 2 * C + c];
    fgt_sink_copy_grad(g, node->param[1], own->sums + C);
    fgt_sink_copy_grad(g, node->param[0], own->sums);
}

static void norm_destroy(fgt_node *node) {
    norm *own = node->state;
    fgt_counted_free(own->mean);
    fgt_counted_free(own->scale);
    fgt_counted_free(own->sums);
    free(own);
}

static const fgt_op norm_op = {
    .name = "layer_norm", .forward = norm_forward, .backward = norm_backward, .destroy = norm_destroy};

fgt_value *fgt_op_layer_norm(fgt_graph *g, const char *name, fgt_value *x, float epsilon) {
    fgt_node *node = fgt_node_add(g, &norm_op, x, x->ndim, x->dims, sizeof(norm));
    norm *own = node->state;
    if (g->build_failed) /* x may be a placeholder */
        return node->out;
    const uint64_t width = x->dims[x->ndim - 1];
    const size_t rows = g->batch_max * (x->sample_size / width);
    own->width = width;
    own->epsilon = epsilon;
    own->mean = fgt_counted_alloc(FGT_USE_ACTIVATIONS, rows * sizeof(float));
    own->scale = fgt_counted_alloc(FGT_USE_ACTIVATIONS, rows * sizeof(float));
    own->sums = fgt_counted_alloc(FGT_USE_ACTIVATIONS, PARTIAL_SUMS * 2 * width * sizeof(float));
    g->build_failed |= !own->mean || !own->scale || !own->sums;
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    node->param[0] = fgt_param_add(g, full, FRUG_ROLE_NORM, 1, &width, FGT_INIT_ONE, 0.0f);
    snprintf(full, sizeof full, "%s.bias", name);
    node->param[1] = fgt_param_add(g, full, FRUG_ROLE_BIAS, 1, &width, FGT_INIT_ZERO, 0.0f);
    return node->out;
}

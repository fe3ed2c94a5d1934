/*
 * norm_batch.c - batch norm over N, H, W for each channel.
 *
 * A thread computes the sums of a channel and then its results, so that the second pass over the data finds it in the
 * cache. Sums are in float vectors within one image and in double across images; those of forward are of differences
 * from the first number of the channel, so that a mean far from 0 does not cancel the variance. Backward needs the
 * input, the mean and the standard deviation, not the output, which later operations may overwrite.
 */
#include "trainer/nn/ops.h"
#include "trainer/nn/fastmath.h"

#include <math.h>
#include <stdio.h>

#define MOMENTUM 0.1
#define EPSILON  1e-5

typedef struct norm {
    fgt_buffer *mean, *var; /* running */
    struct channel_stats {
        float mean, scale; /* of this batch; scale: 1 / sqrt(var + epsilon) */
        float dy, dyx;     /* sums of dy and dy (x - mean) scale: the gradients of bias and weight */
    } of[];
} norm;

typedef struct sum_pair {
    double a, b;
} sum_pair;

/* Sums of (x - pivot) and its square. */
static sum_pair sum_and_squares(const float *x, size_t n, float pivot) {
    fgt_f4 a[2] = {{0}}, b[2] = {{0}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 2; j++) {
            fgt_f4 d = fgt_f4_load(x + i + 4 * j) - pivot;
            a[j] += d;
            b[j] += d * d;
        }
    sum_pair sum = {(double)fgt_f4_sum(a[0] + a[1]), (double)fgt_f4_sum(b[0] + b[1])};
    for (; i < n; i++) {
        double d = (double)(x[i] - pivot);
        sum.a += d;
        sum.b += d * d;
    }
    return sum;
}

/* Sums of dy and dy (x - mean). */
static sum_pair grad_sums(const float *dy, const float *x, size_t n, float mean) {
    fgt_f4 a[2] = {{0}}, b[2] = {{0}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 2; j++) {
            fgt_f4 y = fgt_f4_load(dy + i + 4 * j);
            a[j] += y;
            b[j] += y * (fgt_f4_load(x + i + 4 * j) - mean);
        }
    sum_pair sum = {(double)fgt_f4_sum(a[0] + a[1]), (double)fgt_f4_sum(b[0] + b[1])};
    for (; i < n; i++) {
        sum.a += (double)dy[i];
        sum.b += (double)dy[i] * (double)(x[i] - mean);
    }
    return sum;
}

static void update_statistics(const fgt_graph *g, const fgt_value *x, norm *m, size_t c) {
    size_t plane = x->sample_size / x->dims[0];
    const float *first = x->data + c * plane;
    sum_pair sum = {0};
    for (size_t i = 0; i < g->n; i++) {
        sum_pair one = sum_and_squares(first + i * x->sample_size, plane, first[0]);
        sum.a += one.a;
        sum.b += one.b;
    }
    double count = (double)g->n * (double)plane, shift = sum.a / count, var = sum.b / count - shift * shift;
    double mean = shift + (double)first[0];
    var = var > 0.0 ? var : 0.0;
    m->of[c].mean = (float)mean;
    m->of[c].scale = (float)(1.0 / sqrt(var + EPSILON));
    if (g->recomputing)
        return;
    double unbiased = count > 1.0 ? var * count / (count - 1.0) : var;
    m->mean->data[c] += (float)(MOMENTUM * (mean - (double)m->mean->data[c]));
    m->var->data[c] += (float)(MOMENTUM * (unbiased - (double)m->var->data[c]));
}

static void norm_forward(fgt_graph *g, fgt_node *node) {
    norm *m = node->state;
    const fgt_value *x = node->in[0];
    size_t plane = x->sample_size / x->dims[0];
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (uint32_t c = 0; c < x->dims[0]; c++) {
        float mean = m->mean->data[c], scale = (float)(1.0 / sqrt((double)m->var->data[c] + EPSILON));
        if (g->training) {
            update_statistics(g, x, m, c);
            mean = m->of[c].mean;
            scale = m->of[c].scale;
        }
        scale *= node->param[0]->w[c];
        float bias = node->param[1]->w[c];
        for (size_t i = 0; i < g->n; i++) {
            const float *from = x->data + i * x->sample_size + c * plane;
            float *restrict to = node->out->data + i * x->sample_size + c * plane;
            for (size_t j = 0; j < plane; j++)
                to[j] = (from[j] - mean) * scale + bias;
        }
    }
}

/* dx = weight scale (dy - mean(dy) - xhat mean(dy xhat)), with xhat = (x - mean) scale. */
static void input_gradient(const fgt_graph *g, const fgt_node *node, size_t c, float *dx, bool add) {
    const struct channel_stats *m = &((const norm *)node->state)->of[c];
    const fgt_value *x = node->in[0];
    size_t plane = x->sample_size / x->dims[0];
    float count = (float)g->n * (float)plane, factor = node->param[0]->w[c] * m->scale;
    float slope = -factor * m->scale * m->dyx / count, shift = -factor * m->dy / count, mean = m->mean;
    for (size_t i = 0; i < g->n; i++) {
        size_t at = i * x->sample_size + c * plane;
        const float *from = x->data + at, *dy = node->out->grad + at;
        float *restrict to = dx + at;
        if (add)
            for (size_t j = 0; j < plane; j++)
                to[j] += factor * dy[j] + slope * (from[j] - mean) + shift;
        else
            for (size_t j = 0; j < plane; j++)
                to[j] = factor * dy[j] + slope * (from[j] - mean) + shift;
    }
}

static void norm_backward(fgt_graph *g, fgt_node *node) {
    norm *m = node->state;
    const fgt_value *x = node->in[0];
    size_t plane = x->sample_size / x->dims[0];
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (uint32_t c = 0; c < x->dims[0]; c++) {
        sum_pair sum = {0};
        for (size_t i = 0; i < g->n; i++) {
            size_t at = i * x->sample_size + c * plane;
            sum_pair one = grad_sums(node->out->grad + at, x->data + at, plane, m->of[c].mean);
            sum.a += one.a;
            sum.b += one.b;
        }
        m->of[c].dy = (float)sum.a;
        m->of[c].dyx = (float)(sum.b * (double)m->of[c].scale);
        if (dx)
            input_gradient(g, node, c, dx, add);
    }
    for (int i = 1; i >= 0; i--) {
        if (node->param[i]->frozen)
            continue;
        float *dw = g->sink->open(g->sink, node->param[i], 0);
        for (uint32_t c = 0; c < x->dims[0]; c++)
            dw[c] = i ? m->of[c].dy : m->of[c].dyx;
        g->sink->close(g->sink, node->param[i], 0);
    }
}

fgt_value *fgt_op_batch_norm(fgt_graph *g, const char *name, fgt_value *x) {
    static const fgt_op op = {.name = "batch_norm", .forward = norm_forward, .backward = norm_backward};
    uint32_t C = x->dims[0];
    fgt_node *node = fgt_node_add(g, &op, x, x->ndim, x->dims, sizeof(norm) + C * sizeof(struct channel_stats));
    norm *m = node->state;
    char text[256];
    snprintf(text, sizeof text, "%s.weight", name);
    node->param[0] = fgt_param_add(g, text, FRUG_ROLE_NORM, 1, (uint64_t[]){C}, FGT_INIT_ONE, 0.0f);
    snprintf(text, sizeof text, "%s.bias", name);
    node->param[1] = fgt_param_add(g, text, FRUG_ROLE_NORM, 1, (uint64_t[]){C}, FGT_INIT_ZERO, 0.0f);
    snprintf(text, sizeof text, "%s.running_mean", name);
    fgt_buffer *mean = fgt_buffer_add(g, text, C, 0.0f);
    snprintf(text, sizeof text, "%s.running_var", name);
    fgt_buffer *var = fgt_buffer_add(g, text, C, 1.0f);
    if (m) {
        m->mean = mean;
        m->var = var;
    }
    return node->out;
}

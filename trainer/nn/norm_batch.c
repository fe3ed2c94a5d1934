/*
 * norm_batch.c - batch norm over N, H, W for each channel, and what often follows it in the same pass over memory:
 * ReLU, or the sum with another value and ReLU.
 *
 * A thread computes the sums of a channel and then its results, so that the second pass over the data finds it in the
 * cache. Sums are in float vectors within one image (norm_planes.h) and in double across images; those of forward are
 * of differences from the first number of the channel, so that a mean far from 0 does not cancel the variance. Backward
 * needs the input, the mean and the standard deviation, and the output only where a sum was the input of ReLU.
 */
#include "trainer/nn/ops.h"
#include "trainer/nn/kernels.h"

#include <math.h>
#include <stdio.h>

#define MOMENTUM 0.1
#define EPSILON  1e-5

typedef struct norm {
    const fgt_norm_kernel *kernel;
    fgt_norm_end end;
    fgt_buffer *mean, *var; /* running */
    struct channel_stats {
        float mean, scale; /* of this batch; scale: 1 / sqrt(var + epsilon) */
        float dy, dyx;     /* sums of g and g (x - mean) scale: the gradients of bias and weight */
    } of[];
} norm;

/* Channel c of sample i; mean and scale are those of the batch. */
static fgt_norm_plane plane_at(const fgt_node *node, size_t i, size_t c) {
    const norm *m = node->state;
    const fgt_value *x = node->in[0];
    size_t plane = x->sample_size / x->dims[0], at = i * x->sample_size + c * plane;
    fgt_norm_plane p = {.end = m->end, .n = plane, .mean = m->of[c].mean, .x = x->data + at};
    p.scale = m->of[c].scale * node->param[0]->w[c];
    p.bias = node->param[1]->w[c];
    p.y = node->out->data + at;
    p.other = node->in[1] ? node->in[1]->data + at : NULL;
    return p;
}

static void update_statistics(const fgt_graph *g, const fgt_node *node, size_t c) {
    norm *m = node->state;
    double sum[2] = {0}, count = (double)g->n * (double)(node->in[0]->sample_size / node->in[0]->dims[0]);
    float pivot = plane_at(node, 0, c).x[0];
    for (size_t i = 0; i < g->n; i++) {
        fgt_norm_plane p = plane_at(node, i, c);
        double one[2];
        p.mean = pivot;
        m->kernel->sums(&p, one);
        sum[0] += one[0];
        sum[1] += one[1];
    }
    double shift = sum[0] / count, var = sum[1] / count - shift * shift, mean = shift + (double)pivot;
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
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (uint32_t c = 0; c < node->in[0]->dims[0]; c++) {
        m->of[c].mean = m->mean->data[c];
        m->of[c].scale = (float)(1.0 / sqrt((double)m->var->data[c] + EPSILON));
        if (g->training)
            update_statistics(g, node, c);
        for (size_t i = 0; i < g->n; i++) {
            fgt_norm_plane p = plane_at(node, i, c);
            m->kernel->apply(&p);
        }
    }
}

/* The gradients of the inputs, of which those for the first channel and sample are in `first`: dx = weight scale (g -
 * mean(g) - xhat mean(g xhat)), with xhat = (x - mean) scale. */
static void input_gradients(const fgt_graph *g, const fgt_node *node, size_t c, const fgt_norm_grads *first) {
    const norm *m = node->state;
    const struct channel_stats *s = &m->of[c];
    size_t sample = node->in[0]->sample_size, plane = sample / node->in[0]->dims[0];
    float count = (float)g->n * (float)plane;
    fgt_norm_grads d = *first;
    d.factor = node->param[0]->w[c] * s->scale;
    d.slope = -d.factor * s->scale * s->dyx / count;
    d.shift = -d.factor * s->dy / count;
    for (size_t i = 0; i < g->n; i++) {
        fgt_norm_plane p = plane_at(node, i, c);
        size_t at = i * sample + c * plane;
        d.dy = first->dy + at;
        d.dx = first->dx ? first->dx + at : NULL;
        d.d_other = first->d_other ? first->d_other + at : NULL;
        m->kernel->grads(&p, &d);
    }
}

static void sum_gradients(const fgt_graph *g, const fgt_node *node, size_t c) {
    norm *m = node->state;
    double sum[2] = {0};
    for (size_t i = 0; i < g->n; i++) {
        fgt_norm_plane p = plane_at(node, i, c);
        double one[2];
        m->kernel->grad_sums(&p, &(fgt_norm_grads){.dy = node->out->grad + (p.y - node->out->data)}, one);
        sum[0] += one[0];
        sum[1] += one[1];
    }
    m->of[c].dy = (float)sum[0];
    m->of[c].dyx = (float)(sum[1] * (double)m->of[c].scale);
}

static void norm_backward(fgt_graph *g, fgt_node *node) {
    norm *m = node->state;
    const uint32_t channels = node->in[0]->dims[0];
    fgt_norm_grads first = {.dy = node->out->grad};
    first.dx = fgt_input_grad(node, 0, &first.dx_add);
    if (node->in[1])
        first.d_other = fgt_input_grad(node, 1, &first.d_other_add);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (uint32_t c = 0; c < channels; c++) {
        sum_gradients(g, node, c);
        if (first.dx || first.d_other)
            input_gradients(g, node, c, &first);
    }
    for (int i = 1; i >= 0; i--) {
        if (node->param[i]->frozen)
            continue;
        float *dw = g->sink->open(g->sink, node->param[i], 0);
        for (uint32_t c = 0; c < channels; c++)
            dw[c] = i ? m->of[c].dy : m->of[c].dyx;
        g->sink->close(g->sink, node->param[i], 0);
    }
}

static fgt_node *add_node(fgt_graph *g, const char *name, fgt_value *x, fgt_norm_end end) {
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
        m->kernel = &fgt_kernels_chosen()->norm;
        m->end = end;
        m->mean = mean;
        m->var = var;
    }
    return node;
}

fgt_value *fgt_op_batch_norm(fgt_graph *g, const char *name, fgt_value *x) {
    return add_node(g, name, x, FGT_NORM_ONLY)->out;
}

fgt_value *fgt_op_batch_norm_relu(fgt_graph *g, const char *name, fgt_value *x) {
    return add_node(g, name, x, FGT_NORM_RELU)->out;
}

fgt_value *fgt_op_batch_norm_add_relu(fgt_graph *g, const char *name, fgt_value *x, fgt_value *other) {
    fgt_node *node = add_node(g, name, x, FGT_NORM_ADD_RELU);
    fgt_node_input(node, 1, other);
    return node->out;
}

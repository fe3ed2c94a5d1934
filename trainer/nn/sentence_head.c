/* sentence_head.c - the last layers of sentence models: the first token's row, and the squared error of a number. */
#include "trainer/nn/ops.h"

#include <string.h>

static void first_forward(fgt_graph *g, fgt_node *node) {
    const size_t each = node->in[0]->sample_size, C = node->out->sample_size;
    for (size_t i = 0; i < g->n; i++)
        memcpy(node->out->data + i * C, node->in[0]->data + i * each, C * sizeof(float));
}

static void first_backward(fgt_graph *g, fgt_node *node) {
    const size_t each = node->in[0]->sample_size, C = node->out->sample_size;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (!dx)
        return;
    if (!add)
        memset(dx, 0, g->n * each * sizeof *dx);
    for (size_t i = 0; i < g->n; i++)
        for (size_t c = 0; c < C; c++)
            dx[i * each + c] += node->out->grad[i * C + c];
}

static const fgt_op first_op = {.name = "first", .forward = first_forward, .backward = first_backward};

fgt_value *fgt_op_first_token(fgt_graph *g, fgt_value *x) {
    return fgt_node_add(g, &first_op, x, 1, &x->dims[1], 0)->out;
}

/* In training x is overwritten by the gradient of the mean. */
static void squared_error_forward(fgt_graph *g, fgt_node *node) {
    float *x = node->in[0]->data;
    double count = g->target_count > 0 ? g->target_count : (double)g->n;
    for (size_t i = 0; i < g->n; i++) {
        double a = (double)x[i], b = (double)g->batch->numbers[i], *sums = g->score.sums;
        g->score.loss += (a - b) * (a - b);
        sums[0] += a;
        sums[1] += b;
        sums[2] += a * a;
        sums[3] += b * b;
        sums[4] += a * b;
        node->out->data[i] = x[i];
        if (g->training)
            x[i] = (float)(2.0 * (a - b) / count);
    }
    g->score.count += (double)g->n;
}

static const fgt_op squared_error_op = {.name = "squared_error", .forward = squared_error_forward};

void fgt_op_squared_error(fgt_graph *g, fgt_value *x) {
    const uint32_t one = 1;
    fgt_node *node = fgt_node_add(g, &squared_error_op, x, 1, &one, 0);
    node->out->wants_grad = false;
    fgt_value_grad_in_place(x);
}

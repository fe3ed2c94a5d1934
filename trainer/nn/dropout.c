/*
 * dropout.c - in training a share of the elements is set to 0 and the others are scaled up, so that the mean is
 * unchanged. In place.
 */
#include "trainer/nn/ops.h"

#include "trainer/nn/dropout_mask.h"

typedef struct dropout {
    float rate;
} dropout;

static void apply_mask(fgt_graph *g, const fgt_node *node, float *x) {
    const dropout *own = node->state;
    if (!x || !g->training)
        return;
    const fgt_dropout_mask mask = fgt_dropout_mask_init(g, node, own->rate);
    const size_t count = g->n * node->out->sample_size, quads = (count + 3) / 4;
    const uint64_t before = (g->offset * node->out->sample_size + 3) / 4;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < quads; i++) { /* may write past the batch, up to the end of its last cache line */
        uint64_t word = fgt_dropout_mask_word(&mask, before + i);
        for (size_t j = 0; j < 4; j++)
            x[4 * i + j] = fgt_dropout_is_dropped(&mask, word, j) ? 0.0f : x[4 * i + j] * mask.scale;
    }
}

static void dropout_forward(fgt_graph *g, fgt_node *node) {
    apply_mask(g, node, node->out->data);
}

static void dropout_backward(fgt_graph *g, fgt_node *node) {
    bool add; /* unused: the memory is the output's */
    apply_mask(g, node, fgt_input_grad(node, 0, &add));
}

static const fgt_op dropout_op = {.name = "dropout", .forward = dropout_forward, .backward = dropout_backward};

fgt_value *fgt_op_dropout(fgt_graph *g, fgt_value *x, float rate) {
    if (!(rate > 0.0f))
        return x;
    fgt_node *node = fgt_node_add(g, &dropout_op, x, x->ndim, x->dims, sizeof(dropout));
    if (node->state) {
        ((dropout *)node->state)->rate = rate;
        fgt_node_in_place(node);
    }
    return node->out;
}

/* dropout.c - in training a share of the elements becomes 0 and the others grow, so that the mean stays. In place. */
#include "trainer/nn/ops.h"

#include "trainer/nn/dropout_mask.h"

typedef struct dropout {
    float rate;
} dropout;

static void apply(fgt_graph *g, const fgt_node *node, float *x) {
    const dropout *own = node->own;
    if (!x || !g->training)
        return;
    const fgt_drop drop = fgt_drop_of(g, node, own->rate);
    const size_t count = g->n * node->out->each, fours = (count + 3) / 4;
    const uint64_t before = (g->offset * node->out->each + 3) / 4;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < fours; i++) { /* may touch what follows the batch on its last cache line */
        uint64_t word = fgt_drop_word(&drop, before + i);
        for (size_t j = 0; j < 4; j++)
            x[4 * i + j] = fgt_dropped(&drop, word, j) ? 0.0f : x[4 * i + j] * drop.scale;
    }
}

static void dropout_forward(fgt_graph *g, fgt_node *node) {
    apply(g, node, node->out->data);
}

static void dropout_backward(fgt_graph *g, fgt_node *node) {
    bool add; /* never: the memory is the output's */
    apply(g, node, fgt_grad_of(node, 0, &add));
}

static const fgt_op dropout_op = {.name = "dropout", .forward = dropout_forward, .backward = dropout_backward};

fgt_value *fgt_op_dropout(fgt_graph *g, fgt_value *x, float rate) {
    if (!(rate > 0.0f))
        return x;
    fgt_node *node = fgt_node_add(g, &dropout_op, x, x->ndim, x->dims, sizeof(dropout));
    if (node->own) {
        ((dropout *)node->own)->rate = rate;
        fgt_node_in_place(node);
    }
    return node->out;
}

/*
 * input.c - inputs of a graph: the pixels of the batch, which are not copied, and numbers that the caller writes into
 * the value. Neither computes anything.
 */
#include "trainer/nn/ops.h"

static void pixels_forward(fgt_graph *g, fgt_node *node) {
    node->out->data = g->batch->pixels;
}

fgt_value *fgt_op_pixels(fgt_graph *g, uint32_t channels, uint32_t height, uint32_t width) {
    static const fgt_op op = {.name = "pixels", .forward = pixels_forward};
    fgt_value *out = fgt_node_add(g, &op, NULL, 3, (uint32_t[]){channels, height, width}, 0)->out;
    out->external = true;
    out->wants_grad = false;
    return out;
}

static void input_forward(fgt_graph *g, fgt_node *node) {
    (void)g;
    (void)node;
}

fgt_value *fgt_op_input(fgt_graph *g, uint32_t ndim, const uint32_t *dims, bool wants_grad) {
    static const fgt_op op = {.name = "given", .forward = input_forward};
    fgt_value *out = fgt_node_add(g, &op, NULL, ndim, dims, 0)->out;
    out->wants_grad = wants_grad;
    if (wants_grad)
        fgt_value_keep_grad(out);
    return out;
}

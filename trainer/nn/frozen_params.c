/*
 * frozen_params.c - what backward skips when some parameters are frozen.
 *
 * A node is needed when one of its parameters is trainable, or one of a node that its inputs depend on; backward skips
 * the others, so it stops below the lowest trainable parameter. The gradient of a value is needed when the node that
 * makes the value is. An operation with several inputs computes the gradients of all of them or of none, because some
 * compute them together. The operations themselves skip the gradients of frozen weights.
 */
#include "trainer/nn/graph.h"

static fgt_value *root_of(fgt_value *v) {
    while (v->alias)
        v = v->alias;
    return v;
}

static bool has_trainable(const fgt_node *node) {
    for (int i = 0; i < 3; i++)
        if (node->param[i] && !node->param[i]->frozen)
            return true;
    return false;
}

/* Values do not point to their nodes; while nodes are visited in order, wants_grad of a value says whether its node is
 * needed. */
static void mark_skipped(fgt_graph *g) {
    for (fgt_node *node = g->first; node; node = node->next) {
        bool needed = has_trainable(node);
        for (int i = 0; i < 3; i++)
            needed |= node->in[i] && node->in[i]->wants_grad;
        node->skip_backward = !needed;
        node->out->wants_grad = needed;
    }
}

static bool any_input_needs_grad(const fgt_node *node) {
    for (int i = 0; i < 3; i++)
        if (node->in[i] && node->in[i]->wants_grad)
            return true;
    return false;
}

void fgt_graph_freeze(fgt_graph *g) {
    mark_skipped(g);
    for (fgt_value *v = g->values; v; v = v->next)
        if (v->wants_grad) /* the memory belongs to the root of the aliases */
            root_of(v)->wants_grad = true;
    for (fgt_node *node = g->last; node; node = node->previous)
        for (int i = 0; i < 3 && any_input_needs_grad(node); i++)
            if (node->in[i])
                root_of(node->in[i])->wants_grad = true;
    for (fgt_value *v = g->values; v; v = v->next)
        if (!root_of(v)->wants_grad && !v->grad_in_place)
            v->grad = NULL;
}

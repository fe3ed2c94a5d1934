/*
 * frozen_params.c - what backward may leave out when some parameters stand still.
 *
 * A node is needed when a parameter of its own moves, or one of a node that its inputs come from; backward passes the
 * others by, so below the lowest parameter that moves it stops. A value's gradient is wanted when the node that makes
 * the value is needed. An operation with several inputs hands gradients to all of them or to none, because some compute
 * them together. Products with frozen weights' gradients are left out by the operations themselves.
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

/* Values have no way back to their nodes; while nodes are walked in order, wants_grad says whether a value's maker is
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
        if (v->wants_grad) /* memory is of the first in line, which others share */
            root_of(v)->wants_grad = true;
    for (fgt_node *node = g->last; node; node = node->previous)
        for (int i = 0; i < 3 && any_input_needs_grad(node); i++)
            if (node->in[i])
                root_of(node->in[i])->wants_grad = true;
    for (fgt_value *v = g->values; v; v = v->next)
        if (!root_of(v)->wants_grad && !v->grad_in_place)
            v->grad = NULL;
}

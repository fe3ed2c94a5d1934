/*
 * graph_units.c - masks of whole units. A pruned unit has no bit in any mask, so that its output and the weights that
 * read it are zero: the model computes the same without it. Which units are left is read from the masks themselves, so
 * that a resumed run needs nothing else.
 */
#include "trainer/sparse/graph_units.h"

#include "io/error.h"
#include "trainer/sparse/mask_select.h"

#include <stdlib.h>
#include <string.h>

static void list_tensors(const fgt_graph *g, fgt_graph_units *u) {
    for (fgt_param *p = g->params; p; p = p->next, u->count++) {
        u->tensor[u->count] = p->tensor;
        u->param[u->count] = p;
    }
    for (const fgt_buffer *b = g->buffers; b; b = b->next) {
        frug_tensor *t = &u->tensor[u->count++];
        *t = (frug_tensor)FRUG_TENSOR_INIT;
        t->name = b->name;
        t->ndim = 1;
        t->shape[0] = b->count;
    }
}

static fgt_unit_tensors tensors_of(const fgt_graph_units *u) {
    return (fgt_unit_tensors){u->tensor, u->data, u->count};
}

static int find_layers(fgt_graph_units *u, const fgt_unit_kinds *kinds) {
    const fgt_unit_tensors tensors = tensors_of(u);
    for (size_t i = 0; i < u->count; i++)
        u->layers += fgt_unit_layer_find(&tensors, i, kinds, &u->layer[u->layers]);
    if (u->layers > 0)
        return FGIO_EXIT_OK;
    return fgio_error("--sparse: the model has no %s", !kinds->channels ? "attention heads"
                                                       : !kinds->heads  ? "channels that can be pruned"
                                                                        : "channels or heads that can be pruned");
}

int fgt_graph_units_create(const fgt_graph *graph, const fgt_unit_kinds *kinds, fgt_graph_units **units) {
    size_t count = 1;
    for (const fgt_param *p = graph->params; p; p = p->next)
        count++;
    for (const fgt_buffer *b = graph->buffers; b; b = b->next)
        count++;
    fgt_graph_units *u = calloc(1, sizeof *u);
    if (!u)
        return fgio_error("--sparse: out of memory");
    u->tensor = calloc(count, sizeof *u->tensor);
    u->data = calloc(count, sizeof *u->data);
    u->param = calloc(count, sizeof *u->param);
    u->layer = calloc(count, sizeof *u->layer);
    int status = FGIO_EXIT_OK;
    if (!u->tensor || !u->data || !u->param || !u->layer) {
        status = fgio_error("--sparse: out of memory");
    } else {
        list_tensors(graph, u);
        status = find_layers(u, kinds);
    }
    if (status == FGIO_EXIT_OK)
        *units = u;
    else
        fgt_graph_units_destroy(u);
    return status;
}

void fgt_graph_units_destroy(fgt_graph_units *units) {
    if (!units)
        return;
    free(units->tensor);
    free(units->data);
    free(units->param);
    free(units->layer);
    free(units);
}

bool fgt_graph_units_include(const fgt_graph_units *units, const fgt_param *p) {
    for (size_t i = 0; i < units->layers; i++)
        for (size_t k = 0; k < units->layer[i].slices; k++)
            if (units->param[units->layer[i].slice[k].tensor] == p)
                return true;
    return false;
}

/* ---- updates ------------------------------------------------------------------------------------ */

/* The units of which the mask of the weights that read them has a bit. */
static void find_unpruned(const fgt_graph_units *u, const fgt_unit_layer *layer, uint8_t *unpruned) {
    for (const fgt_unit_slice *s = layer->slice; s < layer->slice + layer->slices; s++) {
        const fgt_axis_view v = fgt_unit_view(&u->tensor[s->tensor], s);
        for (size_t i = 0; s->reads && i < v.outer * v.axis * v.inner; i++)
            if (fgt_mask_bit(u->param[s->tensor]->mask, i))
                fgt_mask_set(unpruned, fgt_unit_at(s, layer->units, i / v.inner % v.axis));
    }
}

static void clear_units(const fgt_graph_units *u, const fgt_unit_layer *layer, const uint8_t *kept) {
    for (const fgt_unit_slice *s = layer->slice; s < layer->slice + layer->slices; s++) {
        const fgt_axis_view v = fgt_unit_view(&u->tensor[s->tensor], s);
        const fgt_param *p = u->param[s->tensor];
        for (size_t i = 0; p && i < v.outer * v.axis * v.inner; i++)
            if (!fgt_mask_bit(kept, fgt_unit_at(s, layer->units, i / v.inner % v.axis)))
                fgt_mask_clear(p->mask, i);
    }
}

static int prune_layer(const fgt_graph_units *u, const fgt_unit_layer *layer, double share) {
    const fgt_unit_tensors tensors = tensors_of(u);
    float *score = malloc(layer->units * sizeof *score);
    uint8_t *unpruned = calloc(layer->units / 8 + 1, 1), *kept = calloc(layer->units / 8 + 1, 1);
    bool room = score && unpruned && kept;
    if (room) {
        find_unpruned(u, layer, unpruned);
        fgt_unit_scores(&tensors, layer, score);
        fgt_candidates set = {.score = score, .among = unpruned, .count = layer->units, .selected = kept};
        fgt_select_largest(&set, 1, fgt_units_that_stay(layer->units, share));
        clear_units(u, layer, kept);
    }
    free(score);
    free(unpruned);
    free(kept);
    return room ? FGIO_EXIT_OK : fgio_error("--sparse: out of memory");
}

int fgt_graph_units_prune(fgt_graph_units *units, float *weights, double share) {
    int status = FGIO_EXIT_OK;
    for (size_t i = 0; i < units->count; i++)
        units->data[i] = units->param[i] ? weights + units->param[i]->tensor.offset : NULL;
    for (size_t i = 0; i < units->layers && status == FGIO_EXIT_OK; i++)
        status = prune_layer(units, &units->layer[i], share);
    return status;
}

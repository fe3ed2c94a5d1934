/* prune_units.c - structured pruning: units are removed from all tensors that have a slice of them, or set to zero. */
#include "program/deploy/prune_units.h"

#include "io/error.h"
#include "trainer/sparse/mask_select.h"

#include <stdlib.h>
#include <string.h>

static fgt_unit_tensors tensors_of(const fgp_weights *w) {
    return (fgt_unit_tensors){w->tensor, w->data, w->count};
}

static void set_zeros(fgp_weights *w, const fgt_unit_slice *s, size_t units, const uint8_t *kept) {
    const fgt_axis_view v = fgt_unit_view(&w->tensor[s->tensor], s);
    for (size_t i = 0; i < v.outer * v.axis; i++)
        if (!fgt_mask_bit(kept, fgt_unit_at(s, units, i % v.axis)))
            memset(w->data[s->tensor] + i * v.inner, 0, v.inner * sizeof(float));
}

static void remove_slices(fgp_weights *w, const fgt_unit_slice *s, size_t units, const uint8_t *kept, size_t stay) {
    const fgt_axis_view v = fgt_unit_view(&w->tensor[s->tensor], s);
    float *to = w->data[s->tensor];
    for (size_t i = 0; i < v.outer * v.axis; i++) {
        if (!fgt_mask_bit(kept, fgt_unit_at(s, units, i % v.axis)))
            continue;
        memmove(to, w->data[s->tensor] + i * v.inner, v.inner * sizeof *to);
        to += v.inner;
    }
    w->tensor[s->tensor].shape[s->axis] = (uint64_t)s->parts * stay * s->length;
}

/* Scores of the units, and how many stay: a share of them, or those that something reads. */
static size_t score_units(const fgp_weights *w, const fgt_unit_layer *layer, const fgp_unit_options *o, float *score) {
    const fgt_unit_tensors tensors = tensors_of(w);
    size_t read = 0;
    if (!o->zeros) {
        fgt_unit_scores(&tensors, layer, score);
        return fgt_units_that_stay(layer->units, 1 - o->share);
    }
    fgt_unit_reader_norms(&tensors, layer, score);
    for (size_t u = 0; u < layer->units; u++)
        read += score[u] > 0;
    return read > 0 ? read : 1;
}

static int prune_layer(fgp_weights *w, const fgt_unit_layer *layer, const fgp_unit_options *o,
                       fgp_unit_totals *totals) {
    const size_t units = layer->units;
    float *score = malloc(units * sizeof *score);
    uint8_t *kept = calloc(units / 8 + 1, 1);
    bool room = score && kept;
    size_t stay = room ? score_units(w, layer, o, score) : 0;
    if (room)
        fgt_select_largest(&(fgt_candidates){.score = score, .count = units, .selected = kept}, 1, stay);
    for (size_t k = 0; k < layer->slices && room; k++)
        if (o->keep_shapes)
            set_zeros(w, &layer->slice[k], units, kept);
        else
            remove_slices(w, &layer->slice[k], units, kept, stay);
    totals->units += units;
    totals->removed += units - stay;
    free(score);
    free(kept);
    return room ? FGIO_EXIT_OK : fgio_error("not enough memory for %zu units", units);
}

/* Whether a tensor of the layer has the text in its name; other slices of it could not stay as they are. */
static bool is_skipped(const fgp_weights *w, const fgt_unit_layer *layer, const char *skip) {
    for (size_t k = 0; k < layer->slices && skip; k++)
        if (strstr(w->tensor[layer->slice[k].tensor].name, skip))
            return true;
    return false;
}

int fgp_prune_units(fgp_weights *weights, const fgp_unit_options *options, fgp_unit_totals *totals) {
    const fgt_unit_tensors tensors = tensors_of(weights);
    *totals = (fgp_unit_totals){0, 0};
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < weights->count && code == FGIO_EXIT_OK; i++) {
        fgt_unit_layer layer;
        if (fgt_unit_layer_find(&tensors, i, &options->kinds, &layer) && !is_skipped(weights, &layer, options->skip))
            code = prune_layer(weights, &layer, options, totals);
    }
    if (code == FGIO_EXIT_OK && totals->units == 0)
        code =
            fgio_error("the model has no %s%s",
                       options->kinds.channels ? "layers with inner channels that are known (conv1, conv2; mlp.c_fc; "
                                                 "intermediate.dense; fc1, fc2)"
                                               : "attention heads that are known (attn.c_attn, attention.self)",
                       options->skip ? " and that --skip does not exclude" : "");
    return code;
}

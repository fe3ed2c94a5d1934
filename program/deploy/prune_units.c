/*
 * prune_units.c - structured pruning: units whose removal changes the sizes inside a block only, never the residual
 * stream. A unit is a slice of several tensors:
 *
 *   a channel   a row of convN, of bnN with its statistics, and an input of the next convolution of the block
 *   a column    a column and a bias of mlp.c_fc, a row of mlp.c_proj
 *   a head      some columns of each third of attn.c_attn, their biases, and rows of attn.c_proj
 *
 * A unit's importance is the norm of what makes its output times the norm of the weights that read it. A batch norm
 * makes the norm of a convolution irrelevant, so its scale counts instead; of a head the values count.
 */
#include "program/deploy/prune_units.h"

#include "io/error.h"
#include "trainer/sparse/mask_select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICES_MOST = 6 };

/** The slices of one tensor: its axis has `parts` times `units` times `length` indices. */
typedef struct unit_slice {
    size_t tensor;
    uint32_t axis, parts, length;
    bool scored; /* by the norm of the last part */
} unit_slice;

typedef struct unit_layer {
    unit_slice slice[SLICES_MOST];
    size_t slices, units;
} unit_layer;

/* ---- layers ------------------------------------------------------------------------------------- */

/* The tensor whose name is that of tensor `like` with another end; SIZE_MAX: none. */
static size_t find_sibling(const fgp_weights *w, size_t like, const char *end, const char *other) {
    const char *name = w->tensor[like].name;
    size_t base = strlen(name) - strlen(end);
    for (size_t i = 0; i < w->count; i++)
        if (strncmp(w->tensor[i].name, name, base) == 0 && strcmp(w->tensor[i].name + base, other) == 0)
            return i;
    return SIZE_MAX;
}

/* Adds the slices of a tensor; one that is missing or has another length is not. */
static bool add_slice(const fgp_weights *w, unit_layer *layer, unit_slice s) {
    if (s.tensor == SIZE_MAX || s.axis >= w->tensor[s.tensor].ndim ||
        w->tensor[s.tensor].shape[s.axis] != (uint64_t)s.parts * layer->units * s.length)
        return false;
    layer->slice[layer->slices++] = s;
    return true;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0 && name[n - m - 1] == '.';
}

/* Convolution number k of a block, if another one follows it there. */
static bool find_channels(const fgp_weights *w, size_t i, unit_layer *layer) {
    static const char *const numbers[] = {"1", "2"};
    for (size_t k = 0; k < 2; k++) {
        static const char *const norms[] = {"weight", "bias", "running_mean", "running_var"};
        char end[16], other[32];
        snprintf(end, sizeof end, "conv%s.weight", numbers[k]);
        if (!ends_with(w->tensor[i].name, end) || w->tensor[i].ndim != 4)
            continue;
        *layer = (unit_layer){.units = (size_t)w->tensor[i].shape[0]};
        snprintf(other, sizeof other, "conv%zu.weight", k + 2);
        bool found = add_slice(w, layer, (unit_slice){i, 0, 1, 1, false}) &&
                     add_slice(w, layer, (unit_slice){find_sibling(w, i, end, other), 1, 1, 1, true});
        for (size_t n = 0; n < 4 && found; n++) {
            snprintf(other, sizeof other, "bn%s.%s", numbers[k], norms[n]);
            found = add_slice(w, layer, (unit_slice){find_sibling(w, i, end, other), 0, 1, 1, n == 0});
        }
        return found;
    }
    return false;
}

/* A linear layer of GPT-2, input first, and the one that reads its output. */
static bool find_columns(const fgp_weights *w, size_t i, const fgp_unit_options *o, unit_layer *layer) {
    const char *end = o->heads ? "c_attn.weight" : "c_fc.weight", *bias = o->heads ? "c_attn.bias" : "c_fc.bias";
    const uint32_t parts = o->heads ? 3 : 1, length = o->heads ? o->head_length : 1;
    if (!ends_with(w->tensor[i].name, end) || w->tensor[i].ndim != 2)
        return false;
    *layer = (unit_layer){.units = (size_t)w->tensor[i].shape[1] / parts / length};
    return add_slice(w, layer, (unit_slice){i, 1, parts, length, true}) &&
           add_slice(w, layer, (unit_slice){find_sibling(w, i, end, bias), 0, parts, length, false}) &&
           add_slice(w, layer, (unit_slice){find_sibling(w, i, end, "c_proj.weight"), 0, 1, length, true});
}

static bool find_layer(const fgp_weights *w, size_t i, const fgp_unit_options *o, unit_layer *layer) {
    if (o->skip && strstr(w->tensor[i].name, o->skip))
        return false;
    return find_columns(w, i, o, layer) || (!o->heads && find_channels(w, i, layer));
}

/* ---- scores ------------------------------------------------------------------------------------- */

/* A tensor as outer x axis x inner. */
typedef struct axis_view {
    size_t outer, axis, inner;
} axis_view;

static axis_view view_axis(const frug_tensor *t, uint32_t axis) {
    axis_view v = {1, (size_t)t->shape[axis], 1};
    for (uint32_t d = 0; d < t->ndim; d++) {
        v.outer *= d < axis ? (size_t)t->shape[d] : 1;
        v.inner *= d > axis ? (size_t)t->shape[d] : 1;
    }
    return v;
}

static double slice_norm(const fgp_weights *w, const unit_slice *s, size_t units, size_t unit) {
    const axis_view v = view_axis(&w->tensor[s->tensor], s->axis);
    const size_t first = (s->parts - 1) * units * s->length + unit * s->length;
    double sum = 0;
    for (size_t o = 0; o < v.outer; o++) {
        const float *x = w->data[s->tensor] + (o * v.axis + first) * v.inner;
        for (size_t i = 0; i < s->length * v.inner; i++)
            sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

static void score_units(const fgp_weights *w, const unit_layer *layer, float *score) {
    for (size_t u = 0; u < layer->units; u++) {
        double product = 1;
        for (size_t k = 0; k < layer->slices; k++)
            product *= layer->slice[k].scored ? slice_norm(w, &layer->slice[k], layer->units, u) : 1;
        score[u] = (float)product;
    }
}

/* ---- removal ------------------------------------------------------------------------------------ */

/* Which unit an index of the axis belongs to. */
static size_t unit_at(const unit_slice *s, size_t units, size_t index) {
    return index / s->length % units;
}

static void set_zeros(fgp_weights *w, const unit_slice *s, size_t units, const uint8_t *kept) {
    const axis_view v = view_axis(&w->tensor[s->tensor], s->axis);
    for (size_t i = 0; i < v.outer * v.axis; i++)
        if (!fgt_mask_bit(kept, unit_at(s, units, i % v.axis)))
            memset(w->data[s->tensor] + i * v.inner, 0, v.inner * sizeof(float));
}

static void remove_slices(fgp_weights *w, const unit_slice *s, size_t units, const uint8_t *kept, size_t stay) {
    const axis_view v = view_axis(&w->tensor[s->tensor], s->axis);
    float *to = w->data[s->tensor];
    for (size_t i = 0; i < v.outer * v.axis; i++) {
        if (!fgt_mask_bit(kept, unit_at(s, units, i % v.axis)))
            continue;
        memmove(to, w->data[s->tensor] + i * v.inner, v.inner * sizeof *to);
        to += v.inner;
    }
    w->tensor[s->tensor].shape[s->axis] = (uint64_t)s->parts * stay * s->length;
}

static int prune_layer(fgp_weights *w, const unit_layer *layer, const fgp_unit_options *o, fgp_unit_totals *totals) {
    const size_t units = layer->units, wanted = (size_t)llround((1 - o->share) * (double)units);
    const size_t stay = wanted > 0 ? wanted : 1;
    float *score = malloc(units * sizeof *score);
    uint8_t *kept = calloc(units / 8 + 1, 1);
    bool room = score && kept;
    if (room) {
        score_units(w, layer, score);
        fgt_select_largest(&(fgt_candidates){.score = score, .count = units, .selected = kept}, 1, stay);
    }
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

int fgp_prune_units(fgp_weights *weights, const fgp_unit_options *options, fgp_unit_totals *totals) {
    *totals = (fgp_unit_totals){0, 0};
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < weights->count && code == FGIO_EXIT_OK; i++) {
        unit_layer layer;
        if (find_layer(weights, i, options, &layer) && layer.units > 0)
            code = prune_layer(weights, &layer, options, totals);
    }
    if (code == FGIO_EXIT_OK && totals->units == 0)
        code = fgio_error("the model has no %s", options->heads ? "attention heads that are known (attn.c_attn)"
                                                                : "blocks with inner channels that are known (conv1, "
                                                                  "bn1, conv2; mlp.c_fc)");
    return code;
}

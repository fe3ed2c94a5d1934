/*
 * unit_layers.h - the units of a model that can be removed without a change of its other layers: inner channels of
 * blocks, neurons between two linear layers, attention heads. A unit is a slice of several tensors, those that make its
 * output and the one that reads it. Layers are found by the names of tensors, in a file as well as in a graph.
 */
#ifndef FGT_UNIT_LAYERS_H
#define FGT_UNIT_LAYERS_H

#include "frugrad.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FGT_UNIT_SLICES = 8 };

/** The tensors of a model. */
typedef struct fgt_unit_tensors {
    const frug_tensor *tensor;
    float *const *data;
    size_t count;
} fgt_unit_tensors;

/** Which units. */
typedef struct fgt_unit_kinds {
    bool channels;        /* inner channels and neurons */
    bool heads;           /* attention heads */
    uint32_t head_length; /* heads: numbers of one; 0: the model has none */
} fgt_unit_kinds;

/** The slices of one tensor: its axis has `parts` times the layer's units times `length` indices. */
typedef struct fgt_unit_slice {
    size_t tensor;
    uint32_t axis, parts, length;
    bool scored; /* the norm of the last part is a factor of the importance */
    bool reads;  /* the weights that read the unit */
} fgt_unit_slice;

typedef struct fgt_unit_layer {
    fgt_unit_slice slice[FGT_UNIT_SLICES];
    size_t slices, units;
} fgt_unit_layer;

/** The layer whose units' output tensor number i makes. false: it makes none of these kinds. */
bool fgt_unit_layer_find(const fgt_unit_tensors *tensors, size_t i, const fgt_unit_kinds *kinds, fgt_unit_layer *layer);

/** A tensor as outer x axis x inner. */
typedef struct fgt_axis_view {
    size_t outer, axis, inner;
} fgt_axis_view;

fgt_axis_view fgt_unit_view(const frug_tensor *tensor, const fgt_unit_slice *slice);

/** Which unit an index of the axis belongs to. */
static inline size_t fgt_unit_at(const fgt_unit_slice *slice, size_t units, size_t index) {
    return index / slice->length % units;
}

/** Importance of each unit: the norm of what makes its output times the norm of the weights that read it. */
void fgt_unit_scores(const fgt_unit_tensors *tensors, const fgt_unit_layer *layer, float *score);

/** The norm of the weights that read each unit. */
void fgt_unit_reader_norms(const fgt_unit_tensors *tensors, const fgt_unit_layer *layer, float *norm);

/** How many units of a layer stay: the share of them, at least one. */
size_t fgt_units_that_stay(size_t units, double share);

#endif

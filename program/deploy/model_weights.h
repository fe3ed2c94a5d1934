/*
 * model_weights.h - the weights of a model file in memory, as f32, and as matrices whose rows are outputs.
 *
 * Functions that can fail print the error on stderr and return an exit code.
 */
#ifndef FGP_MODEL_WEIGHTS_H
#define FGP_MODEL_WEIGHTS_H

#include "frugrad.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct fgp_weights {
    frug_tensor *tensor; /* names are owned; role and input_first are guessed from the names */
    float **data;
    size_t count;
    char path[PATH_MAX]; /* the file, of a directory its newest checkpoint */
    char model[128];     /* what a checkpoint says that they are of; "": unknown */
} fgp_weights;

/** Read a safetensors file, a compact file, or the newest checkpoint of a directory; the state of a run is left out. */
int fgp_weights_read(const char *path, fgp_weights *weights);
void fgp_weights_free(fgp_weights *weights);

/** Refuse an output that would overwrite the file that was read, or be taken for a checkpoint of the run that the input
 * is of. */
int fgp_weights_check_output(const fgp_weights *weights, const char *out);

/** Whether a tensor is a matrix or a convolution that is multiplied with activations: no embedding, no vector. */
bool fgp_weights_is_matrix(const frug_tensor *tensor);

/** A tensor as a matrix: weight (r, c) is data[r * row_stride + c * column_stride]. */
typedef struct fgp_matrix_view {
    size_t rows, cols, row_stride, column_stride;
} fgp_matrix_view;

fgp_matrix_view fgp_weights_view(const frug_tensor *tensor);

/** The number of weights of a tensor. */
size_t fgp_weights_size(const frug_tensor *tensor);

/** Write all weights as f32 safetensors. */
int fgp_weights_write_safetensors(const fgp_weights *weights, const char *path);

/** Write a compact file; int8: of tensors with at least two dimensions. *bytes: its size. */
int fgp_weights_write_compact(const fgp_weights *weights, const char *path, bool int8, size_t *bytes);

#endif

/* gradient_file.h - the tensors of a file as one flat f32 buffer with its layout, and the way back. */
#ifndef FGP_GRADIENT_FILE_H
#define FGP_GRADIENT_FILE_H

#include "frugrad.h"
#include "program/model/tensor_roles.h"
#include "io/file_tensors.h"

#include <jansson.h>

typedef enum fgp_format { FGP_FORMAT_RAW, FGP_FORMAT_NPY, FGP_FORMAT_SAFETENSORS, FGP_FORMAT_AUTO } fgp_format;

/** The names of the formats, in their order, NULL at the end. */
extern const char *const fgp_format_words[];

typedef struct fgp_gradient {
    fgp_format format; /* of the file; never FGP_FORMAT_AUTO */
    frug_layout *layout;
    json_t *metadata; /* of a safetensors file; may be NULL */
    int reshaped;     /* the only tensor has ndim and shape in the file, and another shape in the layout */
    uint32_t ndim;
    uint64_t shape[FRUG_MAX_DIMS];
    float *data; /* frug_layout_elements() floats; NULL until decoded */
} fgp_gradient;

/**
 * Read a file of gradients. FGP_FORMAT_AUTO goes by the ending of the path, then by the first bytes; everything else is
 * raw little-endian f32.
 *
 * A single tensor of one dimension becomes one row, so that it is compressed: tensors of one dimension beside others
 * are biases and are sent dense. Roles and modules are guessed (tensor_roles.c); attention matrices get the heads.
 * Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after an error message.
 */
int fgp_gradient_load(const char *path, fgp_format format, fgp_heads heads, fgp_gradient *gradient);

/** Write gradient->data to a file of gradient->format, as f32. As fgp_gradient_load(). */
int fgp_gradient_store(const char *path, const fgp_gradient *gradient);

void fgp_gradient_free(fgp_gradient *gradient);

#endif

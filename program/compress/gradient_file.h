/* gradient_file.h - the tensors of a file as one flat f32 buffer with its layout, and the way back. */
#ifndef FRUGI_GRADIENT_FILE_H
#define FRUGI_GRADIENT_FILE_H

#include "frugrad.h"
#include "program/model/tensor_roles.h"
#include "io/file_tensors.h"

#include <jansson.h>

typedef enum frugi_format {
    FRUGI_FORMAT_RAW,
    FRUGI_FORMAT_NPY,
    FRUGI_FORMAT_SAFETENSORS,
    FRUGI_FORMAT_AUTO
} frugi_format;

/** The names of the formats, in their order, NULL at the end. */
extern const char *const frugi_format_words[];

typedef struct frugi_gradient {
    frugi_format format; /* of the file; never FRUGI_FORMAT_AUTO */
    frug_layout *layout;
    json_t *metadata; /* of a safetensors file; may be NULL */
    int reshaped;     /* the only tensor had ndim and shape in its file, and another shape in the layout */
    uint32_t ndim;
    uint64_t shape[FRUG_MAX_DIMS];
    float *data; /* frug_layout_elements() numbers; NULL until there are any */
} frugi_gradient;

/**
 * Read a file of gradients. FRUGI_FORMAT_AUTO goes by the ending of the path,
 * then by the first bytes; what is left is raw little-endian f32.
 *
 * A file with a single tensor of one dimension becomes one row, so that it is
 * compressed: tensors of one dimension beside others are biases and travel dense.
 * Roles and modules are guessed (tensor_roles.c); attention matrices get the heads.
 * Prints why it failed. Returns FRUGI_EXIT_OK or FRUGI_EXIT_FAIL.
 */
int frugi_gradient_load(const char *path, frugi_format format, frugi_heads heads, frugi_gradient *gradient);

/** Write gradient->data to a file of gradient->format, as f32. As frugi_gradient_load(). */
int frugi_gradient_store(const char *path, const frugi_gradient *gradient);

void frugi_gradient_free(frugi_gradient *gradient);

#endif

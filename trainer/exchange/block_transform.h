/*
 * block_transform.h - option transform: blocks of a gradient as coefficients of an orthonormal transform, as in DeMo.
 *
 * A block of s * s consecutive elements of a tensor is seen as a square X and becomes T X T', with T the
 * cosine transform or Hadamard's matrix, both orthonormal. The compressor then accumulates, selects and sends
 * coefficients; its residual has coefficients too, which is the same as transforming residuals, since the transform is
 * linear. What is received is transformed back, so that each entry that was sent changes all weights of its block.
 * Tensors that are sent dense are transformed, too, which changes them by rounding only. An incomplete block at the end
 * of a tensor is not transformed.
 */
#ifndef FGT_BLOCK_TRANSFORM_H
#define FGT_BLOCK_TRANSFORM_H

#include "frugrad.h"

typedef struct fgt_transform fgt_transform;

/** Creates the transform of a config; where it has none, *transform is unchanged. Returns an exit status. */
int fgt_transform_create(const frug_config *config, const frug_layout *layout, fgt_transform **transform);
void fgt_transform_destroy(fgt_transform *transform);

/** Transforms a range in place; values[0] is element range.begin. Ranges begin and end at blocks. Nothing happens
 * without a transform. Threads: any. */
void fgt_transform_forward(const fgt_transform *transform, frug_range range, float *values);

/** Transforms back. */
void fgt_transform_inverse(const fgt_transform *transform, frug_range range, float *values);

#endif

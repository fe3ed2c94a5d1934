/* residual_range.h - read, write and add to the residual of a range of the flat buffer. */
#ifndef FRUGI_RESIDUAL_RANGE_H
#define FRUGI_RESIDUAL_RANGE_H

#include "feedback/error_feedback.h"
#include "layout/partition.h"

/**
 * Read the residual of a range, which begins and ends between blocks, as floats. Gaps, dense tensors and feedback=none
 * give zeros.
 */
void frugi_residual_read(const frugi_feedback_state *fb, const frugi_partition *partition, frug_range range,
                         float *dst);

/**
 * Replace the residual of a range, which begins and ends between blocks; feedback=dgc: its momentum becomes zero.
 * Returns FRUG_ERR_ARG if a number is not finite.
 */
frug_status frugi_residual_write(frugi_feedback_state *fb, const frugi_partition *partition, frug_range range,
                                 const float *src);

/** Add finite numbers to the residual of a range: frugi_compressor_residual_add(). */
void frugi_residual_add(frugi_feedback_state *fb, const frugi_partition *partition, uint64_t step, frug_range range,
                        const float *x);

#endif

/* exact_frame.h - what an exchange needs of a compressor besides compressing: sums sent on, and leftovers taken back.
 */
#ifndef FRUGI_EXACT_FRAME_H
#define FRUGI_EXACT_FRAME_H

#include "compress/compressor.h"

/** The most bytes of a frame with so many non-zero elements of a range. */
size_t frugi_nonzeros_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t nonzeros);

/**
 * Write the elements of a range that are not zero as a frame, exactly. The range may begin and end anywhere.
 *
 *   x      element begin; finite
 *   list   scratch: one number per element of the longest tensor part, and one more
 *
 * Allocates: never. Returns FRUG_ERR_ARG, FRUG_ERR_SHORT_BUFFER.
 */
frug_status frugi_nonzeros_say(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *x,
                               uint32_t *list, void *dst, size_t cap, size_t *len);

/**
 * Add finite numbers to what a range has left behind: what an owner summed and did not send on. Tensors that travel
 * dense, and feedback=none, keep nothing. A block to which only zeros are added keeps its bits, and so
 * does one whose sum is not finite.
 */
FRUGI_SHARED void frugi_residual_add(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *x);

#endif

/* exact_frame.h - frames of exact f32 values; used by the exchange algorithms. */
#ifndef FRUGI_EXACT_FRAME_H
#define FRUGI_EXACT_FRAME_H

#include "compress/compressor_access.h"

/** The most bytes of a frame with a number of non-zero elements of a range. */
size_t frugi_exact_frame_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t nonzeros);

/**
 * Encode the non-zero elements of a range as a frame, exactly. The range may begin and end anywhere.
 *
 *   x      element begin; finite
 *   list   scratch: one number per element of the longest tensor in the range, and one more
 *
 * Allocates: never. Returns FRUG_ERR_ARG, FRUG_ERR_SHORT_BUFFER.
 */
frug_status frugi_exact_frame_encode(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *x,
                                     uint32_t *list, void *dst, size_t cap, size_t *len);

#endif

/* partial_sums.h - helpers of the algorithms that add up dense floats and not only frames. */
#ifndef FRUGI_PARTIAL_SUMS_H
#define FRUGI_PARTIAL_SUMS_H

#include "reduce/reducer.h"

/** Compress a range of this rank's gradient into r->send_buf. */
frug_status frugi_compress_range(frug_reducer *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                 size_t *len);

/** Decode frames of a range into x, count floats: their sum, in order. */
frug_status frugi_decode_frames(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                                uint64_t begin, uint64_t count, float *x);

/**
 * Add a sum over all ranks to the target of an exchange, tensor by tensor. Elements outside tensors, and elements that
 * no rank has sent, do not change. The sum is overwritten.
 */
void frugi_apply_sum(const frug_compressor *c, const frugi_exchange *x, float *sum);

/** The buffer as floats. */
static inline float *frugi_buffer_floats(const frugi_buffer *buffer) {
    return (float *)(void *)buffer->data;
}

#endif

/* partial_sums.h - what algorithms that add up outside the frames have in common. */
#ifndef FRUGI_PARTIAL_SUMS_H
#define FRUGI_PARTIAL_SUMS_H

#include "reduce/reducer.h"

/** Compress a range of this worker's gradient into r->mine. */
frug_status frugi_part_compress(frug_reducer *r, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                size_t *len);

/** Make x what frames of the range say together, in order; count floats. */
frug_status frugi_part_decode(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                              uint64_t begin, uint64_t count, float *x);

/**
 * Add a sum over all workers to the target of an exchange, tensor by tensor: gaps stay as they are, and so does what
 * nobody has sent. The sum is lost.
 */
void frugi_part_settle(const frug_compressor *c, const frugi_exchange *x, float *sum);

/** The floats of a room. */
static inline float *frugi_room_floats(const frugi_room *room) {
    return (float *)(void *)room->data;
}

#endif

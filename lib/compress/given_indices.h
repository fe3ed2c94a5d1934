/* given_indices.h - compress without choosing: the places are given. */
#ifndef FRUGI_GIVEN_INDICES_H
#define FRUGI_GIVEN_INDICES_H

#include "compress/compressor.h"

/**
 * Fold one gradient range into what was left behind and take what stands at given places, exactly; the rest stays.
 *
 *   begin, count, grad   as in frug_compress()
 *   place, n             ascending, relative to begin; what dense tensors have at other places is lost
 *   value                n floats
 *
 * A block with a NaN or an infinity is held back as in frug_compress(): its gradient counts for nothing.
 * Allocates: never. Cost: one pass over count elements, on one thread. Returns FRUG_ERR_ARG.
 */
frug_status frugi_take(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                       const uint32_t *place, uint64_t n, float *value);

#endif

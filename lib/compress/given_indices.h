/* given_indices.h - compress with given indices instead of a selection (reduce=shared). */
#ifndef FRUGI_GIVEN_INDICES_H
#define FRUGI_GIVEN_INDICES_H

#include "compress/compressor_access.h"

/**
 * Add a gradient range to the residual and extract the exact values at given indices; the rest stays in the residual.
 *
 *   begin, count, grad   as in frug_compress()
 *   index, n             ascending, relative to begin; dense tensors have no residual, so their other values are lost
 *   value                n floats
 *
 * A block with a NaN or an infinity is skipped as in frug_compress(): its gradient is dropped.
 * Allocates: never. Cost: one pass over count elements, on one thread. Returns FRUG_ERR_ARG.
 */
frug_status frugi_extract_values(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                 const uint32_t *index, uint64_t n, float *value);

#endif

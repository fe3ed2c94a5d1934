/* residual_block.h - shared by the SIMD variants: the residual of a block, as floats or as it is stored. */
#ifndef FRUGI_RESIDUAL_BLOCK_H
#define FRUGI_RESIDUAL_BLOCK_H

#include "base/float_bits.h"
#include "select/block_kernel.h"

/** A block's residual. */
typedef struct residual_block {
    const float *floats;         /* FRUGI_RESIDUAL_F32 */
    const unsigned char *stored; /* other formats */
    float scale;                 /* of int8 and int4 */
} residual_block;

/* Where element i of the stored residual of a batch is. */
static inline const unsigned char *stored_at(const frugi_batch *batch, frugi_residual format, size_t i) {
    return batch->stored + (format == FRUGI_RESIDUAL_BF16 ? 2 * i : format == FRUGI_RESIDUAL_INT8 ? i : i / 2);
}

static inline residual_block residual_of(const frugi_batch *batch, size_t b, frugi_residual format) {
    size_t at = b * batch->block;
    if (format == FRUGI_RESIDUAL_F32)
        return (residual_block){.floats = batch->before + at};
    return (residual_block){.stored = stored_at(batch, format, at),
                            .scale = format == FRUGI_RESIDUAL_BF16 ? 1.0f : frugi_bf16_f32(batch->scale[b])};
}

#endif

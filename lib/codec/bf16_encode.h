/* bf16_encode.h - encode values as bf16, with one variant per instruction set; all give the same bits. */
#ifndef FRUGI_BF16_ENCODE_H
#define FRUGI_BF16_ENCODE_H

#include "base/cpu.h"

#include <stdint.h>

/** Write n finite values as frugi_f32_bf16() to out; v receives the rounding errors. */
typedef void frugi_bf16_encoder(float *v, uint32_t n, unsigned char *out);

frugi_bf16_encoder frugi_encode_bf16_ref, frugi_encode_bf16_neon, frugi_encode_bf16_avx2, frugi_encode_bf16_avx512;

/** The encoder of a variant. */
frugi_bf16_encoder *frugi_bf16_encoder_for(frugi_isa isa);

#endif

/*
 * block_value.h - encoding of the values of a block.
 *
 *   f32    unchanged
 *   bf16   nearest
 *   f16    nearest, times a power of two per block (one signed byte)
 *   int8   nearest of -127 .. 127 times a bf16 scale per block
 *
 * All round to nearest, so that decoded + error == original holds bit for bit
 * (the difference of two floats within a factor of two of each other is exact).
 */
#ifndef FRUGI_BLOCK_VALUE_H
#define FRUGI_BLOCK_VALUE_H

#include "config/config.h"

#define FRUGI_INT8_MAX_SCALE   0x7c01u /* the largest scale, a bf16: 127 times it is finite */
#define FRUGI_F16_MAX_EXPONENT 14      /* exponent of the largest value of a block: rounding up does not overflow */
#define FRUGI_F16_MIN_EXPONENT (-114)  /* smallest exponent of a scale: 2^114 is finite */
#define FRUGI_ROUND                                                                                                    \
    12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, ties to even                   \
                 */

/** Name of a code ("bf16"), or NULL for an unknown number. Codes after int8 are in unit_value.h only. */
const char *frugi_value_name(uint32_t code);

/** Bytes per value, and bytes of the scale per block; 0 for codes not listed above. */
uint32_t frugi_value_bytes(frugi_value code);
uint32_t frugi_value_scale_bytes(frugi_value code);

/**
 * Encode k finite values.
 *
 *   v       receives the rounding error: original - decoded
 *   scale   frugi_value_scale_bytes() bytes
 *   out     k * frugi_value_bytes() bytes
 */
void frugi_value_encode(frugi_value code, float *v, uint32_t k, unsigned char *scale, unsigned char *out);

/** Decode k values that frugi_value_check() has accepted. */
void frugi_value_decode(frugi_value code, const unsigned char *scale, const unsigned char *in, uint32_t k, float *v);

/** Whether all values of several blocks are finite and all scales valid. */
int frugi_value_check(frugi_value code, const unsigned char *scales, uint64_t blocks, const unsigned char *values,
                      uint64_t entries);

#endif

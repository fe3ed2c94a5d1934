/*
 * block_value.h - how the values of a block travel.
 *
 *   f32    as it is
 *   bf16   nearest
 *   f16    nearest, times a power of two that the block shares (one signed byte)
 *   int8   nearest of -127 .. 127 times a bf16 scale that the block shares
 *
 * All round to nearest, so that decoded + rest == original holds bit for bit
 * (the difference of two floats within a factor of two of each other is exact).
 */
#ifndef FRUGI_BLOCK_VALUE_H
#define FRUGI_BLOCK_VALUE_H

#include "config/config.h"

#define FRUGI_INT8_MOST 0x7c01u     /* the largest scale, a bf16: 127 times it is still a float */
#define FRUGI_F16_TOP   14          /* the largest value of a block gets this exponent: rounding up still fits */
#define FRUGI_F16_LEAST (-114)      /* smallest shared power: 2^114 is still a float */
#define FRUGI_ROUND     12582912.0f /* 1.5 * 2^23: adding and taking it away rounds to the nearest even whole number */

/** Name of a code ("bf16"), or NULL for a number that is none. The codes after int8 are those of unit_value.h alone. */
const char *frugi_value_name(uint32_t code);

/** Bytes per value, and bytes per block for what its values share; 0 for a code that is not above. */
uint32_t frugi_value_bytes(frugi_value code);
uint32_t frugi_value_scale_bytes(frugi_value code);

/**
 * Encode k finite values.
 *
 *   v       becomes what the code leaves over: original - decoded
 *   scale   frugi_value_scale_bytes() bytes
 *   out     k * frugi_value_bytes() bytes
 */
void frugi_value_encode(frugi_value code, float *v, uint32_t k, unsigned char *scale, unsigned char *out);

/** Decode k values that frugi_value_check() has passed. */
void frugi_value_decode(frugi_value code, const unsigned char *scale, const unsigned char *in, uint32_t k, float *v);

/** Whether all values of several blocks are finite and all scales ones that an encoder writes. */
int frugi_value_check(frugi_value code, const unsigned char *scales, uint64_t blocks, const unsigned char *values,
                      uint64_t entries);

#endif

/*
 * unit_value_code.h - quantization to less than a byte, and qsgd: the values of one value group to packed fields and
 * back.
 */
#ifndef FRUGI_UNIT_VALUE_CODE_H
#define FRUGI_UNIT_VALUE_CODE_H

#include "codec/unit_value.h"

/** The parameters of the fields of one value group. */
typedef struct frugi_value_group_scale {
    frugi_value code;
    uint32_t width;    /* bits of a field */
    float a, b;        /* int4, sign: the scale; two_bit: small, large; qsgd: norm, levels; onebit: the two means */
    float least;       /* encoding two_bit: the smallest magnitude that counts as large */
    float up, inverse; /* encoding qsgd: |v| * up * inverse is the level with 24 fractional bits */
    uint32_t random;   /* encoding qsgd: the random number of the first value of the value group */
} frugi_value_group_scale;

/** Bits of a field; 0 for other codes. */
uint32_t frugi_value_code_width(frugi_value code, uint32_t levels);

/** Bytes of the scales of a value group, for any code. */
uint32_t frugi_value_code_scale_bytes(frugi_value code);

/** Compute the scale of the n values of a value group, and write it to out. */
frugi_value_group_scale frugi_value_group_scale_compute(const frugi_section *section,
                                                        const frugi_value_group_options *how, uint64_t group,
                                                        const float *v, uint64_t n, unsigned char *out);

/** Read the scale of a value group. */
frugi_value_group_scale frugi_value_group_scale_read(const frugi_section *section, const unsigned char *in);

/** Whether a received scale is valid. */
int frugi_value_group_scale_check(frugi_value code, const unsigned char *in);

/** Decode values first .. first + n - 1 of a value group that has `room` bytes. */
void frugi_value_group_dequantize(const frugi_value_group_scale *scale, const unsigned char *in, uint64_t room,
                                  uint64_t first, uint64_t n, float *v);

#endif

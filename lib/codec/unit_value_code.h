/*
 * unit_value_code.h - the codes of less than a byte, and qsgd: from the values of one group to packed fields and back.
 */
#ifndef FRUGI_UNIT_VALUE_CODE_H
#define FRUGI_UNIT_VALUE_CODE_H

#include "codec/unit_value.h"

/** What the fields of a group stand for, and how to find them. */
typedef struct frugi_group_scale {
    frugi_value code;
    uint32_t width;    /* bits of a field */
    float a, b;        /* int4, sign: the scale; two_bit: small, large; qsgd: norm, levels; onebit: the two means */
    float least;       /* encoding two_bit: the least magnitude that is large */
    float up, inverse; /* encoding qsgd: |v| * up * inverse is the level with 24 binary places */
    uint32_t dice;     /* encoding qsgd: the random number of the group's first value */
} frugi_group_scale;

/** Bits of a field: 0 for a code that is none of these. */
uint32_t frugi_group_width(frugi_value code, uint32_t levels);

/** Bytes of a group's scales, of any code. */
uint32_t frugi_group_scales(frugi_value code);

/** The scale of a group's n values, written to out. */
frugi_group_scale frugi_group_scale_find(const frugi_section *section, const frugi_group_how *how, uint64_t group,
                                         const float *v, uint64_t n, unsigned char *out);

/** The scale of a group as received. */
frugi_group_scale frugi_group_scale_read(const frugi_section *section, const unsigned char *in);

/** Whether an encoder may have written it. */
int frugi_group_scale_check(frugi_value code, const unsigned char *in);

/** Encode the n values of a group into `out`; v becomes the rest. */
void frugi_group_fields(const frugi_group_scale *scale, float *v, uint64_t n, unsigned char *out);

/** Decode values first .. first + n - 1 of a group that has `room` bytes. */
void frugi_group_values(const frugi_group_scale *scale, const unsigned char *in, uint64_t room, uint64_t first,
                        uint64_t n, float *v);

#endif

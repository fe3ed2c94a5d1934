/*
 * unit_value.h - encoding of the values of a section by units: one sequence, in value groups that share a scale.
 *
 *   f32, bf16   as in block_value.h; no scale
 *   f16, int8   as in block_value.h, with a scale per value group instead of per block
 *   int4        nearest of -7 .. 7 times a bf16 scale: the largest magnitude / 7, rounded up (at most 0x7e12, so
 *               that seven times it is finite); a signed half byte
 *   sign        a bit (1: the sign bit is set) times the mean magnitude of the value group, a bf16
 *   two_bit     bit 0: sign; bit 1: size. The mean of the magnitudes below the mean of the value group (0 if there are
 *               none), or of the others; two bf16
 *   qsgd        bit 0: sign; above it the level, 0 .. levels: |v| / norm * levels with stochastic rounding;
 *               an f32 norm. Decoded as (level / levels) * norm, two float operations in this order
 *   onebit      a bit (1: negative): the mean of the nonnegative values, or of the negative ones; two f32, 0
 *               if there are no such values
 *
 * Codes of less than a byte, and qsgd, are packed from the lowest bit of the first byte on. Value groups start at
 * byte boundaries; unused bits of the last byte of a value group are zero. A bf16 mean is the mean as a float, rounded
 * to nearest.
 *
 * Sums are computed in doubles: value i of a value group is added to sum i mod 8, and the eight sums are added in
 * order. qsgd derives its random numbers from (key, number of the value group) and a Weyl sequence along the group
 * (feedback/residual_format.c gives the reason).
 *
 * f32, bf16, f16, int8 and int4 round to nearest: decoded + error == original, bit for bit. The others do not: there
 * the error is original - decoded, rounded once, so that decoded + error is original to within 2^-23 of the larger of
 * the two magnitudes.
 */
#ifndef FRUGI_UNIT_VALUE_H
#define FRUGI_UNIT_VALUE_H

#include "codec/section.h"

#include <stdbool.h>

/** Bytes of all scales and of all values of a section by units, before padding. */
uint64_t frugi_value_group_scale_bytes(const frugi_section *section);
uint64_t frugi_value_group_bytes(const frugi_section *section);

/** Loops of the encoder for one instruction set: unit_value_kernel.h. All give the same bits. */
typedef struct frugi_value_kernel frugi_value_kernel;

/** The best variant for this CPU, or the one named by FRUG_ISA. */
const frugi_value_kernel *frugi_value_kernel_chosen(void);

/** Options of the encoder besides the section. */
typedef struct frugi_value_group_options {
    const frugi_value_kernel *kernel;
    frugi_qnorm norm;   /* qsgd */
    uint64_t key;       /* qsgd: key of the random numbers */
    bool error_ignored; /* the rounding error is not needed: v is not written by codes after int8, else undefined */
} frugi_value_group_options;

/**
 * Encode values from .. from + n - 1 of the sequence.
 *
 *   from   a multiple of section->group (of 4096 if that is 0); n too, unless the range ends with the sequence
 *   v      n finite values; receives the rounding error, original - decoded, unless how->error_ignored
 *   scales, values   the arrays of the section; for value code sign with group 0 the caller has set the scale
 *
 * If group is 0 and the code is not f32, bf16 or sign, all values, fewer than 2^32, must be encoded in one call.
 * Threads may encode different ranges of one section in parallel. Allocates: never. Cost: 1 to 3 ns per value.
 */
void frugi_value_group_encode(const frugi_section *section, const frugi_value_group_options *how, uint64_t from,
                              uint64_t n, float *v, unsigned char *scales, unsigned char *values);

/** Decode values from .. from + n - 1, any range, of arrays that frugi_value_group_check() has accepted. */
void frugi_value_group_decode(const frugi_section *section, const unsigned char *scales, const unsigned char *values,
                              uint64_t from, uint64_t n, float *v);

/** Whether all values and scales are finite and valid, and unused bits are zero. */
int frugi_value_group_check(const frugi_section *section, const unsigned char *scales, const unsigned char *values);

#endif

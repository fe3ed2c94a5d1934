/*
 * unit_value.h - how the values of a section by units travel: one sequence, in groups that share a scale.
 *
 *   f32, bf16   as in block_value.h; nothing is shared
 *   f16, int8   as in block_value.h, a group in place of a block
 *   int4        nearest of -7 .. 7 times a bf16 scale: the largest magnitude / 7, rounded up (at most 0x7e12, so
 *               that seven times it is finite); a signed half byte
 *   sign        a bit (1: the sign bit is set) times the group's mean magnitude, a bf16
 *   two_bit     bit 0: sign; bit 1: size. The mean of the magnitudes below the group's mean (0 if there are none),
 *               or of the others; two bf16
 *   qsgd        bit 0: sign; above it the level, 0 .. levels: |v| / norm * levels rounded at random to a neighbour;
 *               an f32 norm. Stands for (level / levels) * norm, two float operations in this order
 *   onebit      a bit (1: negative): the mean of the values that are not negative, or of those that are; two f32, 0
 *               for a mean of nothing
 *
 * Codes of less than a byte, and qsgd, are packed from the lowest bit of the first byte on. Groups start at whole
 * bytes; unused bits of a group's last byte are zero. A bf16 mean is the nearest one to the mean as a float.
 *
 * Sums are taken in doubles: value i of a group joins sum i mod 8, and the eight are added in order. qsgd takes its
 * random numbers from (key, number of the group), rotated along the group (see feedback/store.c for why).
 *
 * f32, bf16, f16, int8 and int4 round to nearest: decoded + rest == original, bit for bit. The others do not: there
 * the rest is original - decoded, rounded once, so that decoded + rest is original to within 2^-23 of the larger of
 * the two magnitudes.
 */
#ifndef FRUGI_UNIT_VALUE_H
#define FRUGI_UNIT_VALUE_H

#include "codec/section.h"

/** Bytes of all scales and of all values of a section by units, before padding. */
uint64_t frugi_group_scale_bytes(const frugi_section *section);
uint64_t frugi_group_value_bytes(const frugi_section *section);

/** What an encoder needs besides the section. */
typedef struct frugi_group_how {
    frugi_qnorm norm; /* qsgd */
    uint64_t key;     /* qsgd: of the random numbers */
} frugi_group_how;

/**
 * Encode values from .. from + n - 1 of the sequence.
 *
 *   from   a multiple of the group (of 4096 where group is 0); n is one too, unless it reaches the end
 *   v      n finite values; becomes what the code leaves over: original - decoded
 *   scales, values   the section's arrays; with value code sign and group 0 the caller has put the scale in place
 *
 * Where group is 0 and the code is none of f32, bf16 and sign, all values, fewer than 2^32, are encoded in one go.
 * Threads may encode different stretches of one section at once. Allocates: never. Cost: 1 to 3 ns a value.
 */
void frugi_group_encode(const frugi_section *section, const frugi_group_how *how, uint64_t from, uint64_t n, float *v,
                        unsigned char *scales, unsigned char *values);

/** Decode values from .. from + n - 1, any stretch, of arrays that frugi_group_check() has passed. */
void frugi_group_decode(const frugi_section *section, const unsigned char *scales, const unsigned char *values,
                        uint64_t from, uint64_t n, float *v);

/** Whether all values and scales are finite and such as an encoder writes, unused bits of last bytes zero. */
int frugi_group_check(const frugi_section *section, const unsigned char *scales, const unsigned char *values);

#endif

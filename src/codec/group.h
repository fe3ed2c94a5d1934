/*
 * group.h - how the values of a section by units travel: one sequence, in groups that share a scale.
 *
 *   f32, bf16       as in value.h; nothing is shared
 *   f16, int8       as in value.h, a group in place of a block
 *   int4            nearest of -7 .. 7 times a bf16 scale (largest magnitude / 7, rounded up); two to a byte, low half
 * first sign            a bit (1: negative) times the group's mean magnitude, a bf16 two_bit         a sign bit and a
 * size bit: the mean of the magnitudes below the group's mean, or of the others; two bf16 qsgd            sign and
 * level of |v| / norm * levels, rounded at random to a neighbour; an f32 norm onebit          a bit: the mean of the
 * values that are not negative, or of those that are; two f32
 *
 * Groups start at whole bytes. qsgd takes its random numbers from (key, number of the group), rotated along the group.
 */
#ifndef FRUGI_GROUP_H
#define FRUGI_GROUP_H

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
 * Threads may encode different stretches of one section at once. Allocates: never.
 */
void frugi_group_encode(const frugi_section *section, const frugi_group_how *how, uint64_t from, uint64_t n, float *v,
                        unsigned char *scales, unsigned char *values);

/** Decode values from .. from + n - 1, any stretch, of arrays that frugi_group_check() has passed. */
void frugi_group_decode(const frugi_section *section, const unsigned char *scales, const unsigned char *values,
                        uint64_t from, uint64_t n, float *v);

/** Whether all values and scales are finite and such as an encoder writes, unused bits of last bytes zero. */
int frugi_group_check(const frugi_section *section, const unsigned char *scales, const unsigned char *values);

#endif

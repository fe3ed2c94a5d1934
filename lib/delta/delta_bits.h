/*
 * delta_bits.h - strings of bits, lowest first, and the Exp-Golomb code.
 *
 * The Exp-Golomb code of order k of a number v writes u = v + 2^k, of b + 1 bits, as b - k zeros, a one, and the lower
 * b bits of u.
 */
#ifndef FRUGI_DELTA_BITS_H
#define FRUGI_DELTA_BITS_H

#include "base/float_bits.h"

/** A writer; up to eight bytes behind the last bit are written. */
typedef struct frugi_bit_sink {
    unsigned char *out;
    uint64_t bits;
    uint32_t have; /* below 8 between calls */
} frugi_bit_sink;

/** Write the lowest n <= 56 bits of a number that has no others. */
static inline void frugi_bits_put(frugi_bit_sink *sink, uint64_t bits, uint32_t n) {
    sink->bits |= bits << sink->have;
    sink->have += n;
    frugi_put64(sink->out, sink->bits);
    sink->out += sink->have / 8;
    sink->bits >>= sink->have & ~7u;
    sink->have &= 7u;
}

/** The end: the first byte that is free. */
static inline unsigned char *frugi_bits_end(frugi_bit_sink *sink) {
    return sink->out + (sink->have > 0);
}

static inline uint32_t frugi_bit_length(uint64_t x) {
    return 64u - (uint32_t)__builtin_clzll(x);
}

static inline void frugi_golomb_put(frugi_bit_sink *sink, uint64_t v, uint32_t k) {
    uint64_t u = v + ((uint64_t)1 << k);
    uint32_t b = frugi_bit_length(u) - 1, zeros = b - k, half = b < 32 ? b : 32;
    if (zeros + 1 + b <= 56) {
        frugi_bits_put(sink, ((u - ((uint64_t)1 << b)) << 1 | 1) << zeros, zeros + 1 + b);
        return;
    }
    frugi_bits_put(sink, 0, zeros < 32 ? zeros : 32);
    frugi_bits_put(sink, 0, zeros < 32 ? 0 : zeros - 32);
    frugi_bits_put(sink, 1, 1);
    frugi_bits_put(sink, u & (((uint64_t)1 << half) - 1), half);
    frugi_bits_put(sink, b < 32 ? 0 : (u - ((uint64_t)1 << b)) >> 32, b - half);
}

/** Bits of a string from a position on; at least 57 of them are right. */
static inline uint64_t frugi_bits_peek(const unsigned char *in, uint64_t at) {
    return frugi_get64(in + at / 8) >> at % 8;
}

/** n <= 64 bits at a position. */
static inline uint64_t frugi_bits_get(const unsigned char *in, uint64_t at, uint32_t n) {
    uint64_t low = frugi_bits_peek(in, at) & 0xffffffffu;
    if (n <= 32)
        return low & (((uint64_t)1 << n) - 1);
    uint64_t high = frugi_bits_peek(in, at + 32) & (((uint64_t)1 << (n - 32)) - 1);
    return low | high << 32;
}

/** A code too long for one peek. Returns its length, or 0 if it is invalid or ends behind `end`. */
static inline uint32_t frugi_golomb_get_long(const unsigned char *in, uint64_t at, uint64_t end, uint32_t k,
                                             uint64_t *v) {
    uint32_t zeros = 0;
    while (at + zeros < end && zeros + k < 64 && !(in[(at + zeros) / 8] >> (at + zeros) % 8 & 1))
        zeros++;
    uint32_t b = zeros + k;
    if (b >= 64 || at + zeros + 1 + b > end)
        return 0;
    *v = frugi_bits_get(in, at + zeros + 1, b) + ((uint64_t)1 << b) - ((uint64_t)1 << k);
    return zeros + 1 + b;
}

#endif

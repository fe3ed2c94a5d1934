/*
 * float_bits.h - floats as bits, and the short float formats.
 *
 * All conversions round to nearest, ties to even, and use integer arithmetic
 * only, so that every machine gives the same bits.
 */
#ifndef FRUGI_FLOAT_BITS_H
#define FRUGI_FLOAT_BITS_H

#include "base/host_device.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

#define FRUGI_ABS_MASK 0x7fffffffu
#define FRUGI_INF_BITS 0x7f800000u

FRUGI_HOST_DEVICE uint32_t frugi_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

FRUGI_HOST_DEVICE float frugi_bits_f32(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/** The magnitude as an integer with the same order; infinity and NaN are the largest. */
FRUGI_HOST_DEVICE uint32_t frugi_magnitude(float x) {
    return frugi_f32_bits(x) & FRUGI_ABS_MASK;
}

/** Replace an infinity by the largest float of its sign; other values are unchanged. */
FRUGI_HOST_DEVICE float frugi_clamp_finite(float x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/** The largest magnitude of n floats; FRUGI_INF_BITS or more if one is not finite. */
FRUGI_HOST_DEVICE uint32_t frugi_largest_magnitude(const float *x, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = frugi_magnitude(x[i]);
        most = m > most ? m : most;
    }
    return most;
}

/** Whether n floats have no NaN and no infinity. */
FRUGI_HOST_DEVICE int frugi_all_finite(const float *x, uint32_t n) {
    return frugi_largest_magnitude(x, n) < FRUGI_INF_BITS;
}

FRUGI_HOST_DEVICE float frugi_bf16_f32(uint16_t h) {
    return frugi_bits_f32((uint32_t)h << 16);
}

/** Nearest bf16 of a finite x; results that would round to infinity become the largest finite value. */
FRUGI_HOST_DEVICE uint16_t frugi_f32_bf16(float x) {
    uint32_t u = frugi_f32_bits(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(r - ((r & 0x7fffu) >= 0x7f80u));
}

/** What rounding a finite x to bf16 leaves. */
FRUGI_HOST_DEVICE float frugi_bf16_error(float x) {
    return x - frugi_bf16_f32(frugi_f32_bf16(x));
}

/** Smallest bf16 that is not below a finite x >= 0; the largest finite bf16 if there is none. */
FRUGI_HOST_DEVICE uint16_t frugi_f32_bf16_up(float x) {
    uint32_t r = (frugi_f32_bits(x) + 0xffffu) >> 16;
    return (uint16_t)(r >= 0x7f80u ? 0x7f7fu : r);
}

/** Value of a finite f16. */
FRUGI_HOST_DEVICE float frugi_f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u, fraction = h & 1023u;
    if (exponent == 0) /* zero and subnormals: fraction * 2^-24, exact in f32 */
        return frugi_bits_f32(frugi_f32_bits((float)fraction * 0x1p-24f) | sign);
    return frugi_bits_f32(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

/** Nearest f16 of an x with |x| < 65520. */
FRUGI_HOST_DEVICE uint16_t frugi_f32_f16(float x) {
    uint32_t u = frugi_f32_bits(x), a = u & FRUGI_ABS_MASK;
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    if (a < 0x38800000u) { /* below 2^-14: adding 2^-1 aligns 2^-24 with the last bit of f32 */
        uint32_t m = frugi_f32_bits(frugi_bits_f32(a) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | m);
    }
    a += 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | ((a - 0x38000000u) >> 13));
}

/* Little-endian loads and stores at any alignment; compilers turn each into one instruction. */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bulk data is copied without byte swapping, which needs a little-endian machine"
#endif

FRUGI_HOST_DEVICE uint16_t frugi_get16(const unsigned char *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

FRUGI_HOST_DEVICE uint32_t frugi_get32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

FRUGI_HOST_DEVICE uint64_t frugi_get64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

FRUGI_HOST_DEVICE void frugi_put16(unsigned char *p, uint16_t v) {
    memcpy(p, &v, sizeof v);
}

FRUGI_HOST_DEVICE void frugi_put32(unsigned char *p, uint32_t v) {
    memcpy(p, &v, sizeof v);
}

FRUGI_HOST_DEVICE void frugi_put64(unsigned char *p, uint64_t v) {
    memcpy(p, &v, sizeof v);
}

#endif

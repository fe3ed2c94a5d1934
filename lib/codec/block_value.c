/*
 * block_value.c - encode and decode the values of a block. Bytes on the wire are little-endian.
 *
 * Blocks are short, so the loops process sixteen values at a time in local arrays: a fixed trip count and no
 * aliasing, which compilers vectorize well. The last step of a block works on a copy padded with zeros.
 */
#include "codec/block_value.h"

#include "base/float_bits.h"
#include "codec/bf16_encode.h"

#define STEP 16

static const char *const names[] = {"f32", "bf16", "f16", "int8", "int4", "sign", "two_bit", "qsgd", "onebit"};

const char *frugi_value_name(uint32_t code) {
    return code < sizeof names / sizeof *names ? names[code] : NULL;
}

uint32_t frugi_value_bytes(frugi_value code) {
    static const uint8_t bytes[] = {4, 2, 2, 1};
    return code < sizeof bytes ? bytes[code] : 0;
}

uint32_t frugi_value_scale_bytes(frugi_value code) {
    static const uint8_t bytes[] = {0, 0, 1, 2};
    return code < sizeof bytes ? bytes[code] : 0;
}

static float power_of_two(int e) {
    return frugi_bits_f32((uint32_t)(e + 127) << 23);
}

/* Encode sixteen values to out; v becomes the rounding error. */
static void f16_16(float *v, unsigned char *out, float up) {
    uint16_t h[STEP], top = up < 0x1p113f ? 0x7800 : 0x77ff; /* 2^15, but 2^15 * 2^113 is no float */
    float down = 1.0f / up;                                  /* exact: a power of two */
    for (int j = 0; j < STEP; j++) {
        uint16_t q = frugi_f32_f16(v[j] * down);
        h[j] = (q & 0x7fff) > top ? (uint16_t)((q & 0x8000) | top) : q;
        v[j] -= frugi_f16_f32(h[j]) * up;
    }
    memcpy(out, h, sizeof h);
}

static void int8_16(float *v, unsigned char *out, float scale) {
    float x[STEP], divisor = scale > 0 ? scale : 1.0f;
    signed char q[STEP];
    memcpy(x, v, sizeof x);
    for (int j = 0; j < STEP; j++) {
        /* Division, not multiplication by the inverse: a quotient below one half must not round up to it. */
        float n = (x[j] / divisor + FRUGI_ROUND) - FRUGI_ROUND;
        n = n > 127.0f ? 127.0f : n < -127.0f ? -127.0f : n;
        q[j] = (signed char)n;
        x[j] -= n * scale;
    }
    memcpy(out, q, sizeof q);
    memcpy(v, x, sizeof x);
}

static void encode_steps(void step(float *, unsigned char *, float), float *v, uint32_t k, unsigned char *out,
                         uint32_t bytes, float scale) {
    uint32_t j = 0;
    for (; j + STEP <= k; j += STEP)
        step(v + j, out + (size_t)bytes * j, scale);
    if (j < k) {
        float rest[STEP] = {0};
        unsigned char tail[2 * STEP];
        memcpy(rest, v + j, (k - j) * sizeof *v);
        step(rest, tail, scale);
        memcpy(v + j, rest, (k - j) * sizeof *v);
        memcpy(out + (size_t)bytes * j, tail, (size_t)bytes * (k - j));
    }
}

/* The power of two for which the largest value of the block uses the range of f16 best. */
static float f16_scale(const float *v, uint32_t k, unsigned char *scale) {
    int e = (int)(frugi_largest_magnitude(v, k) >> 23) - 127 - FRUGI_F16_MAX_EXPONENT;
    e = e < FRUGI_F16_MIN_EXPONENT ? FRUGI_F16_MIN_EXPONENT : e;
    *scale = (unsigned char)e;
    return power_of_two(e);
}

static float int8_scale(const float *v, uint32_t k, unsigned char *scale) {
    uint16_t h = frugi_f32_bf16_up(frugi_bits_f32(frugi_largest_magnitude(v, k)) / 127.0f);
    h = h < FRUGI_INT8_MAX_SCALE ? h : FRUGI_INT8_MAX_SCALE;
    frugi_put16(scale, h);
    return frugi_bf16_f32(h);
}

void frugi_value_encode(frugi_value code, float *v, uint32_t k, unsigned char *scale, unsigned char *out) {
    switch (code) {
    case FRUGI_VALUE_F32:
        memcpy(out, v, k * sizeof *v);
        memset(v, 0, k * sizeof *v);
        break;
    case FRUGI_VALUE_BF16: frugi_encode_bf16_ref(v, k, out); break;
    case FRUGI_VALUE_F16: encode_steps(f16_16, v, k, out, 2, f16_scale(v, k, scale)); break;
    case FRUGI_VALUE_INT8: encode_steps(int8_16, v, k, out, 1, int8_scale(v, k, scale)); break;
    default: break; /* not in sections by blocks */
    }
}

/* Decode sixteen values at a time, in local arrays. */
static void decode_bf16(const unsigned char *in, uint32_t k, float *v) {
    uint32_t j = 0;
    for (; j + STEP <= k; j += STEP) {
        uint16_t h[STEP];
        memcpy(h, in + 2 * j, sizeof h);
        for (int i = 0; i < STEP; i++)
            v[j + (uint32_t)i] = frugi_bf16_f32(h[i]);
    }
    for (; j < k; j++)
        v[j] = frugi_bf16_f32(frugi_get16(in + 2 * j));
}

void frugi_value_decode(frugi_value code, const unsigned char *scale, const unsigned char *in, uint32_t k, float *v) {
    switch (code) {
    case FRUGI_VALUE_F32: memcpy(v, in, k * sizeof *v); break;
    case FRUGI_VALUE_BF16: decode_bf16(in, k, v); break;
    case FRUGI_VALUE_F16: {
        float up = power_of_two((signed char)*scale);
        for (uint32_t j = 0; j < k; j++)
            v[j] = frugi_f16_f32(frugi_get16(in + 2 * j)) * up;
        break;
    }
    case FRUGI_VALUE_INT8: {
        float s = frugi_bf16_f32(frugi_get16(scale));
        for (uint32_t j = 0; j < k; j++)
            v[j] = (float)(signed char)in[j] * s;
        break;
    }
    default: break;
    }
}

/* The largest of n masked 16-bit numbers; in 16-bit arithmetic, so that a vector holds eight. */
static uint16_t largest_masked(const unsigned char *in, uint64_t n, uint16_t mask) {
    uint16_t most = 0;
    for (uint64_t j = 0; j < n; j++) {
        uint16_t h = frugi_get16(in + 2 * j) & mask;
        most = h > most ? h : most;
    }
    return most;
}

static uint32_t largest_magnitude(const unsigned char *in, uint64_t n) {
    uint32_t most = 0;
    for (uint64_t j = 0; j < n; j++) {
        uint32_t m = frugi_get32(in + 4 * j) & FRUGI_ABS_MASK;
        most = m > most ? m : most;
    }
    return most;
}

int frugi_value_check(frugi_value code, const unsigned char *scales, uint64_t blocks, const unsigned char *values,
                      uint64_t entries) {
    int bad = 0;
    switch (code) {
    case FRUGI_VALUE_F32: return largest_magnitude(values, entries) < FRUGI_INF_BITS;
    case FRUGI_VALUE_BF16: return largest_masked(values, entries, 0x7fff) < 0x7f80u;
    case FRUGI_VALUE_F16:
        for (uint64_t b = 0; b < blocks; b++)
            bad |= (signed char)scales[b] < FRUGI_F16_MIN_EXPONENT ||
                   (signed char)scales[b] > 127 - FRUGI_F16_MAX_EXPONENT;
        return !bad && largest_masked(values, entries, 0x7c00) < 0x7c00u;
    case FRUGI_VALUE_INT8:
        return largest_masked(scales, blocks, 0xffff) <= FRUGI_INT8_MAX_SCALE; /* nonnegative, and no value overflows */
    default: break;
    }
    return 0;
}

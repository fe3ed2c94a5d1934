/* value.c - encode and decode the values of a block. Bytes on the wire are little-endian. */
#include "codec/value.h"

#include "common/bits.h"

#define F16_TOP   14          /* the largest value of a block gets this exponent: rounding up still fits */
#define F16_LEAST (-114)      /* smallest shared power: 2^114 is still a float */
#define ROUND     12582912.0f /* 1.5 * 2^23: adding and taking it away rounds to the nearest even whole number */

static const char *const names[] = {"f32", "bf16", "f16", "int8"};

const char *frugi_value_name(uint32_t code) {
    return code < sizeof names / sizeof *names ? names[code] : NULL;
}

uint32_t frugi_value_bytes(frugi_value code) {
    static const uint8_t bytes[] = {4, 2, 2, 1};
    return bytes[code];
}

uint32_t frugi_value_scale_bytes(frugi_value code) {
    static const uint8_t bytes[] = {0, 0, 1, 2};
    return bytes[code];
}

static float power_of_two(int e) {
    return frugi_bits_f32((uint32_t)(e + 127) << 23);
}

static float largest_of(const float *v, uint32_t k) {
    uint32_t most = 0;
    for (uint32_t j = 0; j < k; j++) {
        uint32_t m = frugi_magnitude(v[j]);
        most = m > most ? m : most;
    }
    return frugi_bits_f32(most);
}

static void encode_bf16(float *v, uint32_t k, unsigned char *out) {
    for (uint32_t j = 0; j < k; j++) {
        uint16_t h = frugi_f32_bf16(v[j]);
        frugi_put16(out + 2 * j, h);
        v[j] -= frugi_bf16_f32(h);
    }
}

static void encode_f16(float *v, uint32_t k, unsigned char *scale, unsigned char *out) {
    int e = (int)(frugi_f32_bits(largest_of(v, k)) >> 23) - 127 - F16_TOP;
    e = e < F16_LEAST ? F16_LEAST : e;
    *scale = (unsigned char)e;
    float down = power_of_two(-e), up = power_of_two(e);
    for (uint32_t j = 0; j < k; j++) {
        uint16_t h = frugi_f32_f16(v[j] * down);
        frugi_put16(out + 2 * j, h);
        v[j] -= frugi_f16_f32(h) * up;
    }
}

static void encode_int8(float *v, uint32_t k, unsigned char *scale, unsigned char *out) {
    uint16_t h = frugi_f32_bf16_up(largest_of(v, k) / 127.0f);
    float s = frugi_bf16_f32(h), divisor = h ? s : 1.0f;
    frugi_put16(scale, h);
    for (uint32_t j = 0; j < k; j++) {
        /* Dividing, not multiplying by an inverse: a quotient below one half must stay below it. */
        int q = (int)((v[j] / divisor + ROUND) - ROUND);
        q = q > 127 ? 127 : q < -127 ? -127 : q;
        out[j] = (unsigned char)q;
        v[j] -= (float)q * s;
    }
}

void frugi_value_encode(frugi_value code, float *v, uint32_t k, unsigned char *scale, unsigned char *out) {
    switch (code) {
    case FRUGI_VALUE_F32:
        memcpy(out, v, k * sizeof *v);
        memset(v, 0, k * sizeof *v);
        break;
    case FRUGI_VALUE_BF16: encode_bf16(v, k, out); break;
    case FRUGI_VALUE_F16: encode_f16(v, k, scale, out); break;
    case FRUGI_VALUE_INT8: encode_int8(v, k, scale, out); break;
    }
}

void frugi_value_decode(frugi_value code, const unsigned char *scale, const unsigned char *in, uint32_t k, float *v) {
    switch (code) {
    case FRUGI_VALUE_F32: memcpy(v, in, k * sizeof *v); break;
    case FRUGI_VALUE_BF16:
        for (uint32_t j = 0; j < k; j++)
            v[j] = frugi_bf16_f32(frugi_get16(in + 2 * j));
        break;
    case FRUGI_VALUE_F16: {
        int e = (signed char)*scale;
        float up = power_of_two(e < F16_LEAST ? F16_LEAST : e);
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
    }
}

int frugi_value_check(frugi_value code, const unsigned char *scale, const unsigned char *in, uint64_t k) {
    uint32_t bad = 0;
    switch (code) {
    case FRUGI_VALUE_F32:
        for (uint64_t j = 0; j < k; j++)
            bad |= (frugi_get32(in + 4 * j) & FRUGI_ABS_MASK) >= FRUGI_INF_BITS;
        break;
    case FRUGI_VALUE_BF16:
        for (uint64_t j = 0; j < k; j++)
            bad |= (frugi_get16(in + 2 * j) & 0x7fffu) >= 0x7f80u;
        break;
    case FRUGI_VALUE_F16:
        bad |= (signed char)*scale < F16_LEAST || (signed char)*scale > 127 - F16_TOP;
        for (uint64_t j = 0; j < k; j++)
            bad |= (frugi_get16(in + 2 * j) & 0x7c00u) == 0x7c00u;
        break;
    case FRUGI_VALUE_INT8: bad |= frugi_get16(scale) >= 0x7f80u; break;
    }
    return !bad;
}

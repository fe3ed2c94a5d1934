/*
 * unit_value_code.c - quantize values to fields, and back.
 *
 * A code is two functions of four values: value to field, and field to value. The loops around them are shared: values
 * are converted to fields of one byte, a few hundred at a time so that they stay in the L1 cache, and then packed. The
 * encoder computes the rounding error with the function of the decoder, so the two cannot disagree.
 */
#include "codec/unit_value_code.h"

#include "codec/unit_value_lanes.h"
#include "codec/bit_pack.h"

#define CHUNK 512u
#define STEP  16u
#define WEYL  0x9e3779b9u /* 2^32 over the golden ratio */
#define ROUND 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, ties to even */

typedef four_u32 quantize_fn(const frugi_value_group_scale *s, four_f32 x, four_u32 random);
typedef four_f32 dequantize_fn(const frugi_value_group_scale *s, four_u32 field);

static inline four_f32 apply_sign(four_u32 magnitude, four_u32 field) {
    return (four_f32)(magnitude | field << 31);
}

static inline four_u32 select_float(four_u32 mask, float yes, float no) {
    return (mask & frugi_f32_bits(yes)) | (~mask & frugi_f32_bits(no));
}

/*
 * Division, not multiplication by the inverse: a quotient below one half must not round up to it. No quotient reaches
 * 7.5: the scale is at least a seventh of the largest magnitude, or less by rounding only.
 */
static inline four_u32 quantize_int4(const frugi_value_group_scale *s, four_f32 x, four_u32 random) {
    four_f32 n = (x / (s->a > 0 ? s->a : 1.0f) + ROUND) - ROUND;
    (void)random;
    return (four_u32) __builtin_convertvector(n, four_s32) & 15u;
}

static inline four_f32 dequantize_int4(const frugi_value_group_scale *s, four_u32 field) {
    return __builtin_convertvector((four_s32)((field ^ 8u) - 8u), four_f32) * s->a;
}

static inline four_u32 quantize_sign(const frugi_value_group_scale *s, four_f32 x, four_u32 random) {
    (void)s;
    (void)random;
    return (four_u32)x >> 31;
}

static inline four_f32 dequantize_sign(const frugi_value_group_scale *s, four_u32 field) {
    const four_u32 zero = {0};
    return apply_sign(zero + frugi_f32_bits(s->a), field);
}

static inline four_u32 quantize_two_bit(const frugi_value_group_scale *s, four_f32 x, four_u32 random) {
    four_u32 u = (four_u32)x;
    (void)random;
    return u >> 31 | ((four_u32)((four_f32)(u & FRUGI_ABS_MASK) >= s->least) & 2u);
}

static inline four_f32 dequantize_two_bit(const frugi_value_group_scale *s, four_u32 field) {
    return apply_sign(select_float(-(field >> 1), s->b, s->a), field);
}

/* The level with 24 fractional bits, plus a random fraction; the fraction is then truncated. */
static inline four_u32 quantize_qsgd(const frugi_value_group_scale *s, four_f32 x, four_u32 random) {
    four_u32 u = (four_u32)x;
    four_f32 places = (four_f32)(u & FRUGI_ABS_MASK) * s->up * s->inverse;
    four_u32 level = ((four_u32) __builtin_convertvector(places, four_s32) + (random >> 8)) >> 24;
    return level << 1 | u >> 31;
}

static inline four_f32 dequantize_qsgd(const frugi_value_group_scale *s, four_u32 field) {
    four_f32 level = __builtin_convertvector((four_s32)(field >> 1), four_f32);
    return apply_sign((four_u32)(level / s->b * s->a), field);
}

static inline four_u32 quantize_onebit(const frugi_value_group_scale *s, four_f32 x, four_u32 random) {
    (void)s;
    (void)random;
    return (four_u32)(x < 0.0f) & 1u;
}

static inline four_f32 dequantize_onebit(const frugi_value_group_scale *s, four_u32 field) {
    return (four_f32)select_float(-field, s->b, s->a);
}

/* Encode sixteen values; random: the random number of the first. */
static ALWAYS_INLINE void encode_step(quantize_fn quantize, dequantize_fn dequantize, const frugi_value_group_scale *s,
                                      float *v, uint32_t random, uint8_t *field) {
    four_u32 q[4], d = {random, random + WEYL, random + 2 * WEYL, random + 3 * WEYL};
    for (int j = 0; j < 4; j++, d += 4 * WEYL) {
        four_f32 x = load_four(v + 4 * j);
        q[j] = quantize(s, x, d);
        store_four(v + 4 * j, x - dequantize(s, q[j]));
    }
    narrow_sixteen(q, field);
}

/* Encode at most CHUNK values; the fields after the last are zero. */
static ALWAYS_INLINE void encode_chunk(quantize_fn quantize, dequantize_fn dequantize,
                                       const frugi_value_group_scale *scale, float *v, uint32_t n, uint32_t random,
                                       uint8_t *field) {
    const frugi_value_group_scale s = *scale; /* a local copy, which stores cannot alias */
    uint32_t i = 0;
    for (; i + STEP <= n; i += STEP)
        encode_step(quantize, dequantize, &s, v + i, random + i * WEYL, field + i);
    if (i < n) {
        float rest[STEP] = {0};
        memcpy(rest, v + i, (n - i) * sizeof *v);
        encode_step(quantize, dequantize, &s, rest, random + i * WEYL, field + i);
        memcpy(v + i, rest, (n - i) * sizeof *v);
        memset(field + n, 0, i + STEP - n);
    }
}

static ALWAYS_INLINE void decode_chunk(dequantize_fn dequantize, const frugi_value_group_scale *scale,
                                       const uint8_t *field, uint32_t n, float *v) {
    const frugi_value_group_scale s = *scale;
    four_u32 q[4];
    uint32_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        widen_sixteen(field + i, q);
        for (int j = 0; j < 4; j++)
            store_four(v + i + 4 * j, dequantize(&s, q[j]));
    }
    if (i < n) {
        float rest[STEP];
        widen_sixteen(field + i, q);
        for (int j = 0; j < 4; j++)
            store_four(rest + 4 * j, dequantize(&s, q[j]));
        memcpy(v + i, rest, (n - i) * sizeof *v);
    }
}

void frugi_value_group_quantize(const frugi_value_group_scale *s, float *v, uint64_t n, unsigned char *out) {
    uint8_t field[CHUNK];
    uint64_t room = frugi_packed_bytes(n, s->width);
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint32_t k = (uint32_t)(n - i < CHUNK ? n - i : CHUNK), random = s->random + (uint32_t)i * WEYL;
        switch (s->code) {
        case FRUGI_VALUE_INT4: encode_chunk(quantize_int4, dequantize_int4, s, v + i, k, random, field); break;
        case FRUGI_VALUE_SIGN: encode_chunk(quantize_sign, dequantize_sign, s, v + i, k, random, field); break;
        case FRUGI_VALUE_TWO_BIT: encode_chunk(quantize_two_bit, dequantize_two_bit, s, v + i, k, random, field); break;
        case FRUGI_VALUE_QSGD: encode_chunk(quantize_qsgd, dequantize_qsgd, s, v + i, k, random, field); break;
        default: encode_chunk(quantize_onebit, dequantize_onebit, s, v + i, k, random, field); break;
        }
        uint64_t at = frugi_packed_bytes(i, s->width);
        frugi_pack(field, k, s->width, out + at, room - at);
    }
}

void frugi_value_group_dequantize(const frugi_value_group_scale *s, const unsigned char *in, uint64_t room,
                                  uint64_t first, uint64_t n, float *v) {
    uint8_t field[CHUNK + STEP] = {0}; /* the last step may read past the fields */
    while (n) {
        uint32_t skip = (uint32_t)(first % 8), k = n < CHUNK - skip ? (uint32_t)n : CHUNK - skip;
        uint64_t at = frugi_packed_bytes(first - skip, s->width);
        const uint8_t *from = field + skip;
        frugi_unpack(in + at, room - at, skip + k, s->width, field);
        switch (s->code) {
        case FRUGI_VALUE_INT4: decode_chunk(dequantize_int4, s, from, k, v); break;
        case FRUGI_VALUE_SIGN: decode_chunk(dequantize_sign, s, from, k, v); break;
        case FRUGI_VALUE_TWO_BIT: decode_chunk(dequantize_two_bit, s, from, k, v); break;
        case FRUGI_VALUE_QSGD: decode_chunk(dequantize_qsgd, s, from, k, v); break;
        default: decode_chunk(dequantize_onebit, s, from, k, v); break;
        }
        first += k;
        n -= k;
        v += k;
    }
}

/*
 * unit_value_code.c - from values to fields and back.
 *
 * A code is two functions of four values: which field a value gets, and what a field stands for. The loops around
 * them are shared: values to fields of a byte each, a few hundred at a time so that they stay in the first cache,
 * then packed. The encoder subtracts what the decoder's own function gives, so the two cannot disagree.
 */
#include "codec/unit_value_code.h"

#include "codec/unit_value_lanes.h"
#include "codec/bit_pack.h"

#define CHUNK 512u
#define STEP  16u
#define WEYL  0x9e3779b9u /* 2^32 over the golden ratio */
#define ROUND 12582912.0f /* 1.5 * 2^23: adding and taking it away rounds to the nearest even whole number */

typedef four_u32 fields_of(const frugi_group_scale *s, four_f32 x, four_u32 dice);
typedef four_f32 values_of(const frugi_group_scale *s, four_u32 field);

static inline four_f32 signed_by(four_u32 magnitude, four_u32 field) {
    return (four_f32)(magnitude | field << 31);
}

static inline four_u32 either(four_u32 mask, float yes, float no) {
    return (mask & frugi_f32_bits(yes)) | (~mask & frugi_f32_bits(no));
}

/*
 * Dividing, not multiplying by an inverse: a quotient below one half must stay below it. None comes to 7.5: the
 * scale is at least a seventh of the largest magnitude, or so close to it that only rounding is between.
 */
static inline four_u32 int4_fields(const frugi_group_scale *s, four_f32 x, four_u32 dice) {
    four_f32 n = (x / (s->a > 0 ? s->a : 1.0f) + ROUND) - ROUND;
    (void)dice;
    return (four_u32) __builtin_convertvector(n, four_s32) & 15u;
}

static inline four_f32 int4_values(const frugi_group_scale *s, four_u32 field) {
    return __builtin_convertvector((four_s32)((field ^ 8u) - 8u), four_f32) * s->a;
}

static inline four_u32 sign_fields(const frugi_group_scale *s, four_f32 x, four_u32 dice) {
    (void)s;
    (void)dice;
    return (four_u32)x >> 31;
}

static inline four_f32 sign_values(const frugi_group_scale *s, four_u32 field) {
    const four_u32 zero = {0};
    return signed_by(zero + frugi_f32_bits(s->a), field);
}

static inline four_u32 two_bit_fields(const frugi_group_scale *s, four_f32 x, four_u32 dice) {
    four_u32 u = (four_u32)x;
    (void)dice;
    return u >> 31 | ((four_u32)((four_f32)(u & FRUGI_ABS_MASK) >= s->least) & 2u);
}

static inline four_f32 two_bit_values(const frugi_group_scale *s, four_u32 field) {
    return signed_by(either(-(field >> 1), s->b, s->a), field);
}

/* The level with 24 binary places, plus a random number below the point; what is below the point is cut off. */
static inline four_u32 qsgd_fields(const frugi_group_scale *s, four_f32 x, four_u32 dice) {
    four_u32 u = (four_u32)x;
    four_f32 places = (four_f32)(u & FRUGI_ABS_MASK) * s->up * s->inverse;
    four_u32 level = ((four_u32) __builtin_convertvector(places, four_s32) + (dice >> 8)) >> 24;
    return level << 1 | u >> 31;
}

static inline four_f32 qsgd_values(const frugi_group_scale *s, four_u32 field) {
    four_f32 level = __builtin_convertvector((four_s32)(field >> 1), four_f32);
    return signed_by((four_u32)(level / s->b * s->a), field);
}

static inline four_u32 onebit_fields(const frugi_group_scale *s, four_f32 x, four_u32 dice) {
    (void)s;
    (void)dice;
    return (four_u32)(x < 0.0f) & 1u;
}

static inline four_f32 onebit_values(const frugi_group_scale *s, four_u32 field) {
    return (four_f32)either(-field, s->b, s->a);
}

/* Sixteen values; dice: the random number of the first. */
static ALWAYS_INLINE void encode_step(fields_of find, values_of mean, const frugi_group_scale *s, float *v,
                                      uint32_t dice, uint8_t *field) {
    four_u32 q[4], d = {dice, dice + WEYL, dice + 2 * WEYL, dice + 3 * WEYL};
    for (int j = 0; j < 4; j++, d += 4 * WEYL) {
        four_f32 x = load_four(v + 4 * j);
        q[j] = find(s, x, d);
        store_four(v + 4 * j, x - mean(s, q[j]));
    }
    narrow_sixteen(q, field);
}

/* At most CHUNK values; the fields after the last are zero. */
static ALWAYS_INLINE void encode_chunk(fields_of find, values_of mean, const frugi_group_scale *scale, float *v,
                                       uint32_t n, uint32_t dice, uint8_t *field) {
    const frugi_group_scale s = *scale; /* a copy that no store can change */
    uint32_t i = 0;
    for (; i + STEP <= n; i += STEP)
        encode_step(find, mean, &s, v + i, dice + i * WEYL, field + i);
    if (i < n) {
        float rest[STEP] = {0};
        memcpy(rest, v + i, (n - i) * sizeof *v);
        encode_step(find, mean, &s, rest, dice + i * WEYL, field + i);
        memcpy(v + i, rest, (n - i) * sizeof *v);
        memset(field + n, 0, i + STEP - n);
    }
}

static ALWAYS_INLINE void decode_chunk(values_of mean, const frugi_group_scale *scale, const uint8_t *field, uint32_t n,
                                       float *v) {
    const frugi_group_scale s = *scale;
    four_u32 q[4];
    uint32_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        widen_sixteen(field + i, q);
        for (int j = 0; j < 4; j++)
            store_four(v + i + 4 * j, mean(&s, q[j]));
    }
    if (i < n) {
        float rest[STEP];
        widen_sixteen(field + i, q);
        for (int j = 0; j < 4; j++)
            store_four(rest + 4 * j, mean(&s, q[j]));
        memcpy(v + i, rest, (n - i) * sizeof *v);
    }
}

void frugi_group_fields(const frugi_group_scale *s, float *v, uint64_t n, unsigned char *out) {
    uint8_t field[CHUNK];
    uint64_t room = frugi_packed_bytes(n, s->width);
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint32_t k = (uint32_t)(n - i < CHUNK ? n - i : CHUNK), dice = s->dice + (uint32_t)i * WEYL;
        switch (s->code) {
        case FRUGI_VALUE_INT4: encode_chunk(int4_fields, int4_values, s, v + i, k, dice, field); break;
        case FRUGI_VALUE_SIGN: encode_chunk(sign_fields, sign_values, s, v + i, k, dice, field); break;
        case FRUGI_VALUE_TWO_BIT: encode_chunk(two_bit_fields, two_bit_values, s, v + i, k, dice, field); break;
        case FRUGI_VALUE_QSGD: encode_chunk(qsgd_fields, qsgd_values, s, v + i, k, dice, field); break;
        default: encode_chunk(onebit_fields, onebit_values, s, v + i, k, dice, field); break;
        }
        uint64_t at = frugi_packed_bytes(i, s->width);
        frugi_pack(field, k, s->width, out + at, room - at);
    }
}

void frugi_group_values(const frugi_group_scale *s, const unsigned char *in, uint64_t room, uint64_t first, uint64_t n,
                        float *v) {
    uint8_t field[CHUNK + STEP] = {0}; /* a last step may read what no field is */
    while (n) {
        uint32_t skip = (uint32_t)(first % 8), k = n < CHUNK - skip ? (uint32_t)n : CHUNK - skip;
        uint64_t at = frugi_packed_bytes(first - skip, s->width);
        const uint8_t *from = field + skip;
        frugi_unpack(in + at, room - at, skip + k, s->width, field);
        switch (s->code) {
        case FRUGI_VALUE_INT4: decode_chunk(int4_values, s, from, k, v); break;
        case FRUGI_VALUE_SIGN: decode_chunk(sign_values, s, from, k, v); break;
        case FRUGI_VALUE_TWO_BIT: decode_chunk(two_bit_values, s, from, k, v); break;
        case FRUGI_VALUE_QSGD: decode_chunk(qsgd_values, s, from, k, v); break;
        default: decode_chunk(onebit_values, s, from, k, v); break;
        }
        first += k;
        n -= k;
        v += k;
    }
}

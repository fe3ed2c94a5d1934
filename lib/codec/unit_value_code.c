/*
 * unit_value_code.c - fields back to values.
 *
 * Fields are unpacked to a byte each, a few hundred at a time so that they stay in the L1 cache, and then converted.
 * The functions that convert a vector are in unit_value_lanes.h, where the encoder finds them too.
 */
#include "codec/unit_value_code.h"

#include "codec/bit_pack.h"

#define VECTOR 16u
#include "codec/unit_value_lanes.h"

#define CHUNK 512u
#define STEP  16u

typedef uint16_t eight_u16 __attribute__((vector_size(16)));
typedef uint8_t sixteen_u8 __attribute__((vector_size(16)));

static inline void widen_eight(eight_u16 h, lanes_u32 *x) {
    const eight_u16 zero = {0};
    x[0] = (lanes_u32)__builtin_shufflevector(h, zero, 0, 8, 1, 9, 2, 10, 3, 11);
    x[1] = (lanes_u32)__builtin_shufflevector(h, zero, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* Widen sixteen bytes to numbers. */
static inline void widen_sixteen(const uint8_t *in, lanes_u32 *x) {
    const sixteen_u8 zero = {0};
    sixteen_u8 c;
    memcpy(&c, in, sizeof c);
    widen_eight((eight_u16)__builtin_shufflevector(c, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), x);
    widen_eight(
        (eight_u16)__builtin_shufflevector(c, zero, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
        x + 2);
}

static ALWAYS_INLINE void decode_chunk(dequantize_fn dequantize, const frugi_value_group_scale *scale,
                                       const uint8_t *field, uint32_t n, float *v) {
    const frugi_value_group_scale s = *scale;
    lanes_u32 q[4];
    uint32_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        widen_sixteen(field + i, q);
        for (int j = 0; j < 4; j++)
            store_lanes(v + i + 4 * j, dequantize(&s, q[j]));
    }
    if (i < n) {
        float rest[STEP];
        widen_sixteen(field + i, q);
        for (int j = 0; j < 4; j++)
            store_lanes(rest + 4 * j, dequantize(&s, q[j]));
        memcpy(v + i, rest, (n - i) * sizeof *v);
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

/*
 * unit_value.c - encode, decode and check a sequence of values by value groups.
 *
 * All offsets follow from the number of values and the length of a value group, so any range can be encoded or decoded
 * by itself. Checking costs less than decoding: fields can be invalid only for int4, and for qsgd with a number of
 * levels that does not use all values of a field.
 */
#include "codec/unit_value.h"

#include "codec/unit_value_kernel.h"
#include "codec/bit_pack.h"
#include "base/cpu.h"

#define CHUNK      512u
#define VALUES_MAX (1u << 30) /* per call of block_value.h */

const frugi_value_kernel *frugi_value_kernel_chosen(void) {
    switch (frugi_isa_chosen()) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &frugi_value_kernel_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &frugi_value_kernel_avx2;
    case FRUGI_ISA_AVX512: return &frugi_value_kernel_avx512;
#endif
    default: return &frugi_value_kernel_ref;
    }
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static int is_block_code(frugi_value code) {
    return code <= FRUGI_VALUE_INT8;
}

static uint64_t group_length(const frugi_section *s) {
    return s->group && frugi_value_code_scale_bytes(s->value) ? s->group : s->entries;
}

static uint64_t group_count(const frugi_section *s) {
    return s->entries ? (s->entries - 1) / group_length(s) + 1 : 0;
}

static uint64_t value_bytes(const frugi_section *s, uint64_t n) {
    return is_block_code(s->value) ? n * frugi_value_bytes(s->value)
                                   : frugi_packed_bytes(n, frugi_value_code_width(s->value, s->levels));
}

uint64_t frugi_value_group_scale_bytes(const frugi_section *s) {
    return group_count(s) * frugi_value_code_scale_bytes(s->value);
}

uint64_t frugi_value_group_bytes(const frugi_section *s) {
    uint64_t length = group_length(s), whole = s->entries ? s->entries / length : 0;
    return whole * value_bytes(s, length) + value_bytes(s, s->entries - whole * length);
}

/* A range of values in one value group. */
typedef struct group_range {
    uint64_t group, first, n; /* number of the group; first value within it; number of values */
    uint64_t scale, at, room; /* bytes: offset of its scales, offset of its fields, length of its fields */
} group_range;

/* The first part of the values from .. from + n - 1 that lies in one value group. */
static group_range next_range(const frugi_section *s, uint64_t from, uint64_t n) {
    uint64_t length = group_length(s), g = from / length, before = g * length;
    group_range t = {.group = g, .first = from - before, .n = min_u64(n, length - (from - before))};
    t.scale = g * frugi_value_code_scale_bytes(s->value);
    t.at = g * value_bytes(s, length);
    t.room = value_bytes(s, min_u64(length, s->entries - before));
    return t;
}

static void encode_range(const frugi_section *s, const frugi_value_group_options *how, const group_range *t, float *v,
                         unsigned char *scales, unsigned char *values) {
    frugi_value_group_scale scale;
    if (s->value == FRUGI_VALUE_SIGN && !s->group)
        scale = frugi_value_group_scale_read(s, scales + t->scale);
    else
        scale = frugi_value_group_scale_compute(s, how, t->group, v, t->n, scales + t->scale);
    how->kernel->quantize(&scale, v, t->n, !how->error_ignored,
                          values + t->at + frugi_packed_bytes(t->first, scale.width));
}

/* f32 and bf16 have one value group of any length, which may be split anywhere. */
static uint64_t block_code_count(const frugi_section *s, uint64_t n) {
    return frugi_value_scale_bytes(s->value) ? n : min_u64(n, VALUES_MAX);
}

void frugi_value_group_encode(const frugi_section *s, const frugi_value_group_options *how, uint64_t from, uint64_t n,
                              float *v, unsigned char *scales, unsigned char *values) {
    while (n) {
        group_range t = next_range(s, from, n);
        if (is_block_code(s->value)) {
            t.n = block_code_count(s, t.n);
            if (s->value == FRUGI_VALUE_BF16)
                how->kernel->encode_bf16(v, (uint32_t)t.n, values + value_bytes(s, from));
            else
                frugi_value_encode(s->value, v, (uint32_t)t.n, scales + t.scale, values + value_bytes(s, from));
        } else {
            encode_range(s, how, &t, v, scales, values);
        }
        from += t.n;
        n -= t.n;
        v += t.n;
    }
}

void frugi_value_group_decode(const frugi_section *s, const unsigned char *scales, const unsigned char *values,
                              uint64_t from, uint64_t n, float *v) {
    while (n) {
        group_range t = next_range(s, from, n);
        if (is_block_code(s->value)) {
            t.n = min_u64(t.n, VALUES_MAX);
            frugi_value_decode(s->value, scales + t.scale, values + value_bytes(s, from), (uint32_t)t.n, v);
        } else {
            frugi_value_group_scale scale = frugi_value_group_scale_read(s, scales + t.scale);
            frugi_value_group_dequantize(&scale, values + t.at, t.room, t.first, t.n, v);
        }
        from += t.n;
        n -= t.n;
        v += t.n;
    }
}

/* Whether no half byte is -8. Those past the end of a value group are known to be 0. */
static int int4_in_range(const unsigned char *in, uint64_t bytes) {
    const uint64_t eights = 0x8888888888888888u, ones = 0x1111111111111111u;
    uint64_t bad = 0;
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t x = 0;
        if (bytes - i >= 8)
            x = frugi_get64(in + i);
        else
            memcpy(&x, in + i, bytes - i);
        x ^= eights; /* -8 becomes 0, the only half byte that borrows when 1 is subtracted */
        bad |= (x - ones) & ~x & eights;
    }
    return !bad;
}

/* Whether no level of a value group is above `levels`. */
static int levels_in_range(const unsigned char *in, uint64_t room, uint64_t n, uint32_t width, uint32_t levels) {
    uint8_t field[CHUNK], most = 0;
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint32_t k = (uint32_t)min_u64(n - i, CHUNK);
        uint64_t at = frugi_packed_bytes(i, width);
        frugi_unpack(in + at, room - at, k, width, field);
        for (uint32_t j = 0; j < k; j++)
            most = field[j] > most ? field[j] : most;
    }
    return most >> 1 <= levels;
}

static int check_group(const frugi_section *s, uint32_t width, const group_range *t, const unsigned char *scales,
                       const unsigned char *values) {
    uint32_t used = (uint32_t)(t->n % 8 * width % 8), last = values[t->at + t->room - 1];
    if (!frugi_value_group_scale_check(s->value, scales + t->scale) || (used && last >> used))
        return 0;
    if (s->value == FRUGI_VALUE_INT4)
        return int4_in_range(values + t->at, t->room);
    if (s->value == FRUGI_VALUE_QSGD && (s->levels & (s->levels + 1)))
        return levels_in_range(values + t->at, t->room, t->n, width, s->levels);
    return 1;
}

int frugi_value_group_check(const frugi_section *s, const unsigned char *scales, const unsigned char *values) {
    if (is_block_code(s->value))
        return frugi_value_check(s->value, scales, group_count(s), values, s->entries);
    uint32_t width = frugi_value_code_width(s->value, s->levels);
    if (!width || (s->value == FRUGI_VALUE_QSGD && (s->levels < 1 || s->levels > 127)))
        return 0;
    for (uint64_t from = 0; from < s->entries;) {
        group_range t = next_range(s, from, s->entries - from);
        if (!check_group(s, width, &t, scales, values))
            return 0;
        from += t.n;
    }
    return 1;
}

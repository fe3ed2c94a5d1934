/*
 * unit_value.c - a sequence of values group by group: where each group's scales and fields stand, and what may stand
 * there.
 *
 * All places follow from the number of values and the length of a group, so any stretch can be encoded or decoded by
 * itself. Checking costs less than decoding: only int4, and qsgd with a number of levels that its fields exceed,
 * have fields to look at.
 */
#include "codec/unit_value.h"

#include "codec/unit_value_code.h"
#include "codec/bit_pack.h"

#define CHUNK       512u
#define MOST_VALUES (1u << 30) /* that block_value.h is handed at once */

static uint64_t least_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static int by_value_h(frugi_value code) {
    return code <= FRUGI_VALUE_INT8;
}

static uint64_t group_length(const frugi_section *s) {
    return s->group && frugi_group_scales(s->value) ? s->group : s->entries;
}

static uint64_t group_count(const frugi_section *s) {
    return s->entries ? (s->entries - 1) / group_length(s) + 1 : 0;
}

static uint64_t bytes_of(const frugi_section *s, uint64_t n) {
    return by_value_h(s->value) ? n * frugi_value_bytes(s->value)
                                : frugi_packed_bytes(n, frugi_group_width(s->value, s->levels));
}

uint64_t frugi_group_scale_bytes(const frugi_section *s) {
    return group_count(s) * frugi_group_scales(s->value);
}

uint64_t frugi_group_value_bytes(const frugi_section *s) {
    uint64_t length = group_length(s), whole = s->entries ? s->entries / length : 0;
    return whole * bytes_of(s, length) + bytes_of(s, s->entries - whole * length);
}

/* A stretch of one group. */
typedef struct stretch {
    uint64_t group, first, n; /* the group's number; the first value within it; how many */
    uint64_t scale, at, room; /* bytes: where its scales and its fields stand, how many its fields are */
} stretch;

/* The part that lies in one group of values from .. from + n - 1. */
static stretch next_stretch(const frugi_section *s, uint64_t from, uint64_t n) {
    uint64_t length = group_length(s), g = from / length, before = g * length;
    stretch t = {.group = g, .first = from - before, .n = least_of(n, length - (from - before))};
    t.scale = g * frugi_group_scales(s->value);
    t.at = g * bytes_of(s, length);
    t.room = bytes_of(s, least_of(length, s->entries - before));
    return t;
}

static void encode_stretch(const frugi_section *s, const frugi_group_how *how, const stretch *t, float *v,
                           unsigned char *scales, unsigned char *values) {
    frugi_group_scale scale;
    if (s->value == FRUGI_VALUE_SIGN && !s->group)
        scale = frugi_group_scale_read(s, scales + t->scale);
    else
        scale = frugi_group_scale_find(s, how, t->group, v, t->n, scales + t->scale);
    frugi_group_fields(&scale, v, t->n, values + t->at + frugi_packed_bytes(t->first, scale.width));
}

/* f32 and bf16 have one group, however long, and may be cut anywhere. */
static uint64_t value_h_count(const frugi_section *s, uint64_t n) {
    return frugi_value_scale_bytes(s->value) ? n : least_of(n, MOST_VALUES);
}

void frugi_group_encode(const frugi_section *s, const frugi_group_how *how, uint64_t from, uint64_t n, float *v,
                        unsigned char *scales, unsigned char *values) {
    while (n) {
        stretch t = next_stretch(s, from, n);
        if (by_value_h(s->value)) {
            t.n = value_h_count(s, t.n);
            frugi_value_encode(s->value, v, (uint32_t)t.n, scales + t.scale, values + bytes_of(s, from));
        } else {
            encode_stretch(s, how, &t, v, scales, values);
        }
        from += t.n;
        n -= t.n;
        v += t.n;
    }
}

void frugi_group_decode(const frugi_section *s, const unsigned char *scales, const unsigned char *values, uint64_t from,
                        uint64_t n, float *v) {
    while (n) {
        stretch t = next_stretch(s, from, n);
        if (by_value_h(s->value)) {
            t.n = least_of(t.n, MOST_VALUES);
            frugi_value_decode(s->value, scales + t.scale, values + bytes_of(s, from), (uint32_t)t.n, v);
        } else {
            frugi_group_scale scale = frugi_group_scale_read(s, scales + t.scale);
            frugi_group_values(&scale, values + t.at, t.room, t.first, t.n, v);
        }
        from += t.n;
        n -= t.n;
        v += t.n;
    }
}

/* Whether no half byte is -8. Those past a group's end are known to be 0. */
static int int4_in_range(const unsigned char *in, uint64_t bytes) {
    const uint64_t eights = 0x8888888888888888u, ones = 0x1111111111111111u;
    uint64_t bad = 0;
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t x = 0;
        if (bytes - i >= 8)
            x = frugi_get64(in + i);
        else
            memcpy(&x, in + i, bytes - i);
        x ^= eights; /* -8 becomes 0, the only half byte that borrows when 1 is taken from it */
        bad |= (x - ones) & ~x & eights;
    }
    return !bad;
}

/* Whether no level of a group is above `levels`. */
static int levels_in_range(const unsigned char *in, uint64_t room, uint64_t n, uint32_t width, uint32_t levels) {
    uint8_t field[CHUNK], most = 0;
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint32_t k = (uint32_t)least_of(n - i, CHUNK);
        uint64_t at = frugi_packed_bytes(i, width);
        frugi_unpack(in + at, room - at, k, width, field);
        for (uint32_t j = 0; j < k; j++)
            most = field[j] > most ? field[j] : most;
    }
    return most >> 1 <= levels;
}

static int check_group(const frugi_section *s, uint32_t width, const stretch *t, const unsigned char *scales,
                       const unsigned char *values) {
    uint32_t used = (uint32_t)(t->n % 8 * width % 8), last = values[t->at + t->room - 1];
    if (!frugi_group_scale_check(s->value, scales + t->scale) || (used && last >> used))
        return 0;
    if (s->value == FRUGI_VALUE_INT4)
        return int4_in_range(values + t->at, t->room);
    if (s->value == FRUGI_VALUE_QSGD && (s->levels & (s->levels + 1)))
        return levels_in_range(values + t->at, t->room, t->n, width, s->levels);
    return 1;
}

int frugi_group_check(const frugi_section *s, const unsigned char *scales, const unsigned char *values) {
    if (by_value_h(s->value))
        return frugi_value_check(s->value, scales, group_count(s), values, s->entries);
    uint32_t width = frugi_group_width(s->value, s->levels);
    if (!width || (s->value == FRUGI_VALUE_QSGD && (s->levels < 1 || s->levels > 127)))
        return 0;
    for (uint64_t from = 0; from < s->entries;) {
        stretch t = next_stretch(s, from, s->entries - from);
        if (!check_group(s, width, &t, scales, values))
            return 0;
        from += t.n;
    }
    return 1;
}

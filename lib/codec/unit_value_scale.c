/*
 * unit_value_scale.c - what the values of a group share: means, largest magnitudes, norms.
 *
 * Sums run in eight doubles side by side, which is quicker than one and the same on every machine. The last step
 * of a group works on a copy filled up with zeros.
 */
#include "codec/unit_value_code.h"

#include "codec/unit_value_lanes.h"
#include "base/philox.h"

#include <float.h>
#include <math.h>

#define INT4_MOST 0x7e12u /* the largest bf16 of which seven times is a float */

uint32_t frugi_group_width(frugi_value code, uint32_t levels) {
    uint32_t bits = 1;
    switch (code) {
    case FRUGI_VALUE_INT4: return 4;
    case FRUGI_VALUE_SIGN:
    case FRUGI_VALUE_ONEBIT: return 1;
    case FRUGI_VALUE_TWO_BIT: return 2;
    case FRUGI_VALUE_QSGD:
        for (; levels; levels >>= 1)
            bits++;
        return bits;
    default: return 0;
    }
}

uint32_t frugi_group_scales(frugi_value code) {
    switch (code) {
    case FRUGI_VALUE_INT4:
    case FRUGI_VALUE_SIGN: return 2;
    case FRUGI_VALUE_TWO_BIT:
    case FRUGI_VALUE_QSGD: return 4;
    case FRUGI_VALUE_ONEBIT: return 8;
    default: return frugi_value_scale_bytes(code);
    }
}

/* What of four values is to be summed; a zero must give zero. */
typedef four_f32 take(four_f32 x, float least);

static inline four_f32 magnitude(four_f32 x, float least) {
    (void)least;
    return (four_f32)((four_u32)x & FRUGI_ABS_MASK);
}

static inline four_f32 small(four_f32 x, float least) {
    four_f32 a = magnitude(x, 0);
    return (four_f32)((four_u32)a & (four_u32)(a < least));
}

static inline four_f32 large(four_f32 x, float least) {
    four_f32 a = magnitude(x, 0);
    return (four_f32)((four_u32)a & (four_u32)(a >= least));
}

static inline four_f32 negative(four_f32 x, float least) {
    (void)least;
    return (four_f32)((four_u32)x & (four_u32)(x < 0.0f));
}

static inline four_f32 not_negative(four_f32 x, float least) {
    (void)least;
    return (four_f32)((four_u32)x & (four_u32)(x >= 0.0f));
}

static ALWAYS_INLINE void add_four(four_f32 x, int square, two_f64 *sum) {
    two_f64 a = __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1), two_f64);
    two_f64 b = __builtin_convertvector(__builtin_shufflevector(x, x, 2, 3), two_f64);
    sum[0] += square ? a * a : a;
    sum[1] += square ? b * b : b;
}

static ALWAYS_INLINE double sum_of(take what, const float *v, uint64_t n, float least, int square) {
    two_f64 sum[4] = {{0}};
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        add_four(what(load_four(v + i), least), square, sum);
        add_four(what(load_four(v + i + 4), least), square, sum + 2);
    }
    if (i < n) {
        float rest[8] = {0};
        memcpy(rest, v + i, (n - i) * sizeof *v);
        add_four(what(load_four(rest), least), square, sum);
        add_four(what(load_four(rest + 4), least), square, sum + 2);
    }
    double all = 0;
    for (int j = 0; j < 4; j++)
        all = all + sum[j][0] + sum[j][1];
    return all;
}

/* How many values are below a limit, or have a magnitude below it. */
static ALWAYS_INLINE uint64_t count_below(const float *v, uint64_t n, float limit, uint32_t mask) {
    uint64_t all = 0, i = 0;
    while (i + 4 <= n) {
        uint64_t stop = n - i < 1u << 20 ? n : i + (1u << 20); /* before a lane can run over */
        four_u32 count = {0};
        for (; i + 4 <= stop; i += 4)
            count -= (four_u32)((four_f32)((four_u32)load_four(v + i) & mask) < limit);
        all += (uint64_t)count[0] + count[1] + count[2] + count[3];
    }
    for (; i < n; i++)
        all += frugi_bits_f32(frugi_f32_bits(v[i]) & mask) < limit;
    return all;
}

/* A sum over a count as a float; 0 over nothing. */
static float mean(double sum, uint64_t n) {
    double m = n ? sum / (double)n : 0.0;
    return (float)(m > (double)FLT_MAX ? (double)FLT_MAX : m < -(double)FLT_MAX ? -(double)FLT_MAX : m);
}

static uint32_t largest(const float *v, uint64_t n) {
    uint32_t most = 0;
    for (uint64_t i = 0; i < n; i += 1u << 20) {
        uint32_t m = frugi_largest_magnitude(v + i, (uint32_t)(n - i < 1u << 20 ? n - i : 1u << 20));
        most = m > most ? m : most;
    }
    return most;
}

static void find_int4(const float *v, uint64_t n, unsigned char *out) {
    uint16_t h = frugi_f32_bf16_up(frugi_bits_f32(largest(v, n)) / 7.0f);
    frugi_put16(out, h > INT4_MOST ? INT4_MOST : h);
}

static float find_two_bit(const float *v, uint64_t n, unsigned char *out) {
    float least = mean(sum_of(magnitude, v, n, 0, 0), n);
    uint64_t below = count_below(v, n, least, FRUGI_ABS_MASK);
    uint16_t lo = frugi_f32_bf16(mean(sum_of(small, v, n, least, 0), below));
    uint16_t hi = frugi_f32_bf16(mean(sum_of(large, v, n, least, 0), n - below));
    frugi_put16(out, lo);
    frugi_put16(out + 2, below == n ? lo : hi);
    return least;
}

static void find_onebit(const float *v, uint64_t n, unsigned char *out) {
    uint64_t below = count_below(v, n, 0.0f, ~0u);
    frugi_put32(out, frugi_f32_bits(mean(sum_of(not_negative, v, n, 0, 0), n - below)));
    frugi_put32(out + 4, frugi_f32_bits(mean(sum_of(negative, v, n, 0, 0), below)));
}

/* The L2 norm, rounded up so that no magnitude is above it; where that is no float, the largest one serves as well. */
static float l2_norm(const float *v, uint64_t n) {
    double norm = sqrt(sum_of(magnitude, v, n, 0, 1));
    if (norm >= (double)FLT_MAX)
        return FLT_MAX;
    float f = (float)norm;
    return (double)f < norm ? frugi_bits_f32(frugi_f32_bits(f) + 1) : f;
}

/* `inverse` is rounded down, so that a magnitude equal to the norm comes to no more than `levels`. */
static void prepare_qsgd(frugi_group_scale *s) {
    s->up = s->a < 0x1p-64f ? 0x1p64f : 1.0f; /* keeps the inverse of a tiny norm finite */
    float norm = s->a * s->up, top = s->b * 0x1p24f;
    float inverse = norm > 0 ? top / norm : 0.0f;
    if ((double)inverse * (double)norm > (double)top)
        inverse = frugi_bits_f32(frugi_f32_bits(inverse) - 1);
    s->inverse = inverse;
}

frugi_group_scale frugi_group_scale_read(const frugi_section *section, const unsigned char *in) {
    frugi_group_scale s = {.code = section->value, .width = frugi_group_width(section->value, section->levels)};
    switch (s.code) {
    case FRUGI_VALUE_INT4:
    case FRUGI_VALUE_SIGN: s.a = frugi_bf16_f32(frugi_get16(in)); break;
    case FRUGI_VALUE_TWO_BIT:
        s.a = frugi_bf16_f32(frugi_get16(in));
        s.b = frugi_bf16_f32(frugi_get16(in + 2));
        break;
    case FRUGI_VALUE_QSGD:
        s.a = frugi_bits_f32(frugi_get32(in));
        s.b = (float)section->levels;
        break;
    case FRUGI_VALUE_ONEBIT:
        s.a = frugi_bits_f32(frugi_get32(in));
        s.b = frugi_bits_f32(frugi_get32(in + 4));
        break;
    default: break;
    }
    return s;
}

frugi_group_scale frugi_group_scale_find(const frugi_section *section, const frugi_group_how *how, uint64_t group,
                                         const float *v, uint64_t n, unsigned char *out) {
    float least = 0;
    switch (section->value) {
    case FRUGI_VALUE_INT4: find_int4(v, n, out); break;
    case FRUGI_VALUE_SIGN: frugi_put16(out, frugi_f32_bf16(mean(sum_of(magnitude, v, n, 0, 0), n))); break;
    case FRUGI_VALUE_TWO_BIT: least = find_two_bit(v, n, out); break;
    case FRUGI_VALUE_QSGD:
        frugi_put32(out, how->norm == FRUGI_QNORM_MAX ? largest(v, n) : frugi_f32_bits(l2_norm(v, n)));
        break;
    case FRUGI_VALUE_ONEBIT: find_onebit(v, n, out); break;
    default: break;
    }
    frugi_group_scale s = frugi_group_scale_read(section, out);
    s.least = least;
    if (s.code == FRUGI_VALUE_QSGD) {
        s.dice = frugi_random(how->key, 0, group);
        prepare_qsgd(&s);
    }
    return s;
}

int frugi_group_scale_check(frugi_value code, const unsigned char *in) {
    switch (code) {
    case FRUGI_VALUE_INT4: return frugi_get16(in) <= INT4_MOST;
    case FRUGI_VALUE_SIGN: return frugi_get16(in) < 0x7f80u;
    case FRUGI_VALUE_TWO_BIT: return frugi_get16(in + 2) < 0x7f80u && frugi_get16(in) <= frugi_get16(in + 2);
    case FRUGI_VALUE_QSGD: return frugi_get32(in) < FRUGI_INF_BITS;
    case FRUGI_VALUE_ONEBIT: { /* the second is negative, or 0 where no value is */
        uint32_t below = frugi_get32(in + 4);
        return frugi_get32(in) < FRUGI_INF_BITS && (!below || (below > ~FRUGI_ABS_MASK && below < 0xff800000u));
    }
    default: return 0;
    }
}

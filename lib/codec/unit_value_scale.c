/* unit_value_scale.c - scales of value groups: means, largest magnitudes, norms. */
#include "codec/unit_value_kernel.h"

#include "base/float_bits.h"
#include "base/philox.h"

#include <float.h>
#include <math.h>

#define INT4_SCALE_MAX 0x7e12u /* the largest bf16 for which seven times it is finite */

uint32_t frugi_value_code_width(frugi_value code, uint32_t levels) {
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

uint32_t frugi_value_code_scale_bytes(frugi_value code) {
    switch (code) {
    case FRUGI_VALUE_INT4:
    case FRUGI_VALUE_SIGN: return 2;
    case FRUGI_VALUE_TWO_BIT:
    case FRUGI_VALUE_QSGD: return 4;
    case FRUGI_VALUE_ONEBIT: return 8;
    default: return frugi_value_scale_bytes(code);
    }
}

/* sum / n as a float; 0 if n is 0. */
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

static void compute_int4_scale(const float *v, uint64_t n, unsigned char *out) {
    uint16_t h = frugi_f32_bf16_up(frugi_bits_f32(largest(v, n)) / 7.0f);
    frugi_put16(out, h > INT4_SCALE_MAX ? INT4_SCALE_MAX : h);
}

static float compute_two_bit_scale(const frugi_value_kernel *kernel, const float *v, uint64_t n, unsigned char *out) {
    float least = mean(kernel->sum_magnitudes(v, n), n);
    frugi_split_sum sum = kernel->split_by_size(v, n, least);
    uint16_t lo = frugi_f32_bf16(mean(sum.yes, sum.count)), hi = frugi_f32_bf16(mean(sum.no, n - sum.count));
    frugi_put16(out, lo);
    frugi_put16(out + 2, sum.count == n ? lo : hi);
    return least;
}

static void compute_onebit_scale(const frugi_value_kernel *kernel, const float *v, uint64_t n, unsigned char *out) {
    frugi_split_sum sum = kernel->split_by_sign(v, n);
    frugi_put32(out, frugi_f32_bits(mean(sum.no, n - sum.count)));
    frugi_put32(out + 4, frugi_f32_bits(mean(sum.yes, sum.count)));
}

/* The L2 norm, rounded up so that no magnitude is above it; at most the largest float. */
static float l2_norm(const frugi_value_kernel *kernel, const float *v, uint64_t n) {
    double norm = sqrt(kernel->sum_squares(v, n));
    if (norm >= (double)FLT_MAX)
        return FLT_MAX;
    float f = (float)norm;
    return (double)f < norm ? frugi_bits_f32(frugi_f32_bits(f) + 1) : f;
}

/* `inverse` is rounded down, so that a magnitude equal to the norm gives at most `levels`. */
static void prepare_qsgd(frugi_value_group_scale *s) {
    s->up = s->a < 0x1p-64f ? 0x1p64f : 1.0f; /* keeps the inverse of a tiny norm finite */
    float norm = s->a * s->up, top = s->b * 0x1p24f;
    float inverse = norm > 0 ? top / norm : 0.0f;
    if ((double)inverse * (double)norm > (double)top)
        inverse = frugi_bits_f32(frugi_f32_bits(inverse) - 1);
    s->inverse = inverse;
}

frugi_value_group_scale frugi_value_group_scale_read(const frugi_section *section, const unsigned char *in) {
    frugi_value_group_scale s = {.code = section->value,
                                 .width = frugi_value_code_width(section->value, section->levels)};
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

frugi_value_group_scale frugi_value_group_scale_compute(const frugi_section *section,
                                                        const frugi_value_group_options *how, uint64_t group,
                                                        const float *v, uint64_t n, unsigned char *out) {
    const frugi_value_kernel *kernel = how->kernel;
    float least = 0;
    switch (section->value) {
    case FRUGI_VALUE_INT4: compute_int4_scale(v, n, out); break;
    case FRUGI_VALUE_SIGN: frugi_put16(out, frugi_f32_bf16(mean(kernel->sum_magnitudes(v, n), n))); break;
    case FRUGI_VALUE_TWO_BIT: least = compute_two_bit_scale(kernel, v, n, out); break;
    case FRUGI_VALUE_QSGD:
        frugi_put32(out, how->norm == FRUGI_QNORM_MAX ? largest(v, n) : frugi_f32_bits(l2_norm(kernel, v, n)));
        break;
    case FRUGI_VALUE_ONEBIT: compute_onebit_scale(kernel, v, n, out); break;
    default: break;
    }
    frugi_value_group_scale s = frugi_value_group_scale_read(section, out);
    s.least = least;
    if (s.code == FRUGI_VALUE_QSGD) {
        s.random = frugi_random(how->key, 0, group);
        prepare_qsgd(&s);
    }
    return s;
}

int frugi_value_group_scale_check(frugi_value code, const unsigned char *in) {
    switch (code) {
    case FRUGI_VALUE_INT4: return frugi_get16(in) <= INT4_SCALE_MAX;
    case FRUGI_VALUE_SIGN: return frugi_get16(in) < 0x7f80u;
    case FRUGI_VALUE_TWO_BIT: return frugi_get16(in + 2) < 0x7f80u && frugi_get16(in) <= frugi_get16(in + 2);
    case FRUGI_VALUE_QSGD: return frugi_get32(in) < FRUGI_INF_BITS;
    case FRUGI_VALUE_ONEBIT: { /* the second mean is negative, or 0 if no value is negative */
        uint32_t below = frugi_get32(in + 4);
        return frugi_get32(in) < FRUGI_INF_BITS && (!below || (below > ~FRUGI_ABS_MASK && below < 0xff800000u));
    }
    default: return 0;
    }
}

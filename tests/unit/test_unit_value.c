/* test_unit_value.c - value codes of sections by units: sizes, round trips, residuals, random rounding. */
#include "unit/value_samples.h"

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/philox.h"
#include "codec/unit_value_kernel.h"

#include <float.h>
#include <math.h>

static int rounds_to_nearest(frugi_value code) {
    return code <= FRUGI_VALUE_INT4;
}

/* decoded + rest == original: exactly for codes that round to nearest, else to 2^-23 of the larger magnitude. */
static void assert_nothing_lost(const sample *s) {
    for (uint64_t i = 0; i < s->section.entries; i++) {
        double d = (double)s->decoded[i], r = (double)s->rest[i], v = (double)s->original[i];
        double room = 0x1p-23 * fmax(fabs(d), fabs(v));
        int good = rounds_to_nearest(s->section.value) ? s->decoded[i] + s->rest[i] == s->original[i]
                                                       : fabs((d + r) - v) <= room;
        if (!good)
            fail_msg("%s, group %u, value %u of %u: %a + %a is not %a", frugi_value_name(s->section.value),
                     s->section.group, (unsigned)i, (unsigned)s->section.entries, d, r, v);
    }
}

static void all_nine_codes_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"f32", "bf16", "f16", "int8", "int4", "sign", "two_bit", "qsgd", "onebit"};
    for (uint32_t i = 0; i < CODES; i++)
        assert_string_equal(frugi_value_name(i), names[i]);
    assert_null(frugi_value_name(CODES));
}

/* Lengths computed independently: bits per value as the format states them, whole bytes per group. */
static void check_size(frugi_section s, const float *unused) {
    static const uint32_t scale[] = {0, 0, 1, 2, 2, 2, 4, 4, 8}, bits[] = {32, 16, 16, 8, 4, 1, 2, 0, 1};
    uint32_t w = bits[s.value];
    (void)unused;
    if (s.value == FRUGI_VALUE_QSGD)
        w = 1 + (uint32_t)ceil(log2((double)s.levels + 1));
    uint64_t scales = 0, values = 0;
    for (uint64_t i = 0; i < s.entries;) {
        uint64_t n = s.group && s.entries - i > s.group ? s.group : s.entries - i;
        scales += scale[s.value];
        values += (n * w + 7) / 8;
        i += n;
    }
    assert_int_equal(frugi_value_group_scale_bytes(&s), scales);
    assert_int_equal(frugi_value_group_bytes(&s), values);
}

static void sizes_match_the_format(void **state) {
    (void)state;
    for_all_sections(check_size, NULL);
    frugi_section s = make_section(FRUGI_VALUE_QSGD, 512, 127, 1000);
    assert_int_equal(frugi_value_group_bytes(&s), 1000);
    s.levels = 7;
    assert_int_equal(frugi_value_group_bytes(&s), 500);
    s.levels = 3;
    assert_int_equal(frugi_value_group_bytes(&s), 375);
    s.levels = 1;
    assert_int_equal(frugi_value_group_bytes(&s), 250);
}

static void check_round_trip(frugi_section section, const float *v) {
    sample *s = round_trip(section, v);
    assert_nothing_lost(s);
    for (uint64_t i = 0; i < section.entries; i++)
        if (section.value != FRUGI_VALUE_INT8 && section.value != FRUGI_VALUE_INT4 && s->decoded[i] != 0 &&
            signbit(s->decoded[i]) != signbit(s->original[i]))
            fail_msg("%s: %a became %a", frugi_value_name(section.value), (double)v[i], (double)s->decoded[i]);
    free_sample(s);
}

static void values_round_trip_and_nothing_is_lost(void **state) {
    (void)state;
    float *v = bell_array(MOST, 3), *zeros = test_calloc(MOST, sizeof *v);
    for_all_sections(check_round_trip, v);
    for_all_sections(check_round_trip, zeros);
    test_free(v);
    test_free(zeros);
}

/* From denormals to the largest floats, mixed scales, equal values, signed zeros. */
static void nothing_is_lost_at_any_scale(void **state) {
    (void)state;
    enum { N = 100 };
    uint64_t random = 5;
    float v[N];
    for (uint32_t code = 0; code < CODES; code++)
        for (int exponent = -149; exponent <= 128; exponent++)
            for (int kind = 0; kind < 6; kind++) {
                for (int i = 0; i < N; i++) {
                    float x = next_float(&random);
                    int down = kind == 1 ? i % 30 : kind == 2 ? i : 0;
                    double y = kind == 3 ? copysign(1, (double)x) : kind == 4 && i % 3 ? 0.0 * (double)x : (double)x;
                    y = ldexp(y, exponent - down);
                    v[i] = (float)fmax(fmin(y, (double)FLT_MAX), -(double)FLT_MAX);
                    if (kind == 5 && i % 2)
                        v[i] = ldexpf((float)(i % 15 - 7) / 7.0f, exponent < 128 ? exponent : 127);
                }
                sample *s = round_trip(make_section(code, kind % 2 ? 37 : 64, level_choices[kind + 1], N), v);
                assert_nothing_lost(s);
                for (int i = 0; i < N; i++)
                    assert_true(isfinite(s->decoded[i]) && isfinite(s->rest[i]));
                free_sample(s);
            }
}

static void check_ranges(frugi_section section, const float *v) {
    if (section.entries > 600)
        return;
    sample *s = round_trip(section, v);
    for (uint64_t from = 0; from < section.entries; from += 1 + from / 9)
        for (uint64_t n = 0; from + n <= section.entries; n += 1 + n / 3) {
            float *part = malloc(n * sizeof *part + 1);
            assert_non_null(part);
            frugi_value_group_decode(&section, s->scales, s->values, from, n, part);
            assert_same_bits(part, s->decoded + from, n * sizeof *part);
            free(part);
        }
    free_sample(s);
}

static void any_range_decodes_as_in_the_whole(void **state) {
    (void)state;
    float *v = bell_array(MOST, 4);
    for_all_sections(check_ranges, v);
    test_free(v);
}

/* Encode with one kernel and compare everything with the reference. */
static void check_kernel(const frugi_value_kernel *kernel, frugi_section section, const float *v) {
    sample *want = make_sample(section, v), *got = make_sample(section, v);
    want->how.kernel = &frugi_value_kernel_ref;
    got->how.kernel = kernel;
    for (int ignored = 0; ignored < 2; ignored++) {
        set_sign_scale(want, 0.75f);
        set_sign_scale(got, 0.75f);
        memcpy(want->rest, v, section.entries * sizeof *v);
        memcpy(got->rest, v, section.entries * sizeof *v);
        got->how.error_ignored = ignored;
        frugi_value_group_encode(&section, &want->how, 0, section.entries, want->rest, want->scales, want->values);
        frugi_value_group_encode(&section, &got->how, 0, section.entries, got->rest, got->scales, got->values);
        assert_same_bits(got->scales, want->scales, want->scale_bytes);
        assert_same_bits(got->values, want->values, want->value_bytes);
        if (!ignored)
            assert_same_bits(got->rest, want->rest, section.entries * sizeof(float));
    }
    free_sample(want);
    free_sample(got);
}

static void check_kernels(frugi_section section, const float *v) {
    const frugi_value_kernel *kernel[FRUGI_ISA_COUNT] = {&frugi_value_kernel_ref};
#if defined(__aarch64__)
    kernel[FRUGI_ISA_NEON] = &frugi_value_kernel_neon;
#elif defined(__x86_64__)
    kernel[FRUGI_ISA_AVX2] = &frugi_value_kernel_avx2;
    kernel[FRUGI_ISA_AVX512] = &frugi_value_kernel_avx512;
#endif
    for (int isa = 0; isa < FRUGI_ISA_COUNT; isa++)
        if (kernel[isa] && frugi_isa_runs((frugi_isa)isa))
            check_kernel(kernel[isa], section, v);
}

static void variants_give_the_same_bits(void **state) {
    (void)state;
    float *v = bell_array(MOST, 6);
    for (uint32_t i = 0; i < MOST; i += 7)
        v[i] = i % 2 ? 0.0f : -0.0f;
    for_all_sections(check_kernels, v);
    test_free(v);
}

/* Ranges in any order, as threads would encode them; encoding the whole first makes a gap visible. */
static void check_parallel_ranges(frugi_section section, const float *v) {
    uint64_t grain = section.group ? section.group : 4096;
    int whole_only = !section.group && has_scale(section.value) && section.value != FRUGI_VALUE_SIGN;
    if (whole_only || section.entries <= grain)
        return;
    sample *whole = round_trip(section, v), *cut = make_sample(section, v);
    set_sign_scale(cut, 0.75f);
    uint64_t pieces = (section.entries - 1) / grain + 1, per = 1 + pieces / 5;
    for (uint64_t p = (pieces - 1) / per + 1; p-- > 0;) {
        uint64_t from = p * per * grain;
        uint64_t n = section.entries - from < per * grain ? section.entries - from : per * grain;
        frugi_value_group_encode(&section, &cut->how, from, n, cut->rest + from, cut->scales, cut->values);
    }
    assert_same_bits(cut->scales, whole->scales, whole->scale_bytes);
    assert_same_bits(cut->values, whole->values, whole->value_bytes);
    assert_same_bits(cut->rest, whole->rest, section.entries * sizeof(float));
    free_sample(whole);
    free_sample(cut);
}

static void ranges_encode_as_the_whole(void **state) {
    (void)state;
    float *v = bell_array(MOST, 6);
    for_all_sections(check_parallel_ranges, v);
    test_free(v);
}

/* All bytes of all codes, summed up: the same on every machine and with every compiler. */
static uint32_t sum_of_bytes;

static void add_to_sum(frugi_section section, const float *v) {
    sample *s = round_trip(section, v);
    sum_of_bytes = frugi_crc32c(sum_of_bytes, s->scales, s->scale_bytes);
    sum_of_bytes = frugi_crc32c(sum_of_bytes, s->values, s->value_bytes);
    sum_of_bytes = frugi_crc32c(sum_of_bytes, s->rest, section.entries * sizeof(float));
    sum_of_bytes = frugi_crc32c(sum_of_bytes, s->decoded, section.entries * sizeof(float));
    free_sample(s);
}

static void bytes_are_the_same_on_all_machines(void **state) {
    (void)state;
    float *v = bell_array(MOST, 8);
    sum_of_bytes = 0;
    for_all_sections(add_to_sum, v);
    test_free(v);
    assert_int_equal(sum_of_bytes, 0x16ba76feu);
}

static void known_values_give_known_bytes(void **state) {
    (void)state;
    const float v[] = {1.0f, -2.0f, 0.0f, 7.0f, -7.0f, 3.4f, -0.4f, 2.0f, -1.0f};
    sample *s = round_trip(make_section(FRUGI_VALUE_INT4, 16, 0, 9), v);
    assert_int_equal(frugi_get16(s->scales), 0x3f80);
    assert_memory_equal(s->values, ((unsigned char[]){0xe1, 0x70, 0x39, 0x20, 0x0f}), 5);
    free_sample(s);
    s = round_trip(make_section(FRUGI_VALUE_SIGN, 16, 0, 9), v);
    assert_int_equal(frugi_get16(s->scales), frugi_f32_bf16(23.8f / 9));
    assert_memory_equal(s->values, ((unsigned char[]){0x52, 0x01}), 2);
    free_sample(s);
    s = round_trip(make_section(FRUGI_VALUE_TWO_BIT, 16, 0, 9), v); /* large, from 2.64 on: 7, -7, 3.4 */
    assert_int_equal(frugi_get16(s->scales), frugi_f32_bf16(6.4f / 6));
    assert_int_equal(frugi_get16(s->scales + 2), frugi_f32_bf16(17.4f / 3));
    assert_memory_equal(s->values, ((unsigned char[]){0x84, 0x1b, 0x01}), 3);
    free_sample(s);
    s = round_trip(make_section(FRUGI_VALUE_ONEBIT, 16, 0, 9), v);
    assert_true(frugi_bits_f32(frugi_get32(s->scales)) == (float)((10 + (double)3.4f) / 5));
    assert_true(frugi_bits_f32(frugi_get32(s->scales + 4)) == (float)((-10 - (double)0.4f) / 4));
    assert_memory_equal(s->values, ((unsigned char[]){0x52, 0x01}), 2);
    free_sample(s);
    const float w[] = {4.0f, -3.0f, 0.0f, -0.0f, 1.0f, -4.0f, 2.0f, 3.0f, -1.0f}; /* whole levels: nothing to draw */
    s = round_trip(make_section(FRUGI_VALUE_QSGD, 16, 4, 9), w);
    assert_true(frugi_bits_f32(frugi_get32(s->scales)) == 4.0f);
    assert_memory_equal(s->values, ((unsigned char[]){0x78, 0x10, 0x92, 0x64, 0x03}), 5);
    free_sample(s);
}

/* The mean of n values as the header has it. */
static double mean_magnitude(const float *v, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += fabs((double)v[i]);
    return sum / (double)n;
}

static void sign_decodes_to_the_mean_magnitude(void **state) {
    (void)state;
    float *v = bell_array(1000, 9);
    sample *s = round_trip(make_section(FRUGI_VALUE_SIGN, 300, 0, 1000), v);
    for (uint64_t g = 0; g < 4; g++) {
        uint64_t n = g < 3 ? 300 : 100;
        uint16_t mean = frugi_f32_bf16((float)mean_magnitude(v + 300 * g, n));
        for (uint64_t i = 300 * g; i < 300 * g + n; i++)
            assert_true(s->decoded[i] == copysignf(frugi_bf16_f32(mean), v[i]));
    }
    free_sample(s);
    s = round_trip(make_section(FRUGI_VALUE_SIGN, 0, 0, 1000), v); /* the caller's scale is used as it is */
    assert_int_equal(frugi_get16(s->scales), frugi_f32_bf16(0.75f));
    for (int i = 0; i < 1000; i++)
        assert_true(s->decoded[i] == copysignf(0.75f, v[i]));
    free_sample(s);
    test_free(v);
}

static void two_bit_has_a_smaller_error_than_sign(void **state) {
    (void)state;
    float *v = bell_array(4096, 10);
    double off[2] = {0, 0};
    for (uint32_t k = 0; k < 2; k++) {
        sample *s = round_trip(make_section(k ? FRUGI_VALUE_TWO_BIT : FRUGI_VALUE_SIGN, 512, 0, 4096), v);
        for (int i = 0; i < 4096; i++)
            off[k] += (double)s->rest[i] * (double)s->rest[i];
        free_sample(s);
    }
    assert_true(off[1] < 0.5 * off[0]); /* in theory 0.363 / 0.119 for the bell curve: a third */
    test_free(v);
}

/* Each class keeps its mean, so the errors sum to zero up to float rounding, 600 * 2^-24 * 4 at the most. */
static void onebit_errors_sum_to_zero(void **state) {
    (void)state;
    float *v = bell_array(3000, 11);
    sample *s = round_trip(make_section(FRUGI_VALUE_ONEBIT, 600, 0, 3000), v);
    for (int g = 0; g < 5; g++) {
        double left[2] = {0, 0};
        for (int i = 600 * g; i < 600 * g + 600; i++)
            left[v[i] < 0] += (double)s->rest[i];
        assert_true(fabs(left[0]) < 1.5e-4 && fabs(left[1]) < 1.5e-4);
    }
    free_sample(s);
    test_free(v);
}

/*
 * qsgd over 20000 keys: every coordinate's mean is its value within 5 standard errors (one test in 1.7 million would
 * fail by chance; the keys are fixed, so the result never changes), and the mean square error is below the bound.
 */
static void check_unbiased(const float *v, uint32_t d, uint32_t levels, frugi_qnorm norm) {
    enum { KEYS = 20000 };
    double sum[64] = {0}, off = 0, length = 0;
    frugi_section section = make_section(FRUGI_VALUE_QSGD, d, levels, d);
    sample *s = make_sample(section, v);
    s->how.norm = norm;
    for (s->how.key = 1; s->how.key <= KEYS; s->how.key++) {
        memcpy(s->rest, v, d * sizeof *v);
        frugi_value_group_encode(&section, &s->how, 0, d, s->rest, s->scales, s->values);
        frugi_value_group_decode(&section, s->scales, s->values, 0, d, s->decoded);
        for (uint32_t i = 0; i < d; i++) {
            double x = (double)s->decoded[i];
            sum[i] += x;
            off += (x - (double)v[i]) * (x - (double)v[i]);
        }
    }
    double unit = (double)frugi_bits_f32(frugi_get32(s->scales)) / levels;
    for (uint32_t i = 0; i < d; i++) {
        double v_i = fabs((double)v[i]), low = floor(v_i / unit) * unit, mean = sum[i] / KEYS;
        double spread = sqrt((v_i - low) * (low + unit - v_i) / KEYS);
        if (fabs(mean - (double)v[i]) > 5 * spread + 1e-6 * v_i)
            fail_msg("levels %u, value %u: mean %g of %g, standard error %g", levels, i, mean, (double)v[i], spread);
        length += (double)v[i] * (double)v[i];
    }
    double bound = fmin(d / ((double)levels * levels), sqrt((double)d) / levels) * length;
    if (norm == FRUGI_QNORM_L2 && off / KEYS > bound)
        fail_msg("levels %u: mean square error %g above %g", levels, off / KEYS, bound);
    free_sample(s);
}

static void qsgd_is_unbiased_within_its_error_bound(void **state) {
    (void)state;
    float *v = bell_array(17, 12);
    v[3] = 0;
    v[4] = -1e-4f;
    v[5] = 9;
    static const uint32_t levels[] = {1, 3, 4, 127};
    for (size_t l = 0; l < COUNT(levels); l++) {
        check_unbiased(v, 17, levels[l], FRUGI_QNORM_L2);
        check_unbiased(v, 17, levels[l], FRUGI_QNORM_MAX);
    }
    float tiny[8];
    for (int i = 0; i < 8; i++)
        tiny[i] = ldexpf(v[i], -110); /* where the inverse of the norm would overflow */
    check_unbiased(tiny, 8, 7, FRUGI_QNORM_L2);
    test_free(v);
}

static void value_groups_of_qsgd_have_different_random_numbers(void **state) {
    (void)state;
    float v[256];
    for (int i = 0; i < 256; i++)
        v[i] = i % 16 ? 0.3f : 1.0f;
    sample *s = round_trip(make_section(FRUGI_VALUE_QSGD, 128, 1, 256), v);
    assert_memory_not_equal(s->values, s->values + 32, 32);
    unsigned char first[64];
    memcpy(first, s->values, 64);
    s->how.key++;
    memcpy(s->rest, v, sizeof v);
    frugi_value_group_encode(&s->section, &s->how, 0, 256, s->rest, s->scales, s->values);
    assert_memory_not_equal(s->values, first, 64);
    free_sample(s);
}

/* Rotated numbers fill the unit interval evenly: of 1000 draws, 300 are below 0.3, give or take 5. */
static void qsgd_random_numbers_are_spread_along_a_value_group(void **state) {
    (void)state;
    enum { N = 1001 };
    float v[N];
    for (int i = 0; i < N; i++)
        v[i] = i ? 0.3f : 1.0f;
    sample *s = make_sample(make_section(FRUGI_VALUE_QSGD, N, 1, N), v);
    s->how.norm = FRUGI_QNORM_MAX;
    for (s->how.key = 0; s->how.key < 100; s->how.key++) {
        int up = 0;
        memcpy(s->rest, v, sizeof v);
        frugi_value_group_encode(&s->section, &s->how, 0, N, s->rest, s->scales, s->values);
        frugi_value_group_decode(&s->section, s->scales, s->values, 0, N, s->decoded);
        for (int i = 1; i < N; i++)
            up += s->decoded[i] > 0;
        assert_in_range(up, 295, 305);
    }
    free_sample(s);
}

/* A value as large as the norm gets the last level, even if the random number would round it up beyond. */
static void qsgd_never_exceeds_its_last_level(void **state) {
    (void)state;
    uint64_t key = 0, random = 18;
    while (frugi_random(key, 0, 0) < 0xffffff00u - 0x2000u)
        key++;
    for (int round = 0; round < 20000; round++) {
        float v = ldexpf(1 + fabsf(next_float(&random)), round % 250 - 125);
        sample *s = make_sample(make_section(FRUGI_VALUE_QSGD, 1, level_choices[round % 7], 1), &v);
        s->how.key = key;
        frugi_value_group_encode(&s->section, &s->how, 0, 1, s->rest, s->scales, s->values);
        frugi_value_group_decode(&s->section, s->scales, s->values, 0, 1, s->decoded);
        assert_true(s->decoded[0] == v && s->rest[0] == 0);
        free_sample(s);
    }
}

static void qsgd_norms_are_rounded_up(void **state) {
    (void)state;
    float *v = bell_array(4000, 19);
    sample *s = make_sample(make_section(FRUGI_VALUE_QSGD, 40, 7, 4000), v);
    frugi_value_group_encode(&s->section, &s->how, 0, 4000, s->rest, s->scales, s->values);
    for (int g = 0; g < 100; g++) {
        double sum = 0, norm = (double)frugi_bits_f32(frugi_get32(s->scales + 4 * g));
        for (int i = 40 * g; i < 40 * g + 40; i++)
            sum += (double)v[i] * (double)v[i];
        assert_true(norm >= sqrt(sum) * (1 - 1e-12) && norm <= sqrt(sum) * (1 + 0x1p-23 + 1e-12));
    }
    free_sample(s);
    test_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nine_codes_have_names),
        cmocka_unit_test(sizes_match_the_format),
        cmocka_unit_test(values_round_trip_and_nothing_is_lost),
        cmocka_unit_test(nothing_is_lost_at_any_scale),
        cmocka_unit_test(any_range_decodes_as_in_the_whole),
        cmocka_unit_test(variants_give_the_same_bits),
        cmocka_unit_test(ranges_encode_as_the_whole),
        cmocka_unit_test(bytes_are_the_same_on_all_machines),
        cmocka_unit_test(known_values_give_known_bytes),
        cmocka_unit_test(sign_decodes_to_the_mean_magnitude),
        cmocka_unit_test(two_bit_has_a_smaller_error_than_sign),
        cmocka_unit_test(onebit_errors_sum_to_zero),
        cmocka_unit_test(qsgd_is_unbiased_within_its_error_bound),
        cmocka_unit_test(value_groups_of_qsgd_have_different_random_numbers),
        cmocka_unit_test(qsgd_random_numbers_are_spread_along_a_value_group),
        cmocka_unit_test(qsgd_never_exceeds_its_last_level),
        cmocka_unit_test(qsgd_norms_are_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_unit_value_bad.c - bytes that no encoder of unit_value.h writes are rejected, wherever they are. */
#include "unit/value_samples.h"

/* Change valid bytes, and return the result of the check. */
static int passes_with(sample *s, unsigned char *at, uint32_t bytes, uint32_t value) {
    unsigned char kept[4];
    memcpy(kept, at, bytes);
    memcpy(at, &value, bytes);
    int good = frugi_value_group_check(&s->section, s->scales, s->values);
    memcpy(at, kept, bytes);
    assert_true(frugi_value_group_check(&s->section, s->scales, s->values));
    return good;
}

static void invalid_scales_are_rejected(void **state) {
    (void)state;
    float *v = bell_array(1000, 13);
    for (uint32_t code = 0; code < CODES; code++) {
        sample *s = round_trip(make_section(code, 250, 7, 1000), v);
        for (uint64_t g = 0; g < 4; g++) {
            unsigned char *at = s->scales + g * s->scale_bytes / 4;
            switch (s->section.value) {
            case FRUGI_VALUE_F16: assert_false(passes_with(s, at, 1, 127)); break;
            case FRUGI_VALUE_INT4:
                assert_true(passes_with(s, at, 2, 0x7e12));
                assert_false(passes_with(s, at, 2, 0x7e13)); /* seven times it is no float */ /* fallthrough */
            case FRUGI_VALUE_INT8:
            case FRUGI_VALUE_SIGN:
                assert_false(passes_with(s, at, 2, 0x7f80));
                assert_false(passes_with(s, at, 2, 0x7fc0));
                assert_false(passes_with(s, at, 2, 0x8000));
                assert_false(passes_with(s, at, 2, 0xbf80));
                break;
            case FRUGI_VALUE_TWO_BIT:
                assert_true(passes_with(s, at, 4, 0x3f803f80));
                assert_false(passes_with(s, at, 4, 0x3f803f81)); /* small above large */
                assert_false(passes_with(s, at, 4, 0x7f803f80));
                assert_false(passes_with(s, at, 4, 0xbf803f80));
                assert_false(passes_with(s, at, 4, 0x3f80bf80));
                break;
            case FRUGI_VALUE_QSGD:
                assert_false(passes_with(s, at, 4, 0x7f800000));
                assert_false(passes_with(s, at, 4, 0x7fc00000));
                assert_false(passes_with(s, at, 4, 0x80000000));
                assert_false(passes_with(s, at, 4, 0xbf800000));
                break;
            case FRUGI_VALUE_ONEBIT:
                assert_true(passes_with(s, at, 4, 0) && passes_with(s, at + 4, 4, 0));
                assert_false(passes_with(s, at, 4, 0x7f800000));
                assert_false(passes_with(s, at, 4, 0xbf800000));
                assert_false(passes_with(s, at + 4, 4, 0x3f800000));
                assert_false(passes_with(s, at + 4, 4, 0x80000000));
                assert_false(passes_with(s, at + 4, 4, 0xff800000));
                assert_false(passes_with(s, at + 4, 4, 0xffc00000));
                break;
            default: break;
            }
        }
        free_sample(s);
    }
    test_free(v);
}

static void invalid_values_are_rejected(void **state) {
    (void)state;
    float *v = bell_array(1000, 14);
    static const uint32_t bad32[] = {0x7f800000, 0xff800000, 0x7fc00000}, bad16[] = {0x7f80, 0xff80, 0x7fc0};
    static const uint32_t bad_f16[] = {0x7c00, 0xfc00, 0x7e00};
    for (uint64_t i = 0; i < 1000; i += 111)
        for (int k = 0; k < 3; k++) {
            sample *s = round_trip(make_section(FRUGI_VALUE_F32, 0, 0, 1000), v);
            assert_false(passes_with(s, s->values + 4 * i, 4, bad32[k]));
            free_sample(s);
            s = round_trip(make_section(FRUGI_VALUE_BF16, 0, 0, 1000), v);
            assert_false(passes_with(s, s->values + 2 * i, 2, bad16[k]));
            free_sample(s);
            s = round_trip(make_section(FRUGI_VALUE_F16, 250, 0, 1000), v);
            assert_false(passes_with(s, s->values + 2 * i, 2, bad_f16[k]));
            free_sample(s);
        }
    sample *s = round_trip(make_section(FRUGI_VALUE_INT4, 25, 0, 1000), v);
    for (uint64_t i = 0; i < s->value_bytes; i++) { /* 13 bytes a group, the last half empty */
        uint32_t high = i % 13 == 12 ? 0 : 0x70;
        assert_true(passes_with(s, s->values + i, 1, high | 9));
        assert_false(passes_with(s, s->values + i, 1, high | 8));
        assert_false(passes_with(s, s->values + i, 1, 0x81));
    }
    free_sample(s);
    test_free(v);
}

/* Every field of every group, one level too many. */
static void levels_above_the_maximum_are_rejected(void **state) {
    (void)state;
    enum { N = 90, GROUP = 37 };
    float *v = bell_array(N, 15);
    for (uint32_t levels = 1; levels <= 127; levels++) {
        sample *s = round_trip(make_section(FRUGI_VALUE_QSGD, GROUP, levels, N), v);
        uint32_t width = 1;
        for (; levels >> (width - 1); width++)
            ;
        uint32_t most = (1u << (width - 1)) - 1;
        for (uint32_t i = 0; i < N; i++) {
            uint64_t bit = (uint64_t)i / GROUP * ((GROUP * width + 7) / 8 * 8) + i % GROUP * width;
            unsigned char *kept = malloc(s->value_bytes);
            memcpy(kept, s->values, s->value_bytes);
            for (uint32_t level = levels; level <= most && level <= levels + 1; level++) {
                for (uint32_t b = 1; b < width; b++) {
                    unsigned char *at = s->values + (bit + b) / 8, mask = (unsigned char)(1u << (bit + b) % 8);
                    *at = (unsigned char)((*at & ~mask) | (level >> (b - 1) & 1u ? mask : 0));
                }
                assert_int_equal(frugi_value_group_check(&s->section, s->scales, s->values), level <= levels);
            }
            memcpy(s->values, kept, s->value_bytes);
            free(kept);
        }
        s->section.levels = 0;
        assert_false(frugi_value_group_check(&s->section, s->scales, s->values));
        s->section.levels = 128;
        assert_false(frugi_value_group_check(&s->section, s->scales, s->values));
        free_sample(s);
    }
    test_free(v);
}

static void check_unused_bits(frugi_section section, const float *v) {
    static const uint32_t bits[] = {0, 0, 0, 0, 4, 1, 2, 0, 1};
    uint32_t width = bits[section.value];
    for (uint32_t l = section.value == FRUGI_VALUE_QSGD ? section.levels * 2 + 1 : 0; l; l >>= 1)
        width++;
    if (!width || section.entries > 100)
        return;
    sample *s = round_trip(section, v);
    uint64_t length = section.group ? section.group : section.entries, at = 0;
    for (uint64_t i = 0; i < section.entries; i += length) {
        uint64_t n = section.entries - i < length ? section.entries - i : length;
        at += (n * width + 7) / 8;
        for (uint32_t bit = n * width % 8 ? (uint32_t)(n * width % 8) : 8; bit < 8; bit++)
            assert_false(passes_with(s, s->values + at - 1, 1, s->values[at - 1] | 1u << bit));
    }
    assert_int_equal(at, s->value_bytes);
    free_sample(s);
}

static void unused_bits_are_rejected(void **state) {
    (void)state;
    float *v = bell_array(MOST, 16);
    for_all_sections(check_unused_bits, v);
    test_free(v);
}

static void unknown_codes_are_rejected(void **state) {
    (void)state;
    unsigned char bytes[64] = {0};
    frugi_section s = {.value = (frugi_value)9, .group = 4, .levels = 7, .entries = 4};
    assert_int_equal(frugi_value_group_bytes(&s), 0);
    assert_false(frugi_value_group_check(&s, bytes, bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_scales_are_rejected),
        cmocka_unit_test(invalid_values_are_rejected),
        cmocka_unit_test(levels_above_the_maximum_are_rejected),
        cmocka_unit_test(unused_bits_are_rejected),
        cmocka_unit_test(unknown_codes_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

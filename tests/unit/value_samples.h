/* value_samples.h - helpers of the tests of unit_value.h: sections of every shape, and values encoded by them. */
#ifndef FRUG_TEST_VALUE_SAMPLES_H
#define FRUG_TEST_VALUE_SAMPLES_H

#include "support/assertions.h"

#include "codec/unit_value.h"
#include "base/float_bits.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define CODES    9u
#define MOST     9000u

static const uint32_t groups[] = {1, 3, 8, 13, 16, 64, 512, 4096};
static const uint64_t counts[] = {1, 3, 7, 8, 9, 16, 17, 64, 100, 511, 512, 513, 4097, 8999};
static const uint32_t level_choices[] = {1, 2, 4, 7, 31, 100, 127};

typedef struct sample {
    frugi_section section;
    frugi_value_group_options how;
    uint64_t scale_bytes, value_bytes;
    unsigned char *scales, *values; /* of exactly their lengths, so that a sanitizer detects every access outside */
    float *original, *rest, *decoded;
} sample;

static inline int has_scale(frugi_value code) {
    return code != FRUGI_VALUE_F32 && code != FRUGI_VALUE_BF16;
}

static inline frugi_section make_section(uint32_t code, uint32_t group, uint32_t levels, uint64_t entries) {
    frugi_section s = {.value = (frugi_value)code, .entries = entries};
    s.group = has_scale(s.value) ? group : 0;
    s.levels = code == FRUGI_VALUE_QSGD ? levels : 0;
    return s;
}

static inline sample *make_sample(frugi_section section, const float *v) {
    sample *s = test_calloc(1, sizeof *s);
    size_t bytes = section.entries * sizeof(float);
    s->section = section;
    s->how = (frugi_value_group_options){.kernel = frugi_value_kernel_chosen(),
                                         .norm = section.entries % 2 ? FRUGI_QNORM_MAX : FRUGI_QNORM_L2,
                                         .key = 77};
    s->scale_bytes = frugi_value_group_scale_bytes(&section);
    s->value_bytes = frugi_value_group_bytes(&section);
    s->scales = malloc(s->scale_bytes ? s->scale_bytes : 1);
    s->values = malloc(s->value_bytes ? s->value_bytes : 1);
    s->original = malloc(bytes);
    s->rest = malloc(bytes);
    s->decoded = malloc(bytes);
    assert_true(s->scales && s->values && s->original && s->rest && s->decoded);
    memset(s->scales, 0xa5, s->scale_bytes);
    memset(s->values, 0xa5, s->value_bytes);
    memcpy(s->original, v, bytes);
    memcpy(s->rest, v, bytes);
    return s;
}

static inline void free_sample(sample *s) {
    free(s->scales);
    free(s->values);
    free(s->original);
    free(s->rest);
    free(s->decoded);
    test_free(s);
}

/* With group 0, sign expects its scale to be set by the caller. */
static inline void set_sign_scale(sample *s, float scale) {
    if (s->section.value == FRUGI_VALUE_SIGN && !s->section.group)
        frugi_put16(s->scales, frugi_f32_bf16(scale));
}

static inline sample *round_trip(frugi_section section, const float *v) {
    sample *s = make_sample(section, v);
    set_sign_scale(s, 0.75f);
    frugi_value_group_encode(&s->section, &s->how, 0, section.entries, s->rest, s->scales, s->values);
    if (!frugi_value_group_check(&s->section, s->scales, s->values))
        fail_msg("%s, group %u, %u values: refused", frugi_value_name(section.value), section.group,
                 (unsigned)section.entries);
    frugi_value_group_decode(&s->section, s->scales, s->values, 0, section.entries, s->decoded);
    return s;
}

/* Call f for every code, group and count, and for qsgd with several numbers of levels; 0 is a group too. */
static inline void for_all_sections(void f(frugi_section, const float *), const float *v) {
    for (uint32_t code = 0; code < CODES; code++)
        for (size_t g = 0; g <= COUNT(groups); g++)
            for (size_t c = 0; c < COUNT(counts); c++)
                for (size_t l = 0; l < (code == FRUGI_VALUE_QSGD ? COUNT(level_choices) : 1); l++)
                    f(make_section(code, g < COUNT(groups) ? groups[g] : 0, level_choices[l], counts[c]), v);
}

#endif

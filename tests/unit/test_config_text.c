/*
 * test_config_text.c - the canonical text of any config parses to itself; numbers read and write alike
 * under every locale.
 *
 * Random strings are drawn from the option table itself, so a new option is covered by being there.
 */
#include "config/number.h"
#include "support/config_helpers.h"

#include <locale.h>

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t random_u64(void) {
    return next_random(&random_state);
}

static double random_unit(void) {
    return (double)(random_u64() >> 11) * 0x1p-53;
}

static uint64_t random_from(uint64_t least, uint64_t most) {
    return least + random_u64() % (most - least + 1);
}

static double random_sparsity(void) {
    return random_unit() * 0.999;
}

static void random_schedule(char *text, size_t cap) {
    double a = random_sparsity(), b = a + (0.9999 - a) * random_unit();
    switch (random_u64() % 6) {
    case 0: snprintf(text, cap, "schedule=constant:%.17g", a); break;
    case 1: snprintf(text, cap, "schedule=frugrad:%.17g:%.17g:%.17g", a, b, 1 - random_unit()); break;
    case 2: snprintf(text, cap, "schedule=anneal:%.17g:%.17g", b, a); break;
    case 3: snprintf(text, cap, "schedule=dgc:%.17g:%d:%.17g", a, (int)random_from(1, 100), 1 - random_unit()); break;
    case 4:
        snprintf(text, cap, "schedule=relax:%.17g:%.17g:%.17g:%.17g:%.17g", a, b, 0.5 - 0.4 * random_unit(), a,
                 0.5 - 0.4 * random_unit());
        break;
    default: {
        size_t used = (size_t)snprintf(text, cap, "schedule=piecewise");
        for (int i = 0, points = (int)random_from(2, 8); i < points; i++)
            used += (size_t)snprintf(text + used, cap - used, ":%.17g:%.17g", (i + 0.9 * random_unit()) / points,
                                     random_sparsity());
    }
    }
}

/* Rules, segments and units with numbers of their own. */
static void random_form(const char *name, char *text, size_t cap) {
    unsigned a = (unsigned)random_from(1, 200), b = (unsigned)random_from(a + 1, 256);
    switch (name[0] == 'r' ? random_u64() % 3 : name[0] == 's' ? 3 : random_from(4, 5)) {
    case 0: snprintf(text, cap, "rule=threshold:absolute:%.17g", random_unit() + 1e-9); break;
    case 1: snprintf(text, cap, "rule=hybrid:%u", a); break;
    case 2: snprintf(text, cap, "rule=learned:%u:%u:%.17g", a, b, 1 - random_unit()); break;
    case 3: snprintf(text, cap, "segment=%u:%u", a, b); break;
    case 4: snprintf(text, cap, "unit=run:%u", b); break;
    default: snprintf(text, cap, "unit=tile:%ux%u", a, b);
    }
}

/* One of the words of "a|b|c", counted from 0, around and around. */
static void pick_word(const char *values, uint64_t which, char *word, size_t cap) {
    uint64_t count = 1;
    for (const char *at = values; (at = strchr(at, '|')); at++)
        count++;
    for (which %= count; which; which--)
        values = strchr(values, '|') + 1;
    snprintf(word, cap, "%.*s", (int)strcspn(values, "|"), values);
}

/* option=value with a random value of that option */
static void random_item(char *text, size_t cap) {
    size_t rows = 0;
    while (frug_option_at(rows))
        rows++;
    const frug_option *option = frug_option_at((size_t)(random_u64() % rows));
    char word[64];
    pick_word(option->values, random_u64(), word, sizeof word);
    if (strcmp(option->name, "schedule") == 0)
        random_schedule(text, cap);
    else if (strchr(option->values, ':') && strpbrk(word, ":["))
        random_form(option->name, text, cap);
    else if (strchr(option->values, '|'))
        snprintf(text, cap, "%s=%s", option->name, word);
    else if (strcmp(option->name, "bucket") == 0)
        snprintf(text, cap, "bucket=%llu", (unsigned long long)random_from(1, 8192) * 8);
    else if (strcmp(option->name, "levels") == 0)
        snprintf(text, cap, "levels=%llu", (unsigned long long)random_from(1, 127));
    else if (strstr(option->values, "whole"))
        snprintf(text, cap, "%s=%llu", option->name, (unsigned long long)(random_u64() >> (random_u64() % 64)));
    else
        snprintf(text, cap, "%s=%.17g", option->name, random_unit() * 0.999 + 0.0005);
}

static void assert_text_parses_to_itself(const frug_config *first) {
    frug_config *again = parse(frug_config_text(first));
    frug_config a = *first, b = *again;
    assert_string_equal(a.text, b.text);
    assert_memory_equal(&a.schedule, &b.schedule, sizeof a.schedule);
    assert_true(a.rule == b.rule && a.threshold == b.threshold && a.threshold_at == b.threshold_at);
    assert_true(a.hybrid_most == b.hybrid_most && a.refresh == b.refresh && a.age == b.age && a.rate == b.rate);
    assert_true(a.segment == b.segment && a.group_keep == b.group_keep && a.group_of == b.group_of);
    assert_true(a.unit == b.unit && a.unit_h == b.unit_h && a.unit_w == b.unit_w && a.block == b.block);
    assert_true(a.beta == b.beta && a.momentum == b.momentum && a.theta == b.theta);
    assert_true((a.beta_choice == FRUGI_CHOICE_AUTO) == (b.beta_choice == FRUGI_CHOICE_AUTO));
    assert_true(a.clip == b.clip && a.bucket == b.bucket && a.bucket_auto == b.bucket_auto && a.levels == b.levels);
    assert_true(a.seed == b.seed && a.warmup == b.warmup && a.dense_every == b.dense_every);
    frug_config_destroy(again);
}

/* Random lists of options, seed above: each is accepted, or refused with a sentence; both happen often. */
static void canonical_text_parses_to_itself(void **state) {
    (void)state;
    const frug_preset *preset;
    int accepted = 0, refused = 0;
    for (size_t i = 0; (preset = frug_preset_at(i)); i++) {
        frug_config *config = parse(preset->name);
        assert_text_parses_to_itself(config);
        frug_config_destroy(config);
    }
    for (int round = 0; round < 4000; round++) {
        char text[2048] = "frugrad";
        for (uint64_t items = random_u64() % 8; items; items--) {
            char item[512];
            random_item(item, sizeof item);
            if (strlen(text) + strlen(item) < 1900)
                strcat(strcat(text, ","), item);
        }
        frug_config *config = NULL;
        if (frug_config_create(text, &config) == FRUG_OK) {
            assert_text_parses_to_itself(config);
            accepted++;
        } else if (strstr(frug_last_error(), "position")) {
            fail_msg("'%s': %s", text, frug_last_error()); /* every item by itself is sound */
        } else {
            refused++;
        }
        frug_config_destroy(config);
    }
    assert_true(accepted > 1000 && refused > 500);
}

static void longest_canonical_text_fits(void **state) {
    (void)state;
#define LONG "1.2345678901234567e-300"
    char text[2048];
    size_t used = (size_t)snprintf(
        text, sizeof text,
        "rule=learned:1000000000:1000000000:" LONG ",segment=tensor,block=4096,"
        "unit=tile:1024x1024,select=exact,layers=sensitivity,norm=accordion,"
        "warmup=18446744073709551615,dense_every=18446744073709551615,feedback=merged,hold=auto,beta=" LONG
        ",momentum=" LONG ",clip=" LONG ",index=bitmap,value=two_bit,"
        "bucket=65536,min_size=18446744073709551615,vectors=sparse,"
        "seed=18446744073709551615,schedule=piecewise");
    for (int i = 1; i <= 8; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ":%d.2345678901234567e-300:%d.2345678901234567e-300",
                                 i, i);
    frug_config *config = parse(text);
    assert_true(strlen(frug_config_text(config)) > 900);
    assert_true(strlen(frug_config_text(config)) < FRUGI_CONFIG_TEXT_MAX / 4 * 3);
    assert_non_null(strstr(frug_config_text(config), ",stats=sample"));
    assert_text_parses_to_itself(config);
    frug_config_destroy(config);
#undef LONG
}

/* CTest makes the locale xx_comma; by hand, say LOCPATH=build/dev/tests/locale. */
static void decimal_point_does_not_depend_on_the_locale(void **state) {
    (void)state;
    if (!setlocale(LC_NUMERIC, "xx_comma"))
        skip();
    frug_config *config = parse("density=0.25");
    assert_true(config->schedule.arg[0] == 0.75);
    assert_non_null(strstr(frug_config_text(config), "constant:0.75,"));
    frug_config_destroy(config);
    assert_refused_somehow("density=0,25");
    assert_string_equal(localeconv()->decimal_point, ",");
    setlocale(LC_NUMERIC, "C");
}

static void numbers_that_are_not_finite_are_rejected(void **state) {
    (void)state;
    double value = 7;
    assert_false(frugi_read_double("1e999", 5, &value));
    assert_false(frugi_read_double("-1e999", 6, &value));
    assert_false(frugi_read_double("inf", 3, &value));
    assert_true(value == 7);
}

static void printed_numbers_are_short_and_parse_back(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"}, {0, "0"}, {1, "1"}, {0.9375, "0.9375"}, {1e-7, "1e-07"}, {1.0 - 0.06, "0.94"}};
    char text[FRUGI_NUMBER_TEXT_MAX];
    double back = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        frugi_write_double(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
    for (int i = 0; i < 10000; i++) {
        uint64_t bits = random_u64();
        double value;
        memcpy(&value, &bits, sizeof value);
        if (value - value != 0)
            continue;
        frugi_write_double(value, text);
        assert_true(frugi_read_double(text, strlen(text), &back));
        assert_true(back == value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_text_parses_to_itself),
        cmocka_unit_test(longest_canonical_text_fits),
        cmocka_unit_test(decimal_point_does_not_depend_on_the_locale),
        cmocka_unit_test(numbers_that_are_not_finite_are_rejected),
        cmocka_unit_test(printed_numbers_are_short_and_parse_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_config.c - the config string: what is accepted, what it means, and what is said about the rest.
 *
 * Accepted strings are drawn from the option table itself, so a new option is covered by being there.
 */
#include "common/status.h"
#include "config/config.h"
#include "config/number.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEFAULTS                                                                                                       \
    "block=256,select=hist,schedule=constant:0.9375,feedback=merged,beta=auto,momentum=0.9,mask=auto,residual=int8,"   \
    "index=fixed,value=bf16,min_size=4096,vectors=dense,seed=0,stats=sample"

static frug_config *parse(const char *text) {
    frug_config *config = NULL;
    if (frug_config_create(text, &config) != FRUG_OK)
        fail_msg("'%s' was refused: %s", text, frug_last_error());
    return config;
}

static void assert_same(const char *a, const char *b) {
    frug_config *x = parse(a), *y = parse(b);
    assert_string_equal(frug_config_text(x), frug_config_text(y));
    frug_config_destroy(x);
    frug_config_destroy(y);
}

static void assert_refused(const char *text, const char *why) {
    frug_config *config = (frug_config *)&config;
    assert_int_equal(frug_config_create(text, &config), FRUG_ERR_CONFIG);
    assert_string_equal(frug_last_error(), why);
    assert_ptr_equal(config, &config);
}

static void assert_refused_somehow(const char *text) {
    frug_config *config = NULL;
    if (frug_config_create(text, &config) != FRUG_ERR_CONFIG)
        fail_msg("'%s' was accepted", text);
}

static void empty_string_means_the_defaults(void **state) {
    (void)state;
    frug_config *config = parse("");
    assert_string_equal(frug_config_text(config), DEFAULTS);
    assert_int_equal(config->block, 256);
    assert_int_equal(config->select, FRUGI_SELECT_HIST);
    assert_int_equal(config->schedule.kind, FRUGI_SCHEDULE_CONSTANT);
    assert_true(config->schedule.arg[0] == 0.9375);
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_MERGED);
    assert_true(config->beta == 0.95 && config->beta_auto && config->momentum == 0.9);
    assert_int_equal(config->mask, FRUGI_MASK_AUTO);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_INT8);
    assert_int_equal(config->index, FRUGI_INDEX_AUTO);
    assert_int_equal(config->value, FRUGI_VALUE_BF16);
    assert_int_equal(config->min_size, 4096);
    assert_int_equal(config->vectors_dense, 1);
    assert_int_equal(config->seed, 0);
    assert_int_equal(config->stats, FRUGI_STATS_SAMPLE);
    frug_config_destroy(config);
}

static void words_reach_their_enumerators(void **state) {
    (void)state;
    frug_config *config = parse("block=4096,select=exact,feedback=none,mask=off,residual=f32,index=bitmap,value=int8,"
                                "vectors=sparse,stats=full,min_size=1,seed=18446744073709551615");
    assert_int_equal(config->block, 4096);
    assert_int_equal(config->select, FRUGI_SELECT_EXACT);
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_NONE);
    assert_int_equal(config->mask, FRUGI_MASK_OFF);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_F32);
    assert_int_equal(config->index, FRUGI_INDEX_BITMAP);
    assert_int_equal(config->value, FRUGI_VALUE_INT8);
    assert_int_equal(config->vectors_dense, 0);
    assert_int_equal(config->stats, FRUGI_STATS_FULL);
    assert_int_equal(config->min_size, 1);
    assert_true(config->seed == UINT64_MAX);
    frug_config_destroy(config);

    config = parse("block=64,feedback=dgc,mask=on,residual=bf16,index=local,value=f16");
    assert_int_equal(config->block, 64);
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_DGC);
    assert_int_equal(config->mask, FRUGI_MASK_ON);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_BF16);
    assert_int_equal(config->index, FRUGI_INDEX_LOCAL);
    assert_int_equal(config->value, FRUGI_VALUE_F16);
    frug_config_destroy(config);

    config = parse("feedback=plain,residual=int4,value=f32");
    assert_int_equal(config->feedback, FRUGI_FEEDBACK_PLAIN);
    assert_int_equal(config->residual, FRUGI_RESIDUAL_INT4);
    assert_int_equal(config->value, FRUGI_VALUE_F32);
    frug_config_destroy(config);
}

/* Every word of every row, and every fallback, is accepted and shows up in the canonical text. */
static void every_row_accepts_what_it_advertises(void **state) {
    (void)state;
    const frug_option *option;
    size_t tried = 0;
    for (size_t i = 0; (option = frug_option_at(i)); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s=%s", option->name, option->fallback);
        assert_same(text, "");
        assert_true(strlen(option->help) > 0);
        if (!strchr(option->values, '|') || strchr(option->values, ':'))
            continue;
        char words[128];
        snprintf(words, sizeof words, "%s", option->values);
        for (char *word = strtok(words, "|"); word; word = strtok(NULL, "|"), tried++) {
            snprintf(text, sizeof text, "%s=%s", option->name, word);
            frug_config *config = parse(text);
            assert_non_null(strstr(frug_config_text(config), text));
            frug_config_destroy(config);
        }
    }
    assert_true(tried > 25);
}

static void preset_strings_hold_what_they_name(void **state) {
    (void)state;
    assert_same("frugrad", "");
    assert_same("dense", "schedule=constant:0,feedback=none,value=f32");
    assert_same("frugrad-paper", "schedule=frugrad:0.5:0.94:0.5,select=hist,feedback=merged,residual=f32,value=f32");
    assert_same("dgc", "feedback=dgc,schedule=constant:0.999,select=exact,residual=f32,value=f32,block=4096");
    const frug_preset *preset;
    for (size_t i = 0; (preset = frug_preset_at(i)); i++)
        assert_same(preset->name, preset->text);
}

static void preset_takes_options_after_comma_or_colon(void **state) {
    (void)state;
    assert_same("dgc,value=int8", "dgc:value=int8");
    assert_same("frugrad:density=0.3,block=64", "density=0.3,block=64");
    assert_same("dense:schedule=frugrad:0.1:0.2:0.3", "dense,schedule=frugrad:0.1:0.2:0.3");
}

static void later_options_win(void **state) {
    (void)state;
    assert_same("value=f32,value=f16", "value=f16");
    assert_same("density=0.5,schedule=constant:0.75", "schedule=constant:0.75");
    assert_same("schedule=frugrad,density=0.25", "schedule=constant:0.75");
    assert_same("beta=0.5,beta=auto", "");
    assert_same("dgc,feedback=merged,block=256,schedule=constant:0.9375,select=hist,residual=int8,value=bf16", "");
}

static void auto_beta_follows_the_final_sparsity(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double beta;
    } cases[] = {{"schedule=constant:0.97999", 0.95},
                 {"schedule=constant:0.98", 0.99},
                 {"beta=auto,schedule=constant:0.99", 0.99},
                 {"schedule=frugrad", 0.95},
                 {"schedule=frugrad:0.5:0.99:0.5", 0.99},
                 {"schedule=constant:0.99,beta=0.5", 0.5},
                 {"beta=1", 1},
                 {"beta=0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        frug_config *config = parse(cases[i].text);
        if (config->beta != cases[i].beta)
            fail_msg("%s: beta is %g", cases[i].text, config->beta);
        frug_config_destroy(config);
    }
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t random_u64(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double random_unit(void) {
    return (double)(random_u64() >> 11) * 0x1p-53;
}

/* option=value with a random value of that option */
static void random_item(char *text, size_t cap) {
    size_t rows = 0;
    while (frug_option_at(rows))
        rows++;
    const frug_option *option = frug_option_at((size_t)(random_u64() % rows));
    if (strcmp(option->name, "schedule") == 0) {
        double a = random_unit(), b = a + (1 - a) * random_unit() * 0.999;
        if (random_u64() % 2)
            snprintf(text, cap, "schedule=frugrad:%.17g:%.17g:%.17g", a, b, 1 - random_unit());
        else
            snprintf(text, cap, "schedule=constant:%.17g", a);
    } else if (strchr(option->values, '|')) {
        char words[64], *word = words;
        snprintf(words, sizeof words, "%s", option->values);
        for (uint64_t skip = random_u64() % 5; skip && strchr(word, '|'); skip--)
            word = strchr(word, '|') + 1;
        word[strcspn(word, "|")] = '\0';
        snprintf(text, cap, "%s=%s", option->name, word);
    } else if (strstr(option->values, "whole")) {
        snprintf(text, cap, "%s=%llu", option->name, (unsigned long long)(random_u64() >> (random_u64() % 64)));
    } else {
        snprintf(text, cap, "%s=%.17g", option->name, random_unit() * 0.999 + 0.0005);
    }
}

static void assert_parses_to_itself(const char *text) {
    frug_config *first = parse(text), *again = parse(frug_config_text(first));
    assert_string_equal(frug_config_text(first), frug_config_text(again));
    assert_memory_equal(&first->schedule, &again->schedule, sizeof first->schedule);
    assert_true(first->beta == again->beta && first->beta_auto == again->beta_auto);
    assert_true(first->momentum == again->momentum && first->seed == again->seed);
    frug_config_destroy(first);
    frug_config_destroy(again);
}

static void canonical_text_parses_to_itself(void **state) {
    (void)state;
    const frug_preset *preset;
    for (size_t i = 0; (preset = frug_preset_at(i)); i++)
        assert_parses_to_itself(preset->name);
    for (int round = 0; round < 2000; round++) {
        char text[1600] = "frugrad";
        for (uint64_t items = random_u64() % 8; items; items--) {
            char item[192];
            random_item(item, sizeof item);
            strcat(strcat(text, ","), item); /* at most 7 items */
        }
        assert_parses_to_itself(text);
    }
}

static void longest_canonical_text_fits(void **state) {
    (void)state;
    frug_config *config =
        parse("block=4096,select=exact,schedule=frugrad:1.2345678901234567e-300:2.2345678901234567e-300:"
              "1.1234567890123457e-300,feedback=merged,beta=1.2345678901234567e-300,momentum=1.2345678901234567e-300,"
              "residual=int8,index=bitmap,min_size=18446744073709551615,vectors=sparse,seed=18446744073709551615");
    assert_true(strlen(frug_config_text(config)) < FRUGI_CONFIG_TEXT_MAX - 1);
    assert_non_null(strstr(frug_config_text(config), ",stats=sample"));
    frug_config_destroy(config);
}

static void errors_name_word_position_and_nearest_word(void **state) {
    (void)state;
    assert_refused("frugrad,shedule=constant:0.9",
                   "config: unknown option 'shedule' at position 9; did you mean 'schedule'?");
    assert_refused("select=hsit", "config: unknown value 'hsit' of select at position 8; did you mean 'hist'?");
    assert_refused("value=f32,value=fp16", "config: unknown value 'fp16' of value at position 17; did you mean 'f16'?");
    assert_refused("value=fb16", "config: unknown value 'fb16' of value at position 7; did you mean 'bf16'?");
    assert_refused("block=255", "config: unknown value '255' of block at position 7; did you mean '256'?");
    assert_refused("frugrd", "config: unknown preset 'frugrd' at position 1; did you mean 'frugrad'?");
    assert_refused("schedule=constnat:0.9",
                   "config: unknown value 'constnat' of schedule at position 10; did you mean 'constant'?");
}

static void errors_list_what_is_accepted_when_nothing_is_near(void **state) {
    (void)state;
    assert_refused("zzzzzz",
                   "config: unknown preset 'zzzzzz' at position 1; accepted: frugrad dense frugrad-paper dgc");
    assert_refused("mask=perhaps", "config: unknown value 'perhaps' of mask at position 6; accepted: auto on off");
    assert_refused("dense,momentum=1", "config: bad value '1' of momentum at position 16; accepted: 0 to below 1");
    assert_refused("min_size=-1", "config: bad value '-1' of min_size at position 10; accepted: a whole number");
    assert_refused("schedule=constant:1",
                   "config: bad value 'constant:1' of schedule at position 10; accepted: constant:S with 0 <= S < 1");
}

static void errors_explain_misplaced_items(void **state) {
    (void)state;
    assert_refused("value", "config: option 'value' at position 1 needs a value; accepted: f32|bf16|f16|int8");
    assert_refused("dgc,value=", "config: option 'value' at position 5 needs a value; accepted: f32|bf16|f16|int8");
    assert_refused("value=f32,dgc", "config: preset 'dgc' at position 11 must come first");
    assert_refused("dgc,", "config: option=value expected at position 5");
    assert_refused("value=f32,", "config: option=value expected at position 11");
    assert_refused("dgc:", "config: option=value expected at position 5");
    assert_refused(",dgc", "config: option=value expected at position 1");
    assert_refused("value=f32,,seed=1", "config: option=value expected at position 11");
    assert_refused("dgc, value=f32", "config: blank at position 5; items are separated by ',' alone");
    assert_refused("dgc\n", "config: byte 0x0a at position 4 is not allowed");
    assert_refused("caf\xc3\xa9", "config: byte 0xc3 at position 4 is not allowed");
}

static void numbers_out_of_range_or_form_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"density=0",
                                      "density=-0.5",
                                      "density=1.0001",
                                      "density=nan",
                                      "density=inf",
                                      "density=1e999",
                                      "density=0x1",
                                      "density=0.5x",
                                      "density=+0.5",
                                      "density=.",
                                      "density=1e",
                                      "density=0,5",
                                      "density=1e-300",
                                      "density=0.5:1",
                                      "beta=1.5",
                                      "beta=-1",
                                      "beta=autos",
                                      "beta=e5",
                                      "momentum=1",
                                      "seed=18446744073709551616",
                                      "seed=1.0",
                                      "seed=1e3",
                                      "min_size=0x10",
                                      "schedule=constant",
                                      "schedule=constant:",
                                      "schedule=constant:0.5:0.5",
                                      "schedule=frugrad:",
                                      "schedule=frugrad:0.5",
                                      "schedule=frugrad:0.5:0.9",
                                      "schedule=frugrad:0.9:0.5:0.5",
                                      "schedule=frugrad:0.5:0.9:0",
                                      "schedule=frugrad:0.5:0.9:1.1",
                                      "schedule=frugrad:0.5:1:0.5",
                                      "schedule=frugrad:0.5:0.9:0.5:",
                                      "schedule=frugrad:0.5:0.9:0.5:1",
                                      "schedule=frugrad:::",
                                      "schedule=:"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused_somehow(bad[i]);
    assert_same("density=1.", "density=1");
    assert_same("density=.5", "density=5e-1");
    assert_same("schedule=constant:-0", "schedule=constant:0");
}

static void overlong_text_is_refused(void **state) {
    (void)state;
    char text[1200];
    memset(text, 'a', sizeof text);
    text[1024] = '\0';
    assert_refused_somehow(text); /* one word of the longest length allowed: unknown, but read */
    text[1024] = 'a';
    text[1199] = '\0';
    assert_refused(text, "config: more than 1024 characters");
    assert_int_equal(frug_config_create(NULL, (frug_config **)&text), FRUG_ERR_ARG);
    assert_int_equal(frug_config_create("", NULL), FRUG_ERR_ARG);
}

static void count_warnings(void *ctx, frug_log_level level, const char *message) {
    if (level == FRUG_LOG_WARN && strstr(message, "density"))
        ++*(int *)ctx;
}

static void density_below_one_entry_per_block_is_warned_about(void **state) {
    (void)state;
    int warnings = 0;
    frug_set_log(count_warnings, &warnings);
    frug_config_destroy(parse("density=0.01"));
    frug_config_destroy(parse("dgc"));
    assert_int_equal(warnings, 0);
    frug_config_destroy(parse("density=0.001"));
    frug_set_log(NULL, NULL);
    assert_int_equal(warnings, 1);
}

/* CTest makes the locale xx_comma; by hand, say LOCPATH=build/dev/tests/locale. */
static void decimal_point_does_not_follow_the_locale(void **state) {
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

static void numbers_that_are_not_finite_are_not_read(void **state) {
    (void)state;
    double value = 7;
    assert_false(frugi_read_double("1e999", 5, &value));
    assert_false(frugi_read_double("-1e999", 6, &value));
    assert_false(frugi_read_double("inf", 3, &value));
    assert_true(value == 7);
}

static void written_numbers_are_short_and_read_back(void **state) {
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
        cmocka_unit_test(empty_string_means_the_defaults),
        cmocka_unit_test(words_reach_their_enumerators),
        cmocka_unit_test(every_row_accepts_what_it_advertises),
        cmocka_unit_test(preset_strings_hold_what_they_name),
        cmocka_unit_test(preset_takes_options_after_comma_or_colon),
        cmocka_unit_test(later_options_win),
        cmocka_unit_test(auto_beta_follows_the_final_sparsity),
        cmocka_unit_test(canonical_text_parses_to_itself),
        cmocka_unit_test(longest_canonical_text_fits),
        cmocka_unit_test(errors_name_word_position_and_nearest_word),
        cmocka_unit_test(errors_list_what_is_accepted_when_nothing_is_near),
        cmocka_unit_test(errors_explain_misplaced_items),
        cmocka_unit_test(numbers_out_of_range_or_form_are_refused),
        cmocka_unit_test(overlong_text_is_refused),
        cmocka_unit_test(density_below_one_entry_per_block_is_warned_about),
        cmocka_unit_test(decimal_point_does_not_follow_the_locale),
        cmocka_unit_test(numbers_that_are_not_finite_are_not_read),
        cmocka_unit_test(written_numbers_are_short_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * schedule_option.c - the values of schedule=, and density=, its short form.
 *
 * A schedule is a name and up to three numbers after ':'. Each kind has a row with the numbers it takes
 * when none are given and a check of those that are; what they mean is schedule/schedule.c's affair.
 */
#include "config/option_table.h"
#include "config/number.h"

#include <stdio.h>
#include <string.h>

#define ARGS_MAX 3

typedef struct schedule_form {
    const char *name;
    size_t args;
    int optional; /* the numbers may be left out, all together */
    double fallback[ARGS_MAX];
    size_t last; /* the number that is the sparsity at the end of training */
    int (*valid)(const double *arg);
    const char *rule; /* what valid() asks, in words */
} schedule_form;

static int is_sparsity(double x) {
    return x >= 0 && x < 1;
}

static int constant_valid(const double *arg) {
    return is_sparsity(arg[0]);
}

static int frugrad_valid(const double *arg) {
    return is_sparsity(arg[0]) && is_sparsity(arg[1]) && arg[0] <= arg[1] && arg[2] > 0 && arg[2] <= 1;
}

static const schedule_form forms[] = {
    [FRUGI_SCHEDULE_CONSTANT] =
        {.name = "constant", .args = 1, .valid = constant_valid, .last = 0, .rule = "constant:S with 0 <= S < 1"},
    [FRUGI_SCHEDULE_FRUGRAD] = {.name = "frugrad",
                                .args = 3,
                                .optional = 1,
                                .fallback = {0.5, 0.94, 0.5},
                                .valid = frugrad_valid,
                                .last = 1,
                                .rule = "frugrad or frugrad:S0:SMAX:R with 0 <= S0 <= SMAX < 1, 0 < R <= 1"},
};

static const char *form_name(const void *ctx, size_t i, size_t *len) {
    (void)ctx;
    if (i >= sizeof forms / sizeof forms[0])
        return NULL;
    *len = strlen(forms[i].name);
    return forms[i].name;
}

static int read_args(const schedule_form *form, frugi_word rest, double *arg) {
    for (size_t i = 0; i < form->args; i++) {
        frugi_word word = frugi_word_split(&rest, ':');
        if (!frugi_read_double(word.at, word.len, &arg[i]))
            return 0;
        if (i + 1 == form->args && word.at + word.len != rest.at)
            return 0; /* a separator and perhaps more numbers follow the last one */
    }
    return form->valid(arg);
}

frug_status frugi_parse_schedule(const frugi_option_row *row, frugi_word value, frug_config *config) {
    (void)row;
    frugi_word rest = value, name = frugi_word_split(&rest, ':');
    size_t kind = 0;
    if (!frugi_word_find(name, form_name, NULL, &kind))
        return frugi_word_unknown(name, "value", " of schedule", form_name, NULL);
    const schedule_form *form = &forms[kind];
    frugi_schedule schedule = {.kind = (frugi_schedule_kind)kind, .args = (uint32_t)form->args};
    if (name.len == value.len && form->optional)
        memcpy(schedule.arg, form->fallback, sizeof form->fallback);
    else if (!read_args(form, rest, schedule.arg))
        return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of schedule at position %zu; accepted: %s",
                          frugi_word_shown(value), value.at, value.position, form->rule);
    config->schedule = schedule;
    return FRUG_OK;
}

frug_status frugi_parse_density(const frugi_option_row *row, frugi_word value, frug_config *config) {
    double density = 0;
    if (!frugi_read_double(value.at, value.len, &density) || !is_sparsity(1.0 - density))
        return frugi_option_bad_number(row, value);
    frugi_schedule schedule = {.kind = FRUGI_SCHEDULE_CONSTANT, .args = 1, .arg = {1.0 - density}};
    config->schedule = schedule;
    return FRUG_OK;
}

double frugi_final_sparsity(const frugi_schedule *schedule) {
    return schedule->arg[forms[schedule->kind].last];
}

void frugi_print_schedule(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    const schedule_form *form = &forms[config->schedule.kind];
    size_t used = (size_t)snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", form->name);
    for (size_t i = 0; i < form->args; i++) {
        char number[FRUGI_NUMBER_TEXT_MAX];
        frugi_write_double(config->schedule.arg[i], number);
        used += (size_t)snprintf(text + used, FRUGI_VALUE_TEXT_MAX - used, ":%s", number);
    }
}

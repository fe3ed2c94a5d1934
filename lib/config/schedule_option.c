/*
 * schedule_option.c - the values of schedule=, and density=, its short form.
 *
 * A schedule is a name and some numbers after ':'. Each kind has a row with its default numbers and a check of given
 * ones; schedule/density.c evaluates them.
 */
#include "config/option_table.h"
#include "config/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STAGES_MAX 100

typedef struct schedule_form {
    const char *name;
    uint32_t least, most; /* how many numbers */
    int optional;         /* they may be left out, all together */
    double fallback[5];
    uint32_t last; /* index of the number that is the sparsity at the end of training; UINT32_MAX: the last one */
    int (*valid)(const double *arg, uint32_t args);
    const char *accepted; /* what valid() checks, for error messages */
} schedule_form;

static int is_sparsity(double x) {
    return x >= 0 && x < 1;
}

/* A fraction of training above 0. */
static int is_fraction(double x) {
    return x > 0 && x <= 1;
}

static int constant_valid(const double *arg, uint32_t args) {
    (void)args;
    return is_sparsity(arg[0]);
}

static int frugrad_valid(const double *arg, uint32_t args) {
    (void)args;
    return is_sparsity(arg[0]) && is_sparsity(arg[1]) && arg[0] <= arg[1] && is_fraction(arg[2]);
}

static int anneal_valid(const double *arg, uint32_t args) {
    (void)args;
    return is_sparsity(arg[0]) && is_sparsity(arg[1]) && arg[0] >= arg[1];
}

static int dgc_valid(const double *arg, uint32_t args) {
    (void)args;
    return is_sparsity(arg[0]) && arg[1] >= 1 && arg[1] <= STAGES_MAX && floor(arg[1]) == arg[1] && is_fraction(arg[2]);
}

static int relax_valid(const double *arg, uint32_t args) {
    return frugrad_valid(arg, args) && is_sparsity(arg[3]) && arg[3] <= arg[1] && is_fraction(arg[4]) &&
           arg[2] + arg[4] <= 1;
}

static int piecewise_valid(const double *arg, uint32_t args) {
    for (uint32_t i = 0; i < args; i += 2) {
        if (!(arg[i] >= 0 && arg[i] <= 1) || !is_sparsity(arg[i + 1]) || (i && arg[i] <= arg[i - 2]))
            return 0;
    }
    return args % 2 == 0;
}

static const schedule_form forms[] = {
    [FRUGI_SCHEDULE_CONSTANT] = {"constant", 1, 1, 0, {0}, 0, constant_valid, "constant:S with 0 <= S < 1"},
    [FRUGI_SCHEDULE_FRUGRAD] = {"frugrad",
                                3,
                                3,
                                1,
                                {0.5, 0.94, 0.5},
                                1,
                                frugrad_valid,
                                "frugrad or frugrad:S0:SMAX:R with 0 <= S0 <= SMAX < 1, 0 < R <= 1"},
    [FRUGI_SCHEDULE_ANNEAL] =
        {"anneal", 2, 2, 1, {0.99, 0.9}, 1, anneal_valid, "anneal or anneal:S0:S1 with 1 > S0 >= S1 >= 0"},
    [FRUGI_SCHEDULE_DGC] = {"dgc",
                            3,
                            3,
                            1,
                            {0.999, 5, 0.1},
                            0,
                            dgc_valid,
                            "dgc or dgc:S:E:R with 0 <= S < 1, E whole from 1 to 100, 0 < R <= 1"},
    [FRUGI_SCHEDULE_RELAX] = {"relax",
                              5,
                              5,
                              1,
                              {0.5, 0.94, 0.5, 0.9, 0.1},
                              3,
                              relax_valid,
                              "relax or relax:S0:SMAX:R:SR:TAIL with 0 <= S0 <= SMAX < 1, 0 <= SR <= SMAX, R > 0, "
                              "TAIL > 0, R + TAIL <= 1"},
    [FRUGI_SCHEDULE_PIECEWISE] = {"piecewise",
                                  4,
                                  FRUGI_SCHEDULE_ARGS,
                                  0,
                                  {0},
                                  UINT32_MAX,
                                  piecewise_valid,
                                  "piecewise:T1:S1:T2:S2 and so on, 2 to 8 points, T rising from 0 to 1, 0 <= S < 1"},
};

static const char *form_name(const void *ctx, size_t i, size_t *len) {
    (void)ctx;
    if (i >= sizeof forms / sizeof forms[0])
        return NULL;
    *len = strlen(forms[i].name);
    return forms[i].name;
}

static int read_args(const schedule_form *form, frugi_token rest, frugi_schedule *schedule) {
    for (;;) {
        frugi_token token = frugi_token_split(&rest, ':');
        if (schedule->args == form->most || !frugi_read_double(token.at, token.len, &schedule->arg[schedule->args]))
            return 0;
        schedule->args++;
        if (token.at + token.len == rest.at) /* no separator follows */
            return schedule->args >= form->least && form->valid(schedule->arg, schedule->args);
    }
}

static frug_status fail_value(frugi_token value, const schedule_form *form) {
    return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of schedule at position %zu; accepted: %s",
                      frugi_token_shown(value), value.at, value.position, form->accepted);
}

frug_status frugi_parse_schedule(const frugi_option_row *row, frugi_token value, frug_config *config) {
    (void)row;
    frugi_token rest = value, name = frugi_token_split(&rest, ':');
    size_t kind = 0;
    double number;
    if (!frugi_token_find(name, form_name, NULL, &kind)) {
        if (frugi_read_double(value.at, value.len, &number)) /* probably meant as constant:S */
            return fail_value(value, &forms[FRUGI_SCHEDULE_CONSTANT]);
        return frugi_token_unknown(name, "value", " of schedule", form_name, NULL);
    }
    const schedule_form *form = &forms[kind];
    frugi_schedule schedule = {.kind = (frugi_schedule_kind)kind};
    if (name.len == value.len && form->optional) {
        schedule.args = form->least;
        memcpy(schedule.arg, form->fallback, sizeof form->fallback);
    } else if (!read_args(form, rest, &schedule)) {
        return fail_value(value, form);
    }
    config->schedule = schedule;
    return FRUG_OK;
}

frugi_schedule frugi_schedule_constant(double sparsity) {
    return (frugi_schedule){.kind = FRUGI_SCHEDULE_CONSTANT, .args = 1, .arg = {sparsity}};
}

frug_status frugi_parse_density(const frugi_option_row *row, frugi_token value, frug_config *config) {
    double density = 0;
    if (!frugi_read_double(value.at, value.len, &density) || !is_sparsity(1.0 - density))
        return frugi_option_bad_number(row, value);
    config->schedule = frugi_schedule_constant(1.0 - density);
    return FRUG_OK;
}

double frugi_final_sparsity(const frugi_schedule *schedule) {
    uint32_t last = forms[schedule->kind].last;
    return schedule->arg[last == UINT32_MAX ? schedule->args - 1 : last];
}

void frugi_print_schedule(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    const frugi_schedule *schedule = &config->schedule;
    size_t used = (size_t)snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", forms[schedule->kind].name);
    for (uint32_t i = 0; i < schedule->args; i++) {
        char number[FRUGI_NUMBER_TEXT_MAX];
        frugi_write_double(schedule->arg[i], number);
        used += (size_t)snprintf(text + used, FRUGI_VALUE_TEXT_MAX - used, ":%s", number);
    }
}

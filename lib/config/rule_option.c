/*
 * rule_option.c - the values of rule=, segment= and unit=: words, some with numbers after ':'.
 *
 * Each parser first resets its numbers to their defaults, so that a later option replaces an earlier one completely
 * and equal texts give equal configs.
 */
#include "config/option_table.h"
#include "config/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HYBRID_MAX 4096 /* the longest block */
#define GROUP_MAX  256  /* an index within a group fits a byte */
#define RUN_MAX    65536
#define TILE_MAX   1024
#define STEPS_MAX  1000000000

/* In the order of the enumerations in config.h. */
static const char *const rules[] = {"topk", "threshold", "random", "probabilistic", "hybrid", "learned", NULL};
static const char *const thresholds[] = {"absolute", "percentile", "track", NULL};
static const char *const segments[] = {"block", "tensor", "all", "N:M", NULL};
static const char *const units[] = {"element", "run", "tile", "row", "column", "channel", "head", NULL};

const char *frugi_rule_word(frugi_rule rule) {
    return rules[rule];
}

const char *frugi_unit_word(frugi_unit unit) {
    return units[unit];
}

static const char *choice_of_list(const void *list, size_t i, size_t *len) {
    const char *const *token = list;
    if (!token[i])
        return NULL;
    *len = strlen(token[i]);
    return token[i];
}

/* The number of the token before the first ':'; *rest is what follows it. */
static frug_status parse_choice(frugi_token *rest, const char *of, const char *const *list, size_t *which) {
    frugi_token name = frugi_token_split(rest, ':');
    if (!frugi_token_find(name, choice_of_list, list, which))
        return frugi_token_unknown(name, "value", of, choice_of_list, list);
    return FRUG_OK;
}

static frug_status fail_bad_value(const char *option, frugi_token value, const char *accepted) {
    return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of %s at position %zu; accepted: %s",
                      frugi_token_shown(value), value.at, option, value.position, accepted);
}

static int read_in_range(frugi_token token, uint64_t least, uint64_t most, uint64_t *number) {
    return frugi_read_u64(token.at, token.len, number) && *number >= least && *number <= most;
}

/* ---- rule ---- */

static int read_threshold(frugi_token rest, frug_config *config) {
    frugi_token name = frugi_token_split(&rest, ':');
    size_t which = 0;
    if (!frugi_token_find(name, choice_of_list, thresholds, &which))
        return 0;
    config->threshold = (frugi_threshold)which;
    if (which != FRUGI_THRESHOLD_ABSOLUTE)
        return name.at + name.len == rest.at;
    return frugi_read_double(rest.at, rest.len, &config->threshold_at) && config->threshold_at > 0;
}

static int read_hybrid(frugi_token rest, frug_config *config) {
    uint64_t limit = 0;
    if (!read_in_range(rest, 1, HYBRID_MAX, &limit))
        return 0;
    config->hybrid_most = (uint32_t)limit;
    return 1;
}

static int read_learned(frugi_token rest, frug_config *config) {
    frugi_token refresh = frugi_token_split(&rest, ':'), age = frugi_token_split(&rest, ':');
    return read_in_range(refresh, 1, STEPS_MAX, &config->refresh) && read_in_range(age, 1, STEPS_MAX, &config->age) &&
           frugi_read_double(rest.at, rest.len, &config->rate) && config->rate > 0 && config->rate <= 1;
}

static int read_nothing(frugi_token rest, frug_config *config) {
    (void)rest;
    (void)config;
    return 0;
}

frug_status frugi_parse_rule(const frugi_option_row *row, frugi_token value, frug_config *config) {
    static const struct {
        int (*read)(frugi_token rest, frug_config *config);
        const char *accepted;
    } forms[] = {
        [FRUGI_RULE_TOPK] = {read_nothing, "topk"},
        [FRUGI_RULE_THRESHOLD] = {read_threshold,
                                  "threshold:absolute:T with T > 0, threshold:percentile or threshold:track"},
        [FRUGI_RULE_RANDOM] = {read_nothing, "random"},
        [FRUGI_RULE_PROBABILISTIC] = {read_nothing, "probabilistic"},
        [FRUGI_RULE_HYBRID] = {read_hybrid, "hybrid or hybrid:MOST with MOST from 1 to 4096"},
        [FRUGI_RULE_LEARNED] = {read_learned, "learned or learned:REFRESH:AGE:RATE with REFRESH and AGE from 1 to "
                                              "1000000000 steps, 0 < RATE <= 1"},
    };
    frugi_token rest = value;
    size_t which = 0;
    FRUG_TRY(parse_choice(&rest, " of rule", rules, &which));
    config->rule = (frugi_rule)which;
    config->threshold = FRUGI_THRESHOLD_TRACK;
    config->threshold_at = 0;
    config->hybrid_most = 64;
    config->refresh = 200;
    config->age = 2000;
    config->rate = 0.01;
    int bare = value.len == strlen(rules[which]);
    if (!bare && !forms[which].read(rest, config))
        return fail_bad_value(row->option.name, value, forms[which].accepted);
    return FRUG_OK;
}

void frugi_print_rule(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    char number[FRUGI_NUMBER_TEXT_MAX];
    const char *name = rules[config->rule];
    (void)row;
    if (config->rule == FRUGI_RULE_THRESHOLD && config->threshold == FRUGI_THRESHOLD_ABSOLUTE) {
        frugi_write_double(config->threshold_at, number);
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s:absolute:%s", name, number);
    } else if (config->rule == FRUGI_RULE_THRESHOLD) {
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s:%s", name, thresholds[config->threshold]);
    } else if (config->rule == FRUGI_RULE_HYBRID) {
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s:%" PRIu32, name, config->hybrid_most);
    } else if (config->rule == FRUGI_RULE_LEARNED) {
        frugi_write_double(config->rate, number);
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s:%" PRIu64 ":%" PRIu64 ":%s", name, config->refresh, config->age,
                 number);
    } else {
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", name);
    }
}

/* ---- segment ---- */

static frug_status parse_group(frugi_token value, frug_config *config) {
    frugi_token of = value, keep = frugi_token_split(&of, ':');
    uint64_t n = 0, m = 0;
    if (!read_in_range(keep, 1, UINT32_MAX, &n) || !read_in_range(of, 1, GROUP_MAX, &m))
        return fail_bad_value("segment", value, "N:M with 1 <= N < M <= 256");
    FRUG_FAIL_IF(n >= m, FRUG_ERR_CONFIG,
                 "config: segment=%" PRIu64 ":%" PRIu64 " at position %zu keeps %" PRIu64 " of every %" PRIu64
                 "; N must be below M",
                 n, m, value.position, n, m);
    config->segment = FRUGI_SEGMENT_GROUP;
    config->group_keep = (uint32_t)n;
    config->group_of = (uint32_t)m;
    return FRUG_OK;
}

frug_status frugi_parse_segment(const frugi_option_row *row, frugi_token value, frug_config *config) {
    (void)row;
    size_t which = 0;
    config->group_keep = config->group_of = 0;
    if (value.at[0] >= '0' && value.at[0] <= '9')
        return parse_group(value, config);
    if (!frugi_token_find(value, choice_of_list, segments, &which) || which == FRUGI_SEGMENT_GROUP)
        return frugi_token_unknown(value, "value", " of segment", choice_of_list, segments);
    config->segment = (frugi_segment)which;
    return FRUG_OK;
}

void frugi_print_segment(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->segment == FRUGI_SEGMENT_GROUP)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%" PRIu32 ":%" PRIu32, config->group_keep, config->group_of);
    else
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", segments[config->segment]);
}

/* ---- unit ---- */

static int read_run(frugi_token rest, frug_config *config) {
    uint64_t length = 0;
    if (!read_in_range(rest, 2, RUN_MAX, &length))
        return 0;
    config->unit_h = 1;
    config->unit_w = (uint32_t)length;
    return 1;
}

static int read_tile(frugi_token rest, frug_config *config) {
    frugi_token height = frugi_token_split(&rest, 'x');
    uint64_t h = 0, w = 0;
    if (!read_in_range(height, 1, TILE_MAX, &h) || !read_in_range(rest, 1, TILE_MAX, &w) || h * w < 2)
        return 0;
    config->unit_h = (uint32_t)h;
    config->unit_w = (uint32_t)w;
    return 1;
}

frug_status frugi_parse_unit(const frugi_option_row *row, frugi_token value, frug_config *config) {
    frugi_token rest = value;
    size_t which = 0;
    FRUG_TRY(parse_choice(&rest, " of unit", units, &which));
    config->unit = (frugi_unit)which;
    config->unit_h = config->unit_w =
        which == FRUGI_UNIT_ELEMENT; /* the size of rows, columns, channels and heads depends on the tensor */
    if (which == FRUGI_UNIT_RUN && !read_run(rest, config))
        return fail_bad_value(row->option.name, value, "run:L with L from 2 to 65536");
    if (which == FRUGI_UNIT_TILE && !read_tile(rest, config))
        return fail_bad_value(row->option.name, value,
                              "tile:HxW with sides from 1 to 1024 and at least two entries (one is unit=element)");
    if (which != FRUGI_UNIT_RUN && which != FRUGI_UNIT_TILE && value.len != strlen(units[which]))
        return fail_bad_value(row->option.name, value, units[which]);
    return FRUG_OK;
}

void frugi_print_unit(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    const char *name = units[config->unit];
    if (config->unit == FRUGI_UNIT_RUN)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s:%" PRIu32, name, config->unit_w);
    else if (config->unit == FRUGI_UNIT_TILE)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s:%" PRIu32 "x%" PRIu32, name, config->unit_h, config->unit_w);
    else
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", name);
}

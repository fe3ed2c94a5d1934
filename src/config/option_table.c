/*
 * option_table.c - every option of the config string, once.
 *
 * The parser, the canonical text, the help and the man page all read this table, so they cannot
 * disagree; the defaults are the fallback texts, read by the same parser. Where the values are words,
 * their order in the text is that of the enumeration in config.h, and the text itself is searched.
 */
#include "config/option_table.h"
#include "config/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint32_t block_lengths[] = {64, 128, 256, 1024, 4096};

static void set_block(frug_config *config, size_t which) {
    config->block = block_lengths[which];
}

static size_t get_block(const frug_config *config) {
    size_t which = 0;
    while (block_lengths[which] != config->block)
        which++;
    return which;
}

static void set_vectors(frug_config *config, size_t which) {
    config->vectors_dense = which == 0;
}

static size_t get_vectors(const frug_config *config) {
    return config->vectors_dense ? 0 : 1;
}

#define WORD_FIELD(field, type)                                                                                        \
    static void set_##field(frug_config *config, size_t which) {                                                       \
        config->field = (type)which;                                                                                   \
    }                                                                                                                  \
    static size_t get_##field(const frug_config *config) {                                                             \
        return (size_t)config->field;                                                                                  \
    }

WORD_FIELD(select, frugi_selector)
WORD_FIELD(feedback, frugi_feedback)
WORD_FIELD(mask, frugi_mask)
WORD_FIELD(residual, frugi_residual)
WORD_FIELD(index, frugi_index_choice)
WORD_FIELD(value, frugi_value)
WORD_FIELD(stats, frugi_stats_level)

static frug_status parse_word(const frugi_option_row *row, frugi_word value, frug_config *config) {
    char of[32];
    size_t which = 0;
    if (frugi_word_find(value, frugi_choice_of_text, row->option.values, &which)) {
        row->set(config, which);
        return FRUG_OK;
    }
    snprintf(of, sizeof of, " of %s", row->option.name);
    return frugi_word_unknown(value, "value", of, frugi_choice_of_text, row->option.values);
}

static void print_word(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    size_t len = 0;
    const char *word = frugi_choice_of_text(row->option.values, row->get(config), &len);
    snprintf(text, FRUGI_VALUE_TEXT_MAX, "%.*s", (int)len, word);
}

frug_status frugi_option_bad_number(const frugi_option_row *row, frugi_word value) {
    return frugi_fail(FRUG_ERR_CONFIG, "config: bad value '%.*s' of %s at position %zu; accepted: %s",
                      frugi_word_shown(value), value.at, row->option.name, value.position, row->option.values);
}

static frug_status parse_count(const frugi_option_row *row, frugi_word value, frug_config *config) {
    uint64_t count = 0;
    if (!frugi_read_u64(value.at, value.len, &count))
        return frugi_option_bad_number(row, value);
    memcpy((char *)config + row->offset, &count, sizeof count);
    return FRUG_OK;
}

static void print_count(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    uint64_t count = 0;
    memcpy(&count, (const char *)config + row->offset, sizeof count);
    snprintf(text, FRUGI_VALUE_TEXT_MAX, "%" PRIu64, count);
}

/* What auto means depends on the schedule, which may still change: resolve() in config.c decides. */
static frug_status parse_beta(const frugi_option_row *row, frugi_word value, frug_config *config) {
    double beta = 0;
    config->beta_auto = frugi_word_is(value, "auto");
    if (config->beta_auto)
        return FRUG_OK;
    if (!frugi_read_double(value.at, value.len, &beta) || beta < 0 || beta > 1)
        return frugi_option_bad_number(row, value);
    config->beta = beta;
    return FRUG_OK;
}

static void print_beta(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->beta_auto)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "auto");
    else
        frugi_write_double(config->beta, text);
}

static frug_status parse_momentum(const frugi_option_row *row, frugi_word value, frug_config *config) {
    double momentum = 0;
    if (!frugi_read_double(value.at, value.len, &momentum) || momentum < 0 || momentum >= 1)
        return frugi_option_bad_number(row, value);
    config->momentum = momentum;
    return FRUG_OK;
}

static void print_momentum(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    frugi_write_double(config->momentum, text);
}

#define WORDS(field) .parse = parse_word, .print = print_word, .set = set_##field, .get = get_##field
#define COUNT(field) .parse = parse_count, .print = print_count, .offset = offsetof(frug_config, field)

static const frugi_option_row rows[] = {
    {{"block", "64|128|256|1024|4096", "256", "entries that compete with each other"}, WORDS(block)},
    {{"select", "hist|exact", "hist", "the largest by a histogram (fast, at least 99 % of the energy), or exactly"},
     WORDS(select)},
    {{"schedule", "constant:S|frugrad[:S0:SMAX:R]", "constant:0.9375",
      "share held back: always S, or rising from S0 to SMAX over the first R of training"},
     .parse = frugi_parse_schedule,
     .print = frugi_print_schedule},
    {{"density", "above 0, up to 1", "0.0625", "share sent; short for schedule=constant:(1 - density)"},
     .parse = frugi_parse_density},
    {{"feedback", "merged|plain|dgc|none", "merged",
      "what stays behind: momentum and residual in one buffer, an undecayed residual, two buffers, or nothing"},
     WORDS(feedback)},
    {{"beta", "auto, or 0 to 1", "auto",
      "decay of the buffer of feedback=merged; auto is 0.95, or 0.99 when 98 % or more is held back"},
     .parse = parse_beta,
     .print = print_beta},
    {{"momentum", "0 to below 1", "0.9", "momentum of feedback=dgc"}, .parse = parse_momentum, .print = print_momentum},
    {{"mask", "auto|on|off", "auto", "clear the momentum of what was sent (feedback=dgc); auto: below density 0.25"},
     WORDS(mask)},
    {{"residual", "int8|int4|bf16|f32", "int8", "how what stays behind is stored"}, WORDS(residual)},
    {{"index", "fixed|auto|local|bitmap", "fixed",
      "how places travel: one number each, one bit per entry, or the shorter"},
     WORDS(index)},
    {{"value", "f32|bf16|f16|int8", "bf16", "how values travel"}, WORDS(value)},
    {{"min_size", "a whole number", "4096", "tensors with fewer entries travel dense"}, COUNT(min_size)},
    {{"vectors", "dense|sparse", "dense", "how tensors of one dimension travel"}, WORDS(vectors)},
    {{"seed", "a whole number", "0", "seed of the stochastic rounding of what stays behind"}, COUNT(seed)},
    {{"stats", "sample|full", "sample", "energy and stage times from every 64th batch of blocks, or from all"},
     WORDS(stats)},
};

const frugi_option_row *frugi_option_row_at(size_t i) {
    return i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}

const frug_option *frug_option_at(size_t i) {
    const frugi_option_row *row = frugi_option_row_at(i);
    return row ? &row->option : NULL;
}

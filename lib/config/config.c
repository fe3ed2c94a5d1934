/*
 * config.c - the config string: [preset][,option=value]...
 *
 * A hand-written scanner over one read-only string. Words carry their position, which every error reports;
 * no token is copied, and nothing but the config itself is allocated. The same function parses
 * the user's text, the text of a preset and the default of each option.
 */
#include "config/config.h"
#include "config/option_table.h"
#include "config/presets.h"

#include "base/block_count.h"
#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

#define INPUT_MAX FRUGI_CONFIG_TEXT_MAX

static const char *option_name(const void *ctx, size_t i, size_t *len) {
    (void)ctx;
    const frug_option *option = frug_option_at(i);
    if (!option)
        return NULL;
    *len = strlen(option->name);
    return option->name;
}

/* An item without '=': report what is missing. */
static frug_status fail_bare_token(frugi_token token) {
    size_t which = 0;
    int shown = frugi_token_shown(token);
    if (token.len == 0)
        return frugi_fail(FRUG_ERR_CONFIG, "config: option=value expected at position %zu", token.position);
    if (frugi_token_find(token, option_name, NULL, &which))
        return frugi_fail(FRUG_ERR_CONFIG, "config: option '%.*s' at position %zu needs a value; accepted: %s", shown,
                          token.at, token.position, frug_option_at(which)->values);
    if (frugi_token_find(token, frugi_preset_name, NULL, &which))
        return frugi_fail(FRUG_ERR_CONFIG, "config: preset '%.*s' at position %zu must come first", shown, token.at,
                          token.position);
    return frugi_token_unknown(token, "option", "", option_name, NULL);
}

/* The nearest name would be density, with the opposite meaning. */
static frug_status fail_unknown_option(frugi_token name) {
    static const char sparsity[] = "sparsity";
    if (name.len == strlen(sparsity) && memcmp(name.at, sparsity, name.len) == 0)
        return frugi_fail(FRUG_ERR_CONFIG,
                          "config: unknown option 'sparsity' at position %zu; a sparsity of 0.99 is density=0.01",
                          name.position);
    return frugi_token_unknown(name, "option", "", option_name, NULL);
}

static frug_status parse_item(frugi_token item, frug_config *config) {
    size_t which = 0;
    if (!memchr(item.at, '=', item.len))
        return fail_bare_token(item);
    frugi_token value = item, name = frugi_token_split(&value, '=');
    if (!frugi_token_find(name, option_name, NULL, &which))
        return fail_unknown_option(name);
    if (value.len == 0)
        return fail_bare_token(name);
    const frugi_option_row *row = frugi_option_row_at(which);
    config->given |= (uint64_t)1 << which;
    return row->parse(row, value, config);
}

/* An item must follow every separator, so "a=1," ends in an empty item, which is an error. */
static frug_status parse_items(frugi_token rest, frug_config *config) {
    for (;;) {
        frugi_token item = frugi_token_split(&rest, ',');
        FRUG_TRY(parse_item(item, config));
        if (item.at + item.len == rest.at)
            return FRUG_OK;
    }
}

static frugi_token token_of(const char *text) {
    return (frugi_token){text, strlen(text), 1};
}

static frug_status parse_preset(frugi_token name, frug_config *config) {
    size_t which = 0;
    if (!frugi_token_find(name, frugi_preset_name, NULL, &which)) {
        if (frugi_token_find(name, option_name, NULL, &which))
            return fail_bare_token(name);
        return frugi_token_unknown(name, "preset", "", frugi_preset_name, NULL);
    }
    const char *text = frug_preset_at(which)->text;
    FRUG_TRY(text[0] ? parse_items(token_of(text), config) : FRUG_OK);
    config->given = 0; /* options of a preset do not count as given by the user */
    return FRUG_OK;
}

/*
 * The length of the preset name at the start of a text. A name may contain a ':' itself ("2:4"), so known names are
 * matched first; an unknown one ends at ':' only if an option=value follows.
 */
static size_t preset_length(frugi_token text) {
    size_t len = 0, item = strcspn(text.at, ",");
    const char *name;
    for (size_t i = 0; (name = frugi_preset_name(NULL, i, &len)); i++) {
        if (len <= text.len && memcmp(name, text.at, len) == 0 && strchr(",:", text.at[len]))
            return len;
    }
    return memchr(text.at, '=', item) ? strcspn(text.at, ",:") : item;
}

/* If the optimizer is known, "frugrad" means the preset for that optimizer. */
static frug_status parse_preset_for(frugi_token name, const char *optimizer, frug_config *config) {
    if (!optimizer || !frugi_token_is(name, "frugrad"))
        return parse_preset(name, config);
    return parse_preset(token_of(strncmp(optimizer, "adam", 4) == 0   ? "frugrad-adam"
                                 : strncmp(optimizer, "muon", 4) == 0 ? "frugrad-muon"
                                                                      : "frugrad-sgd"),
                        config);
}

static frug_status parse_text(frugi_token rest, const char *optimizer, frug_config *config) {
    if (rest.len == 0)
        return FRUG_OK;
    size_t first = strcspn(rest.at, ",:=");
    if (rest.at[first] == '=' || first == 0)
        return parse_items(rest, config);
    frugi_token name = {rest.at, preset_length(rest), rest.position};
    FRUG_TRY(parse_preset_for(name, optimizer, config));
    if (name.len == rest.len)
        return FRUG_OK;
    size_t taken = name.len + 1;
    return parse_items((frugi_token){rest.at + taken, rest.len - taken, rest.position + taken}, config);
}

static frug_status check_characters(frugi_token text) {
    FRUG_FAIL_IF(text.len > INPUT_MAX, FRUG_ERR_CONFIG, "config: more than %d characters", INPUT_MAX);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.at[i];
        FRUG_FAIL_IF(c == ' ', FRUG_ERR_CONFIG, "config: blank at position %zu; items are separated by ',' alone",
                     i + 1);
        FRUG_FAIL_IF(c < ' ' || c > '~', FRUG_ERR_CONFIG, "config: byte 0x%02x at position %zu is not allowed", c,
                     i + 1);
    }
    return FRUG_OK;
}

static frug_status set_defaults(frug_config *config) {
    const frugi_option_row *row;
    config->density_gain = 1.0;
    for (size_t i = 0; (row = frugi_option_row_at(i)); i++) {
        if (row->print) /* a short form of another option has no default of its own */
            FRUG_TRY(row->parse(row, token_of(row->option.fallback), config));
    }
    return FRUG_OK;
}

/* Whether entries are sent several times; hold=auto depends on beta itself. */
static int retains(const frug_config *config, double density) {
    return config->hold_rule != FRUGI_HOLD_MOMENTUM && frugi_retention(config, density) > 0;
}

/* At 99.9 % a block of 256 would send an entry every fourth step, whichever is largest; and an entry waits a thousand
 * steps on average, of which 0.95 remembers the last twenty. Measured: docs/results.md. */
static void resolve_sgd(frug_config *config, double sparsity) {
    const int sparse = sparsity >= 0.995;
    if (config->beta_choice == FRUGI_CHOICE_SGD)
        config->beta = sparse ? 0.998 : 0.95;
    if (config->block_choice == FRUGI_CHOICE_SGD)
        config->block = sparse && config->segment == FRUGI_SEGMENT_BLOCK ? 4096 : 256;
}

static void resolve_auto(frug_config *config) {
    if (config->segment == FRUGI_SEGMENT_GROUP)
        config->schedule = frugi_schedule_constant(1.0 - (double)config->group_keep / config->group_of);
    double sparsity = frugi_final_sparsity(&config->schedule);
    resolve_sgd(config, sparsity);
    if (config->beta_choice == FRUGI_CHOICE_AUTO)
        config->beta = sparsity < 0.98 ? 0.95 : retains(config, 1.0 - sparsity) ? 0.98 : 0.99;
    if (config->block_choice == FRUGI_CHOICE_AUTO) /* measured with Adam and Muon: docs/training.md */
        config->block = sparsity < 0.97 ? 64 : sparsity < 0.995 ? 256 : 4096;
    if (config->bucket_auto)
        config->bucket = config->value == FRUGI_VALUE_QSGD || config->value == FRUGI_VALUE_ONEBIT ? 512 : 64;
    if (config->segment == FRUGI_SEGMENT_BLOCK && (1.0 - sparsity) * config->block * FRUGI_PHASES < 1.0)
        frugi_log(FRUG_LOG_WARN,
                  "config: a block sends an entry every %u steps at least, so density never falls below 1/%u",
                  FRUGI_PHASES, config->block * FRUGI_PHASES);
}

static void write_text(frug_config *config) {
    const frugi_option_row *row;
    size_t used = 0, item = 0;
    for (size_t i = 0; (row = frugi_option_row_at(i)); i++) {
        char value[FRUGI_VALUE_TEXT_MAX];
        if (!row->print)
            continue;
        row->print(row, config, value);
        used += (size_t)snprintf(config->text + used, sizeof config->text - used, "%s%s=%s", used ? "," : "",
                                 row->option.name, value);
        item +=
            (size_t)snprintf(config->items + item, sizeof config->items - item, "%s%c%s", row->option.name, 0, value);
        item++; /* the terminating 0 */
    }
}

const char *frug_config_get(const frug_config *config, const char *option) {
    if (!config || !option)
        return NULL;
    for (const char *name = config->items; *name;) {
        const char *value = name + strlen(name) + 1;
        if (strcmp(name, option) == 0)
            return value;
        name = value + strlen(value) + 1;
    }
    return NULL;
}

static frug_status parse_config(const char *text, const char *optimizer, frug_config *config) {
    FRUG_TRY(set_defaults(config));
    FRUG_TRY(parse_text(token_of(text), optimizer, config));
    FRUG_TRY(frugi_config_reset_unused(config));
    resolve_auto(config);
    FRUG_TRY(frugi_config_validate(config));
    FRUG_TRY(frugi_config_reject_unused(config));
    write_text(config);
    return FRUG_OK;
}

static frug_status create_config(const char *text, const char *optimizer, frug_config **config) {
    FRUG_FAIL_IF(!text || !config, FRUG_ERR_ARG, "config: text and config must not be NULL");
    FRUG_TRY(check_characters((frugi_token){text, strnlen(text, INPUT_MAX + 1), 1}));
    frug_config *made = frugi_calloc(1, sizeof *made);
    FRUG_FAIL_IF(!made, FRUG_ERR_MEMORY, "config: out of memory");
    frug_status status = parse_config(text, optimizer, made);
    if (status != FRUG_OK) {
        frugi_free(made);
        return status;
    }
    *config = made;
    return FRUG_OK;
}

frug_status frug_config_create(const char *text, frug_config **config) {
    return create_config(text, NULL, config);
}

frug_status frug_config_create_for(const char *text, const char *optimizer, frug_config **config) {
    FRUG_FAIL_IF(!optimizer, FRUG_ERR_ARG, "config: optimizer must not be NULL");
    return create_config(text, optimizer, config);
}

void frug_config_destroy(frug_config *config) {
    frugi_free(config);
}

const char *frug_config_text(const frug_config *config) {
    return config ? config->text : NULL;
}

/*
 * unused_options.c - options that the configured method does not use.
 *
 * If the user gave such an option, it is an error unless it has its default value: an option that is silently ignored
 * falsifies an experiment. If it comes from a preset only, it is reset to its default, so that
 * "frugrad-adam,feedback=none" is valid. Options of gossip are always accepted, since programs
 * may call it directly whatever reduce is; programs that do not must reject them themselves.
 */
#include "config/option_table.h"

#include <string.h>

static int is_merged(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_MERGED;
}

static int has_retention(const frug_config *c) {
    return is_merged(c) && c->reduce != FRUGI_REDUCE_SHARED;
}

static int has_momentum(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_DGC || (is_merged(c) && c->hold_rule == FRUGI_HOLD_MOMENTUM);
}

static int is_ef21(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_EF21;
}

static int has_mask(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_DGC || c->mask == FRUGI_MASK_OFF;
}

static int has_units(const frug_config *c) {
    return c->unit != FRUGI_UNIT_ELEMENT;
}

static int is_qsgd(const frug_config *c) {
    return c->value == FRUGI_VALUE_QSGD;
}

static int is_split(const frug_config *c) {
    return c->reduce == FRUGI_REDUCE_SPLIT;
}

static int is_local(const frug_config *c) {
    return c->local > 0;
}

/* Senders of an entry are counted where all frames are: an algorithm that adds partial sums has none of them. */
static int can_count_senders(const frug_config *c) {
    return is_local(c) && c->reduce == FRUGI_REDUCE_GATHER && c->unit == FRUGI_UNIT_ELEMENT;
}

static int is_nodes(const frug_config *c) {
    return c->reduce == FRUGI_REDUCE_NODES;
}

typedef struct option_user {
    const char *option;
    int (*is_used)(const frug_config *c);
    const char *used_by;
} option_user;

static const option_user users[] = {
    {"beta", is_merged, "feedback=merged"},
    {"hold", has_retention, "feedback=merged"},
    {"momentum", has_momentum, "feedback=dgc, or hold=auto with feedback=merged"},
    {"theta", is_ef21, "feedback=ef21"},
    {"mask", has_mask, "feedback=dgc"},
    {"score", has_units, "units of several entries"},
    {"levels", is_qsgd, "value=qsgd"},
    {"qnorm", is_qsgd, "value=qsgd"},
    {"down", is_split, "reduce=split"},
    {"node", is_nodes, "reduce=nodes"},
    {"outer", is_local, "local steps (local=H)"},
    {"outer_momentum", is_local, "local steps (local=H)"},
    {"mean", can_count_senders, "local steps (local=H) with reduce=gather and unit=element"},
};

static const frugi_option_row *find_row(const char *name, uint64_t *bit) {
    const frugi_option_row *row;
    for (size_t i = 0; (row = frugi_option_row_at(i)); i++) {
        if (strcmp(row->option.name, name) == 0) {
            *bit = (uint64_t)1 << i;
            return row;
        }
    }
    return NULL;
}

frug_status frugi_config_reset_unused(frug_config *config) {
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        uint64_t bit = 0;
        const frugi_option_row *row = find_row(users[i].option, &bit);
        const char *fallback = row->option.fallback;
        if (!users[i].is_used(config) && !(config->given & bit))
            FRUG_TRY(row->parse(row, (frugi_token){fallback, strlen(fallback), 1}, config));
    }
    return FRUG_OK;
}

frug_status frugi_config_reject_unused(const frug_config *config) {
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        uint64_t bit = 0;
        const frugi_option_row *row = find_row(users[i].option, &bit);
        char value[FRUGI_VALUE_TEXT_MAX];
        row->print(row, config, value);
        FRUG_FAIL_IF(!users[i].is_used(config) && strcmp(value, row->option.fallback) != 0, FRUG_ERR_CONFIG,
                     "config: %s=%s does nothing here, it is for %s; leave it out", users[i].option, value,
                     users[i].used_by);
    }
    return FRUG_OK;
}

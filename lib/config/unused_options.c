/*
 * unused_options.c - options that the chosen method does not use.
 *
 * One that the user wrote is refused unless it has its default value: an option that silently does nothing makes an
 * experiment lie. One that only a preset brought along goes back to its default, so that "frugrad-adam,feedback=none"
 * means what it says. Options of gossip and of parameter servers are used by those who call these directly, whatever
 * reduce is: programs that do not must refuse them themselves.
 */
#include "config/option_table.h"

#include <string.h>

static int is_merged(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_MERGED;
}

static int holds(const frug_config *c) {
    return is_merged(c) && c->reduce != FRUGI_REDUCE_SHARED;
}

static int has_momentum(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_DGC || (is_merged(c) && c->hold_auto);
}

static int is_ef21(const frug_config *c) {
    return c->feedback == FRUGI_FEEDBACK_EF21;
}

static int masks(const frug_config *c) {
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

static int is_nodes(const frug_config *c) {
    return c->reduce == FRUGI_REDUCE_NODES;
}

typedef struct use {
    const char *option;
    int (*used)(const frug_config *c);
    const char *by;
} use;

static const use uses[] = {
    {"beta", is_merged, "feedback=merged"},
    {"hold", holds, "feedback=merged"},
    {"momentum", has_momentum, "feedback=dgc, or hold=auto with feedback=merged"},
    {"theta", is_ef21, "feedback=ef21"},
    {"mask", masks, "feedback=dgc"},
    {"score", has_units, "units of several entries"},
    {"levels", is_qsgd, "value=qsgd"},
    {"qnorm", is_qsgd, "value=qsgd"},
    {"down", is_split, "reduce=split"},
    {"node", is_nodes, "reduce=nodes"},
};

static const frugi_option_row *row_of(const char *name, uint64_t *bit) {
    const frugi_option_row *row;
    for (size_t i = 0; (row = frugi_option_row_at(i)); i++) {
        if (strcmp(row->option.name, name) == 0) {
            *bit = (uint64_t)1 << i;
            return row;
        }
    }
    return NULL;
}

frug_status frugi_config_drop_unused(frug_config *config) {
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        uint64_t bit = 0;
        const frugi_option_row *row = row_of(uses[i].option, &bit);
        const char *fallback = row->option.fallback;
        if (!uses[i].used(config) && !(config->given & bit))
            FRUG_TRY(row->parse(row, (frugi_word){fallback, strlen(fallback), 1}, config));
    }
    return FRUG_OK;
}

frug_status frugi_config_refuse_unused(const frug_config *config) {
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        uint64_t bit = 0;
        const frugi_option_row *row = row_of(uses[i].option, &bit);
        char value[FRUGI_VALUE_TEXT_MAX];
        row->print(row, config, value);
        FRUG_FAIL_IF(!uses[i].used(config) && strcmp(value, row->option.fallback) != 0, FRUG_ERR_CONFIG,
                     "config: %s=%s does nothing here, it is for %s; leave it out", uses[i].option, value, uses[i].by);
    }
    return FRUG_OK;
}

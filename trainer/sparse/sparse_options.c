/*
 * sparse_options.c - parser of --sparse, and the schedule of masks.
 *
 * Times are shares of all steps, and updates are a number, so that a text fits runs of any length. Gradual pruning has
 * the cubic schedule of Zhu and Gupta (arXiv:1710.01878): sparsity s (1 - (1 - x)^3) at the share x of the updates.
 */
#include "trainer/sparse/sparse_options.h"

#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX     256
#define UNIT_OPTIONS "density=0.5,from=0.1,until=0.6,updates=50"

static const fgt_sparse_help helps[FGT_SPARSE_KINDS] = {
    {"magnitude", "density=0.1,layers=erk,from=0.1,until=0.6,updates=50",
     "gradual pruning: the largest weights stay, in steps from all of them to the density"},
    {"rigl", "density=0.1,layers=erk,until=0.75,updates=25,swap=0.3",
     "the density from the first step on; updates exchange the smallest weights for those with the largest gradients"},
    {"nm", "n=2,m=4,from=0.1,until=0.5,refine=0.002",
     "n of every m weights along the inputs of a neuron: a straight-through estimator, then fixed masks"},
    {"zeros", "", "weights of --weights that are zero stay zero: to train a model of frugrad prune"},
    {"channels", UNIT_OPTIONS,
     "gradual pruning of whole channels and neurons inside blocks; frugrad prune --units zeros removes them"},
    {"heads", UNIT_OPTIONS, "the same of attention heads"},
    {"units", UNIT_OPTIONS, "channels and heads"},
};
static const fgt_sparse_options defaults[FGT_SPARSE_KINDS] = {
    {.kind = FGT_SPARSE_MAGNITUDE, .density = 0.1, .from = 0.1, .until = 0.6, .updates = 50},
    {.kind = FGT_SPARSE_RIGL, .density = 0.1, .until = 0.75, .updates = 25, .swap = 0.3},
    {.kind = FGT_SPARSE_NM, .from = 0.1, .until = 0.5, .updates = 1, .refine = 0.002, .n = 2, .m = 4},
    {.kind = FGT_SPARSE_ZEROS, .density = 1, .updates = 1},
    {.kind = FGT_SPARSE_CHANNELS, .density = 0.5, .from = 0.1, .until = 0.6, .updates = 50},
    {.kind = FGT_SPARSE_HEADS, .density = 0.5, .from = 0.1, .until = 0.6, .updates = 50},
    {.kind = FGT_SPARSE_UNITS, .density = 0.5, .from = 0.1, .until = 0.6, .updates = 50},
};
static const char *const layer_names[] = {"erk", "uniform", "global", NULL};

const fgt_sparse_help *fgt_sparse_help_at(size_t i) {
    return i < FGT_SPARSE_KINDS ? &helps[i] : NULL;
}

/** An option that is a number. */
typedef struct number_option {
    const char *key;
    size_t offset; /* in fgt_sparse_options */
    bool whole;    /* a uint32_t, else a double */
    double min, max;
} number_option;

static const number_option numbers[] = {
    {"density", offsetof(fgt_sparse_options, density), false, 1e-6, 1},
    {"from", offsetof(fgt_sparse_options, from), false, 0, 1},
    {"until", offsetof(fgt_sparse_options, until), false, 0, 1},
    {"swap", offsetof(fgt_sparse_options, swap), false, 0, 1},
    {"refine", offsetof(fgt_sparse_options, refine), false, 0, 10},
    {"updates", offsetof(fgt_sparse_options, updates), true, 1, 1e6},
    {"n", offsetof(fgt_sparse_options, n), true, 1, 15},
    {"m", offsetof(fgt_sparse_options, m), true, 2, 16},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* Whether a kind has an option: its defaults name it. */
static bool has_option(fgt_sparse_kind kind, const char *key) {
    size_t length = strlen(key);
    for (const char *at = helps[kind].options; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, key, length) == 0 && at[length] == '=')
            return true;
    return false;
}

static int parse_number(const number_option *row, const char *value, fgt_sparse_options *o) {
    char *end = NULL;
    double x = strspn(value, "0123456789.e-") == strlen(value) ? strtod(value, &end) : NAN;
    if (!end || end == value || *end || !(x >= row->min && x <= row->max) || (row->whole && x != floor(x)))
        return fgio_usage_error("--sparse: %s=%s: expected a %snumber from %g to %g", row->key, value,
                                row->whole ? "whole " : "", row->min, row->max);
    if (row->whole)
        *(uint32_t *)(void *)((char *)o + row->offset) = (uint32_t)x;
    else
        *(double *)(void *)((char *)o + row->offset) = x;
    return FGIO_EXIT_OK;
}

static int parse_layers(const char *value, fgt_sparse_options *o) {
    for (int i = 0; layer_names[i]; i++)
        if (strcmp(layer_names[i], value) == 0) {
            o->layers = (fgt_sparse_layers)i;
            return FGIO_EXIT_OK;
        }
    return fgio_usage_error("--sparse: layers=%s: expected erk, uniform or global", value);
}

static int parse_option(char *option, fgt_sparse_options *o) {
    const fgt_sparse_help *help = &helps[o->kind];
    char *value = strchr(option, '=');
    if (value)
        *value++ = '\0';
    if (!value || !has_option(o->kind, option))
        return fgio_usage_error("--sparse: %s has no option '%s'; it has %s", help->name, option,
                                help->options[0] ? help->options : "none");
    for (size_t i = 0; i < NUMBERS; i++)
        if (strcmp(numbers[i].key, option) == 0)
            return parse_number(&numbers[i], value, o);
    return parse_layers(value, o);
}

static int parse_kind(const char *name, fgt_sparse_options *o) {
    for (size_t i = 0; i < FGT_SPARSE_KINDS; i++)
        if (strcmp(helps[i].name, name) == 0) {
            *o = defaults[i];
            return FGIO_EXIT_OK;
        }
    return fgio_usage_error("--sparse: unknown kind '%s'; accepted: magnitude, rigl, nm, zeros, channels, heads, units",
                            name);
}

int fgt_sparse_parse(const char *text, fgt_sparse_options *options) {
    fgt_sparse_options o = {0};
    char copy[TEXT_MAX];
    if (strlen(text) >= sizeof copy)
        return fgio_usage_error("--sparse: more than %d characters", TEXT_MAX - 1);
    fgio_printable(text, copy, sizeof copy);
    char *next = strchr(copy, ':');
    if (next)
        *next++ = '\0';
    int status = parse_kind(copy, &o);
    while (status == FGIO_EXIT_OK && next) {
        char *option = next;
        next = strchr(option, ',');
        if (next)
            *next++ = '\0';
        status = parse_option(option, &o);
    }
    if (status == FGIO_EXIT_OK && o.from > o.until)
        status = fgio_usage_error("--sparse: from=%g is after until=%g", o.from, o.until);
    if (status == FGIO_EXIT_OK && o.kind == FGT_SPARSE_NM && o.n >= o.m)
        status = fgio_usage_error("--sparse: n=%u of every m=%u weights: n must be below m", o.n, o.m);
    if (status == FGIO_EXIT_OK)
        *options = o;
    return status;
}

static uint64_t step_at(double share, uint64_t steps) {
    return (uint64_t)(share * (double)steps + 0.5);
}

uint64_t fgt_sparse_begin(const fgt_sparse_options *o, uint64_t steps) {
    return step_at(o->from, steps);
}

uint64_t fgt_sparse_end(const fgt_sparse_options *o, uint64_t steps) {
    return step_at(o->until, steps);
}

static uint64_t updates_done(const fgt_sparse_options *o, uint64_t step, uint64_t steps) {
    uint64_t begin = fgt_sparse_begin(o, steps), end = fgt_sparse_end(o, steps);
    return step >= end ? o->updates : step <= begin ? 0 : (step - begin) * o->updates / (end - begin);
}

double fgt_sparse_progress(const fgt_sparse_options *o, uint64_t step, uint64_t steps) {
    return (double)updates_done(o, step, steps) / (double)o->updates;
}

bool fgt_sparse_is_due(const fgt_sparse_options *o, uint64_t step, uint64_t steps) {
    if (step == 0)
        return o->kind == FGT_SPARSE_RIGL || updates_done(o, 0, steps) > 0;
    return updates_done(o, step, steps) != updates_done(o, step - 1, steps);
}

bool fgt_sparse_has_units(const fgt_sparse_options *o) {
    return o->kind == FGT_SPARSE_CHANNELS || o->kind == FGT_SPARSE_HEADS || o->kind == FGT_SPARSE_UNITS;
}

double fgt_sparse_density(const fgt_sparse_options *o, uint64_t step, uint64_t steps) {
    if (o->kind != FGT_SPARSE_MAGNITUDE && !fgt_sparse_has_units(o))
        return o->density;
    double left = 1 - fgt_sparse_progress(o, step, steps);
    return 1 - (1 - o->density) * (1 - left * left * left);
}

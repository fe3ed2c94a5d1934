/*
 * quantity.c - numbers with units. Parsing is strict, because a bandwidth that is off by a factor of 8 or 1000 looks
 * plausible.
 */
#include "program/args/quantity.h"

#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
    const char *word;
    double factor;
} unit;

typedef struct kind {
    const char *name, *example;
    unit unit[12];
} kind;

static const kind kinds[] = {
    [FGP_MEASURE_COUNT] = {"a count", "124M", {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}},
    [FGP_MEASURE_BANDWIDTH] = {"a bandwidth",
                               "10Gbit",
                               {{"bit", 0.125},
                                {"kbit", 0.125e3},
                                {"Kbit", 0.125e3},
                                {"Mbit", 0.125e6},
                                {"Gbit", 0.125e9},
                                {"Tbit", 0.125e12},
                                {"bit/s", 0.125},
                                {"kbit/s", 0.125e3},
                                {"Kbit/s", 0.125e3},
                                {"Mbit/s", 0.125e6},
                                {"Gbit/s", 0.125e9},
                                {"Tbit/s", 0.125e12}}},
    [FGP_MEASURE_TIME] = {"a time", "50us", {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}},
    [FGP_MEASURE_SHARE] = {"a share", "6.25% or 0.0625", {{"", 1}, {"%", 1e-2}}},
};

#define UNITS (sizeof kinds[0].unit / sizeof kinds[0].unit[0])

static int bad_unit(const char *what, const char *text, const char *given, const kind *k) {
    const char *words[UNITS + 1] = {NULL};
    size_t count = 0;
    for (size_t i = 0; i < UNITS && k->unit[i].word; i++)
        if (k->unit[i].word[0])
            words[count++] = k->unit[i].word;
    if (given[0])
        fgio_usage_error("%s: '%s': '%s' is not a unit of %s", what, text, given, k->name);
    else
        fgio_usage_error("%s: '%s': %s needs a unit", what, text, k->name);
    const char *nearest = given[0] ? fgio_nearest_word(given, words) : NULL;
    for (size_t i = 0; i < count; i++) /* wrong case is nearer than a missing letter */
        nearest = strcasecmp(words[i], given) == 0 ? words[i] : nearest;
    if (nearest)
        fgio_hint("did you mean %.*s%s?", (int)(strlen(text) - strlen(given)), text, nearest);
    else
        fgio_hint("write it like %s", k->example);
    return FGIO_EXIT_USAGE;
}

int fgp_quantity(const char *what, const char *text, fgp_measure measure, double min, double max, double *number) {
    const kind *k = &kinds[measure];
    char digits[32], *end = digits;
    size_t length = text ? strspn(text, "0123456789.") : 0;
    double value = 0;
    if (length && length < sizeof digits) {
        memcpy(digits, text, length);
        digits[length] = '\0';
        value = strtod(digits, &end);
    }
    if (!length || end == digits || *end != '\0') {
        fgio_usage_error("%s: '%s' is not %s", what, text ? text : "", k->name);
        fgio_hint("write it like %s", k->example);
        return FGIO_EXIT_USAGE;
    }
    for (size_t i = 0; i < UNITS && k->unit[i].word; i++)
        if (strcmp(k->unit[i].word, text + length) == 0) {
            value *= k->unit[i].factor;
            if (!(value >= min && value <= max))
                return fgio_usage_error("%s: '%s' is out of range: %g to %g%s", what, text, min / k->unit[i].factor,
                                        max / k->unit[i].factor, k->unit[i].word);
            *number = value;
            return FGIO_EXIT_OK;
        }
    return bad_unit(what, text, text + length, k);
}

int fgp_arg_quantity(const fgp_args *args, const char *name, fgp_measure measure, double min, double max,
                     double *number) {
    char what[64];
    snprintf(what, sizeof what, "%s: --%s", args->command->name, name);
    return fgp_quantity(what, fgp_arg(args, name), measure, min, max, number);
}

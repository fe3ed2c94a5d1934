/* option_table.h - the table of options: name, values and help, and how a value is parsed and printed. */
#ifndef FRUGI_OPTION_TABLE_H
#define FRUGI_OPTION_TABLE_H

#include "config/config.h"
#include "config/config_token.h"

/* Room for a piecewise schedule of eight points, each number at its longest. */
#define FRUGI_VALUE_TEXT_MAX 448

typedef struct frugi_option_row frugi_option_row;

struct frugi_option_row {
    frug_option option;

    /* Parse a value. After an error the config may be partly changed and must be discarded. */
    frug_status (*parse)(const frugi_option_row *row, frugi_token value, frug_config *config);

    /* Print the current value; NULL for a short form of another option. */
    void (*print)(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]);

    /* For options whose values are words: the number of the word in option.values. */
    void (*set)(frug_config *config, size_t which);
    size_t (*get)(const frug_config *config);

    /* For options whose values are numbers: the offset of the uint64_t or double in the config, and, for a double,
     * whether a value is accepted. */
    size_t offset;
    int (*valid)(double);
};

/** Reset options that come from a preset only and have no effect to their defaults. */
frug_status frugi_config_reset_unused(frug_config *config);

/** Fail if an option has no effect and is not at its default. */
frug_status frugi_config_reject_unused(const frug_config *config);

/** The i-th row, or NULL past the end. */
const frugi_option_row *frugi_option_row_at(size_t i);

/* schedule_option.c */
frug_status frugi_parse_schedule(const frugi_option_row *row, frugi_token value, frug_config *config);
frug_status frugi_parse_density(const frugi_option_row *row, frugi_token value, frug_config *config);
void frugi_print_schedule(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]);

/** The sparsity that a schedule ends with. */
double frugi_final_sparsity(const frugi_schedule *schedule);

/** A schedule with the same sparsity at every step. */
frugi_schedule frugi_schedule_constant(double sparsity);

/* rule_option.c */
frug_status frugi_parse_rule(const frugi_option_row *row, frugi_token value, frug_config *config);
frug_status frugi_parse_segment(const frugi_option_row *row, frugi_token value, frug_config *config);
frug_status frugi_parse_unit(const frugi_option_row *row, frugi_token value, frug_config *config);
void frugi_print_rule(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]);
void frugi_print_segment(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]);
void frugi_print_unit(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]);

/* topology_option.c */
frug_status frugi_parse_topology(const frugi_option_row *row, frugi_token value, frug_config *config);
void frugi_print_topology(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]);

/** The words of rule= and unit=, as they are numbered in config.h. */
const char *frugi_rule_word(frugi_rule rule);
const char *frugi_unit_word(frugi_unit unit);

/* validate.c */

/** Fail if options do not go together; the error text gives the reason and the alternative. */
frug_status frugi_config_validate(const frug_config *config);

/** Fail because a value is not a number that the row accepts. */
frug_status frugi_option_bad_number(const frugi_option_row *row, frugi_token value);

#endif

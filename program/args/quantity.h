/* quantity.h - numbers with units on the command line: 124M, 1Gbit, 50us, 6.25%. */
#ifndef FGP_QUANTITY_H
#define FGP_QUANTITY_H

#include "program/args/args.h"

typedef enum fgp_measure {
    FGP_MEASURE_COUNT,     /* k, M, G, T */
    FGP_MEASURE_BANDWIDTH, /* bit, kbit, Mbit, Gbit, Tbit, each with or without /s; converted to bytes per second */
    FGP_MEASURE_TIME,      /* ns, us, ms, s */
    FGP_MEASURE_SHARE      /* a number, or % */
} fgp_measure;

/**
 * Parse digits with at most one point, and a unit, and nothing else; only counts and shares may be without
 * a unit. Returns FGIO_EXIT_OK or, after an error message that begins with `what` and a hint, FGIO_EXIT_USAGE.
 */
int fgp_quantity(const char *what, const char *text, fgp_measure measure, double min, double max, double *number);

/** The same for an option of a command. */
int fgp_arg_quantity(const fgp_args *args, const char *name, fgp_measure measure, double min, double max,
                     double *number);

#endif

/* quantity.h - numbers with units on the command line: 124M, 1Gbit, 50us, 6.25%. */
#ifndef FRUGI_QUANTITY_H
#define FRUGI_QUANTITY_H

#include "program/args/args.h"

typedef enum frugi_measure {
    FRUGI_MEASURE_COUNT,     /* k, M, G, T */
    FRUGI_MEASURE_BANDWIDTH, /* bit, kbit, Mbit, Gbit, Tbit, each with or without /s; read as bytes a second */
    FRUGI_MEASURE_TIME,      /* ns, us, ms, s */
    FRUGI_MEASURE_SHARE      /* a number, or % */
} frugi_measure;

/**
 * Read digits, at most one point, and a unit; nothing else may stand around them, and only counts and shares go without
 * a unit. Returns FRUGI_EXIT_OK or, after one line on stderr that begins with `what` and a hint, FRUGI_EXIT_USAGE.
 */
int frugi_quantity(const char *what, const char *text, frugi_measure measure, double min, double max, double *number);

/** The same for an option of a command. */
int frugi_arg_quantity(const frugi_args *args, const char *name, frugi_measure measure, double min, double max,
                       double *number);

#endif

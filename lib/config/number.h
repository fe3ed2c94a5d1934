/* number.h - numbers of a config string, parsed and printed independently of the locale. */
#ifndef FRUGI_NUMBER_H
#define FRUGI_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define FRUGI_NUMBER_TEXT_MAX 32

/** Parse all of text[0..len) as a finite decimal number. Returns 1, or 0 if it is not one. */
int frugi_read_double(const char *text, size_t len, double *value);

/** Parse all of text[0..len) as a decimal number below 2^64. Returns 1, or 0 if it is not one. */
int frugi_read_u64(const char *text, size_t len, uint64_t *value);

/** Print the shortest %g form that parses back to the same double. */
void frugi_write_double(double value, char text[FRUGI_NUMBER_TEXT_MAX]);

#endif

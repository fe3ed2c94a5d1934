/* number.h - numbers of a config string: read and written the same under every locale. */
#ifndef FRUGI_NUMBER_H
#define FRUGI_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define FRUGI_NUMBER_TEXT_MAX 32

/** Read all of text[0..len) as a finite decimal number. Returns 1, or 0 if it is none. */
int frugi_read_double(const char *text, size_t len, double *value);

/** Read all of text[0..len) as decimal digits below 2^64. Returns 1, or 0 if they are none. */
int frugi_read_u64(const char *text, size_t len, uint64_t *value);

/** Write the shortest %g form that reads back as the same double. */
void frugi_write_double(double value, char text[FRUGI_NUMBER_TEXT_MAX]);

#endif

/* text_buffer.h - text that grows: pages, charts and tables are put together in memory and written at once. */
#ifndef FRUGI_TEXT_BUFFER_H
#define FRUGI_TEXT_BUFFER_H

#include "io/error.h"

#include <stddef.h>

/** Text with a terminating zero, owned by whoever holds it; {0} is empty. */
typedef struct frugi_text {
    char *data;
    size_t len, cap;
    int failed; /* out of memory: the text is not whole */
} frugi_text;

/** Append. Running out of memory is remembered in `failed`. */
void frugi_put(frugi_text *to, const char *format, ...) FRUGI_SAY_PRINTF(2, 3);

/** Append as it stands. */
void frugi_put_raw(frugi_text *to, const char *text);

/**
 * Append words out of files so that they are words in HTML and XML, inside elements and inside quoted attributes:
 * markup is escaped, and what XML cannot say (control characters, U+FFFE, U+FFFF) becomes '?'.
 */
void frugi_put_escaped(frugi_text *to, const char *text);

void frugi_text_free(frugi_text *text);

/** Write a text as a file that appears whole or not at all. Returns FRUGI_EXIT_OK, or FRUGI_EXIT_FAIL after one line.
 */
int frugi_text_save(const frugi_text *text, const char *path);

/** How many characters (not bytes) a UTF-8 text has. */
size_t frugi_text_columns(const char *text);

/** A number with `digits` significant digits, no exponent, and no zeros behind the point that say nothing. */
const char *frugi_number_text(double number, int digits, char *dst, size_t cap);

#endif

/* text_buffer.h - text that grows: pages, charts and tables are put together in memory and written at once. */
#ifndef FGL_TEXT_BUFFER_H
#define FGL_TEXT_BUFFER_H

#include "io/error.h"

#include <stddef.h>

/** Text with a terminating zero, owned by whoever holds it; {0} is empty. */
typedef struct fgl_text {
    char *data;
    size_t len, cap;
    int failed; /* out of memory: the text is not whole */
} fgl_text;

/** Append. Running out of memory is remembered in `failed`. */
void fgl_put(fgl_text *to, const char *format, ...) FGIO_PRINTF(2, 3);

/** Append as it stands. */
void fgl_put_raw(fgl_text *to, const char *text);

/**
 * Append words out of files so that they are words in HTML and XML, inside elements and inside quoted attributes:
 * markup is escaped, and what XML cannot say (control characters, U+FFFE, U+FFFF) becomes '?'.
 */
void fgl_put_escaped(fgl_text *to, const char *text);

void fgl_text_free(fgl_text *text);

/** Write a text as a file that appears whole or not at all. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after one line.
 */
int fgl_text_save(const fgl_text *text, const char *path);

/** How many characters (not bytes) a UTF-8 text has. */
size_t fgl_text_columns(const char *text);

/** A number with `digits` significant digits, no exponent, and no zeros behind the point that say nothing. */
const char *fgl_number_text(double number, int digits, char *dst, size_t cap);

#endif

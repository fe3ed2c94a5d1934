/* text_buffer.h - a growing string: pages, charts and tables are built in memory and written at once. */
#ifndef FGL_TEXT_BUFFER_H
#define FGL_TEXT_BUFFER_H

#include "io/error.h"

#include <stddef.h>

/** A zero-terminated string; {0} is empty; free with fgl_text_free(). */
typedef struct fgl_text {
    char *data;
    size_t len, cap;
    int failed; /* out of memory: the text is incomplete */
} fgl_text;

/** Append formatted text. Out of memory sets `failed`. */
void fgl_put(fgl_text *to, const char *format, ...) FGIO_PRINTF(2, 3);

/** Append without formatting or escaping. */
void fgl_put_raw(fgl_text *to, const char *text);

/**
 * Append text from files, escaped for HTML and XML, inside elements and inside quoted attributes:
 * characters that XML cannot have (control characters, U+FFFE, U+FFFF) become '?'.
 */
void fgl_put_escaped(fgl_text *to, const char *text);

void fgl_text_free(fgl_text *text);

/** Write a text as a file that appears whole or not at all. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after one line.
 */
int fgl_text_save(const fgl_text *text, const char *path);

/** Number of characters (not bytes) of a UTF-8 text. */
size_t fgl_text_columns(const char *text);

/** A number with `digits` significant digits, no exponent, and no trailing zeros after the point. */
const char *fgl_number_text(double number, int digits, char *dst, size_t cap);

#endif

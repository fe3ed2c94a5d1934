/* shell_quote.h - commands as a person would type them. */
#ifndef FRUGI_SHELL_QUOTE_H
#define FRUGI_SHELL_QUOTE_H

#include <stddef.h>

/** Text that grows in a buffer of the caller and stops at its end. */
typedef struct frugi_writing {
    char *dst;
    size_t cap, used;
} frugi_writing;

/** Add a space and a word as a shell wants it: in quotes unless all of it is harmless. */
void frugi_put_word(frugi_writing *w, const char *word);

#endif

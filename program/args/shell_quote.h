/* shell_quote.h - commands as a person would type them. */
#ifndef FGP_SHELL_QUOTE_H
#define FGP_SHELL_QUOTE_H

#include <stddef.h>

/** Text that grows in a buffer of the caller and stops at its end. */
typedef struct fgp_writing {
    char *dst;
    size_t cap, used;
} fgp_writing;

/** Add a space and a word as a shell wants it: in quotes unless all of it is harmless. */
void fgp_put_word(fgp_writing *w, const char *word);

#endif

/* shell_quote.h - command lines as text that can be pasted into a shell. */
#ifndef FGP_SHELL_QUOTE_H
#define FGP_SHELL_QUOTE_H

#include <stddef.h>

/** A string that grows in a buffer of the caller and is cut at its end. */
typedef struct fgp_shell_text {
    char *dst;
    size_t cap, used;
} fgp_shell_text;

/** Append a space and an argument, quoted unless all its characters are safe. */
void fgp_append_quoted(fgp_shell_text *w, const char *word);

#endif

/*
 * shell_quote.c - quoting of arguments for a shell. Inside single quotes a shell interprets nothing; a quote itself has
 * to be outside of them.
 */
#include "program/args/shell_quote.h"

#include <string.h>

static void put_char(fgp_shell_text *w, char c) {
    if (w->used + 1 < w->cap)
        w->dst[w->used++] = c;
    w->dst[w->used] = '\0';
}

void fgp_append_quoted(fgp_shell_text *w, const char *word) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
    int quote = word[0] == '\0' || word[strspn(word, safe)] != '\0';
    put_char(w, ' ');
    if (quote)
        put_char(w, '\'');
    for (const char *p = word; *p != '\0'; p++) {
        for (const char *q = quote && *p == '\'' ? "'\\'" : ""; *q != '\0'; q++)
            put_char(w, *q);
        put_char(w, *p);
    }
    if (quote)
        put_char(w, '\'');
}

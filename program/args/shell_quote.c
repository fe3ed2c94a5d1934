/*
 * shell_quote.c - words for a shell. Inside single quotes a shell takes everything as it is but the quote itself, which
 * has to stand outside of them.
 */
#include "program/args/shell_quote.h"

#include <string.h>

static void put(fgp_writing *w, char c) {
    if (w->used + 1 < w->cap)
        w->dst[w->used++] = c;
    w->dst[w->used] = '\0';
}

void fgp_put_word(fgp_writing *w, const char *word) {
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
    int quote = word[0] == '\0' || word[strspn(word, harmless)] != '\0';
    put(w, ' ');
    if (quote)
        put(w, '\'');
    for (const char *p = word; *p != '\0'; p++) {
        for (const char *q = quote && *p == '\'' ? "'\\'" : ""; *q != '\0'; q++)
            put(w, *q);
        put(w, *p);
    }
    if (quote)
        put(w, '\'');
}

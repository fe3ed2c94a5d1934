/* keyword.h - a word of a config string with its position, and the errors that report it. */
#ifndef FRUGI_KEYWORD_H
#define FRUGI_KEYWORD_H

#include "base/status.h"

typedef struct frugi_word {
    const char *at;
    size_t len;
    size_t position; /* of the first character in the whole string, from 1 */
} frugi_word;

/** Whether a word equals text. */
int frugi_word_is(frugi_word word, const char *text);

/** Remove the part before the first separator from *rest and return it; all of *rest if there is no separator. */
frugi_word frugi_word_split(frugi_word *rest, char separator);

/** The i-th accepted word, or NULL past the end. */
typedef const char *frugi_choice_fn(const void *ctx, size_t i, size_t *len);

/** The choices of a text such as "hist|exact". */
const char *frugi_choice_of_text(const void *text, size_t i, size_t *len);

/** Find the number of the choice that equals word. Returns 1, or 0 if there is none. */
int frugi_word_find(frugi_word word, frugi_choice_fn *choice, const void *ctx, size_t *which);

/**
 * Fail because word is none of the choices. The error has the word, its position and the nearest
 * choice, or all choices if none is near.
 *
 *   what, of   "option", ""; "value", " of select"; ...
 */
frug_status frugi_word_unknown(frugi_word word, const char *what, const char *of, frugi_choice_fn *choice,
                               const void *ctx);

/** Number of characters to print with "%.*s": a long word is cut to 48. */
int frugi_word_shown(frugi_word word);

#endif

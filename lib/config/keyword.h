/* keyword.h - a word of a config string that knows its place, and the errors that name it. */
#ifndef FRUGI_KEYWORD_H
#define FRUGI_KEYWORD_H

#include "base/status.h"

typedef struct frugi_word {
    const char *at;
    size_t len;
    size_t position; /* of the first character in the whole string, from 1 */
} frugi_word;

/** Whether a word is spelled like this. */
int frugi_word_is(frugi_word word, const char *text);

/** Take the part before the first separator off the front of *rest; a missing separator takes it all. */
frugi_word frugi_word_split(frugi_word *rest, char separator);

/** The i-th of the words that can stand somewhere, or NULL past the end. */
typedef const char *frugi_choice_fn(const void *ctx, size_t i, size_t *len);

/** The choices of a text such as "hist|exact". */
const char *frugi_choice_of_text(const void *text, size_t i, size_t *len);

/** The number of the choice spelled like word. Returns 1, or 0 if there is none. */
int frugi_word_find(frugi_word word, frugi_choice_fn *choice, const void *ctx, size_t *which);

/**
 * Fail because word is none of the choices: name it, its position and the nearest
 * choice, or all of them when none is near.
 *
 *   what, of   "option", ""; "value", " of select"; ...
 */
frug_status frugi_word_unknown(frugi_word word, const char *what, const char *of, frugi_choice_fn *choice,
                               const void *ctx);

/** Length for "%.*s" that keeps a long word from drowning the message. */
int frugi_word_shown(frugi_word word);

#endif

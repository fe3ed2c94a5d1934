/* config_token.h - a token of a config string with its position, and the errors that report it. */
#ifndef FRUGI_CONFIG_TOKEN_H
#define FRUGI_CONFIG_TOKEN_H

#include "base/status.h"

typedef struct frugi_token {
    const char *at;
    size_t len;
    size_t position; /* of the first character in the whole string, from 1 */
} frugi_token;

/** Whether a token equals text. */
int frugi_token_is(frugi_token token, const char *text);

/** Remove the part before the first separator from *rest and return it; all of *rest if there is no separator. */
frugi_token frugi_token_split(frugi_token *rest, char separator);

/** The i-th accepted token, or NULL past the end. */
typedef const char *frugi_choice_fn(const void *ctx, size_t i, size_t *len);

/** The choices of a text such as "hist|exact". */
const char *frugi_choice_of_text(const void *text, size_t i, size_t *len);

/** Find the number of the choice that equals token. Returns 1, or 0 if there is none. */
int frugi_token_find(frugi_token token, frugi_choice_fn *choice, const void *ctx, size_t *which);

/**
 * Fail because token is none of the choices. The error has the token, its position and the nearest
 * choice, or all choices if none is near.
 *
 *   what, of   "option", ""; "value", " of select"; ...
 */
frug_status frugi_token_unknown(frugi_token token, const char *what, const char *of, frugi_choice_fn *choice,
                                const void *ctx);

/** Number of characters to print with "%.*s": a long token is cut to 48. */
int frugi_token_shown(frugi_token token);

#endif

/*
 * config_token.c - find a token in a list of choices, or the choice that was probably meant.
 *
 * The suggestion has the smallest edit distance with transpositions (insert, delete, replace and swap of
 * adjacent letters cost one each), since swapped letters are the most common typo. A choice is suggested up to
 * a distance of half the token's length; beyond that all choices are listed instead.
 */
#include "config/config_token.h"
#include "base/edit_distance.h"

#include <stdio.h>
#include <string.h>

int frugi_token_is(frugi_token token, const char *text) {
    return strlen(text) == token.len && memcmp(text, token.at, token.len) == 0;
}

frugi_token frugi_token_split(frugi_token *rest, char separator) {
    const char *end = memchr(rest->at, separator, rest->len);
    frugi_token head = *rest;
    if (end)
        head.len = (size_t)(end - rest->at);
    size_t consumed = head.len + (end != NULL);
    rest->at += consumed;
    rest->len -= consumed;
    rest->position += consumed;
    return head;
}

const char *frugi_choice_of_text(const void *text, size_t i, size_t *len) {
    const char *at = text;
    for (; i > 0; i--) {
        at = strchr(at, '|');
        if (!at)
            return NULL;
        at++;
    }
    *len = strcspn(at, "|");
    return at;
}

int frugi_token_find(frugi_token token, frugi_choice_fn *choice, const void *ctx, size_t *which) {
    size_t len = 0;
    const char *text;
    for (size_t i = 0; (text = choice(ctx, i, &len)); i++) {
        if (len == token.len && memcmp(text, token.at, len) == 0) {
            *which = i;
            return 1;
        }
    }
    return 0;
}

static const char *find_nearest(frugi_token token, frugi_choice_fn *choice, const void *ctx, size_t *near_len) {
    const char *best = NULL, *text;
    size_t len = 0, best_distance = token.len / 2 + 1;
    if (token.len < 2)
        return NULL;
    for (size_t i = 0; (text = choice(ctx, i, &len)); i++) {
        size_t d = frugi_edit_distance(token.at, token.len, text, len);
        if (d < best_distance) {
            best = text;
            best_distance = d;
            *near_len = len;
        }
    }
    return best;
}

static void list_choices(frugi_choice_fn *choice, const void *ctx, char *dst, size_t cap) {
    size_t used = 0, len = 0;
    const char *text;
    dst[0] = '\0';
    for (size_t i = 0; (text = choice(ctx, i, &len)); i++) {
        int n = snprintf(dst + used, cap - used, "%s%.*s", i ? " " : "", (int)len, text);
        if (n < 0 || (size_t)n >= cap - used)
            return;
        used += (size_t)n;
    }
}

frug_status frugi_token_unknown(frugi_token token, const char *what, const char *of, frugi_choice_fn *choice,
                                const void *ctx) {
    size_t near_len = 0;
    const char *near = find_nearest(token, choice, ctx, &near_len);
    int shown = frugi_token_shown(token);
    if (near)
        return frugi_fail(FRUG_ERR_CONFIG, "config: unknown %s '%.*s'%s at position %zu; did you mean '%.*s'?", what,
                          shown, token.at, of, token.position, (int)near_len, near);
    char all[384];
    list_choices(choice, ctx, all, sizeof all);
    return frugi_fail(FRUG_ERR_CONFIG, "config: unknown %s '%.*s'%s at position %zu; accepted: %s", what, shown,
                      token.at, of, token.position, all);
}

int frugi_token_shown(frugi_token token) {
    return token.len > 48 ? 48 : (int)token.len;
}

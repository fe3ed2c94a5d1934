/* unicode.h - what the tokenizers have to know about characters. */
#ifndef FRUGI_UNICODE_H
#define FRUGI_UNICODE_H

#include <stddef.h>
#include <stdint.h>

typedef enum frugi_char {
    FRUGI_CHAR_OTHER, /* symbols, marks, all that is none of the below */
    FRUGI_CHAR_LETTER,
    FRUGI_CHAR_NUMBER,
    FRUGI_CHAR_SPACE,
    FRUGI_CHAR_PUNCTUATION,
    FRUGI_CHAR_CONTROL /* Cc and Cf that are not white space */
} frugi_char;

enum { FRUGI_REPLACEMENT = 0xFFFD, FRUGI_FOLD_MAX = 4 };

/** Decode one character of at least one byte. Returns its length in bytes; a byte that is not UTF-8 counts as one
 * FRUGI_REPLACEMENT. */
size_t frugi_utf8_get(const unsigned char *text, size_t len, uint32_t *point);

/** Encode a code point. Returns the bytes written, at most 4. */
size_t frugi_utf8_put(uint32_t point, unsigned char *dst);

/** The class of a code point. */
frugi_char frugi_char_class(uint32_t point);

/** Lower case without accents: the code points that one becomes, at most FRUGI_FOLD_MAX; returns how many (0: a mark
 * that disappears). */
size_t frugi_char_fold(uint32_t point, uint32_t *dst);

#endif

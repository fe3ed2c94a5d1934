/* unicode.h - UTF-8, character classes and case folding for the tokenizers. */
#ifndef FGT_UNICODE_H
#define FGT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

typedef enum fgt_char {
    FGT_CHAR_OTHER, /* symbols, marks, everything else */
    FGT_CHAR_LETTER,
    FGT_CHAR_NUMBER,
    FGT_CHAR_SPACE,
    FGT_CHAR_PUNCTUATION,
    FGT_CHAR_CONTROL /* Cc and Cf that are not white space */
} fgt_char;

enum { FGT_REPLACEMENT = 0xFFFD, FGT_FOLD_MAX = 4 };

/** Decodes one character; len >= 1. Returns its length in bytes; a byte that is not UTF-8 is one FGT_REPLACEMENT. */
size_t fgt_utf8_get(const unsigned char *text, size_t len, uint32_t *point);

/** Encode a code point. Returns the bytes written, at most 4. */
size_t fgt_utf8_put(uint32_t point, unsigned char *dst);

/** The class of a code point. */
fgt_char fgt_char_class(uint32_t point);

/** Lower case without accents: the code points of the result, at most FGT_FOLD_MAX; returns how many (0: a removed
 * mark). */
size_t fgt_char_fold(uint32_t point, uint32_t *dst);

#endif

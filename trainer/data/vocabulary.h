/*
 * vocabulary.h - two containers of the tokenizers: words (byte strings that have a number) and ids (a growing list of token
 * numbers, two bytes each where the vocabulary allows, four otherwise).
 */
#ifndef FRUGI_VOCABULARY_H
#define FRUGI_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#define FRUGI_NO_WORD UINT32_MAX

typedef struct frugi_word {
    size_t at; /* in the pool */
    uint32_t len, hash, value;
} frugi_word;

/** A hash table of byte strings; {0} is an empty one. */
typedef struct frugi_words {
    unsigned char *pool; /* all bytes, one word behind the other */
    frugi_word *words;   /* in the order they came */
    uint32_t *slots;     /* number of a word + 1, 0: free */
    size_t pool_len, pool_cap;
    uint32_t count, cap, mask;
} frugi_words;

void frugi_words_free(frugi_words *words);

/** The value of a word, or FRUGI_NO_WORD. */
uint32_t frugi_words_get(const frugi_words *words, const unsigned char *bytes, size_t len);

/** Give a word a value (not FRUGI_NO_WORD), also one that has one. Returns 0, or -1 without memory. */
int frugi_words_put(frugi_words *words, const unsigned char *bytes, size_t len, uint32_t value);

/** Token numbers; {.wide = w} is an empty list. */
typedef struct frugi_ids {
    void *data;
    size_t len, cap;
    int wide; /* 0: uint16_t, 1: int32_t */
} frugi_ids;

void frugi_ids_free(frugi_ids *ids);

/** Append; wide ids need a wide list. Returns 0, or -1 without memory. */
int frugi_ids_push(frugi_ids *ids, uint32_t id);

static inline int32_t frugi_ids_at(const frugi_ids *ids, size_t i) {
    return ids->wide ? ((const int32_t *)ids->data)[i] : ((const uint16_t *)ids->data)[i];
}

#endif

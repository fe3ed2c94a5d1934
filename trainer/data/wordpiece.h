/* wordpiece.h - BERT's WordPiece tokens, for uncased vocabularies. */
#ifndef FRUGI_WORDPIECE_H
#define FRUGI_WORDPIECE_H

#include "io/error.h"
#include "trainer/data/vocabulary.h"

typedef struct frugi_wordpiece frugi_wordpiece;

/** Read a vocabulary: a token a line, numbered from 0; [UNK], [CLS], [SEP] and [MASK] must be there. Returns 0, or -1
 * and why. */
int frugi_wordpiece_create(const unsigned char *text, size_t len, frugi_wordpiece **pieces, frugi_why *why);
void frugi_wordpiece_destroy(frugi_wordpiece *pieces);

/** The vocabulary from a file, packed or not. Returns an exit status, after one line on stderr. */
int frugi_wordpiece_open(const char *path, frugi_wordpiece **pieces);

/** Numbers of the tokens that have a meaning of their own. */
typedef struct frugi_wordpiece_special {
    uint32_t unknown, first, separator, mask; /* [UNK], [CLS], [SEP], [MASK] */
} frugi_wordpiece_special;

const frugi_wordpiece_special *frugi_wordpiece_specials(const frugi_wordpiece *pieces);
uint32_t frugi_wordpiece_vocab(const frugi_wordpiece *pieces);

/** The text of a token without the ## of those that continue a word, which *rest tells; id < vocab. */
const unsigned char *frugi_wordpiece_piece(const frugi_wordpiece *pieces, uint32_t id, size_t *len, int *rest);

/** What is kept between texts: words already seen. {0} is empty; one per thread. */
typedef struct frugi_wordpiece_cache {
    frugi_words words; /* -> place in known */
    frugi_ids known;   /* length, ids, length, ids, ... */
} frugi_wordpiece_cache;

void frugi_wordpiece_cache_free(frugi_wordpiece_cache *cache);

/** Append the tokens of a text, without special ones. Bytes that are not UTF-8 are passed over. Returns 0, or -1
 * without memory. */
int frugi_wordpiece_encode(const frugi_wordpiece *pieces, frugi_wordpiece_cache *cache, const unsigned char *text,
                           size_t len, frugi_ids *ids);

#endif

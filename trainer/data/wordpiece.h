/* wordpiece.h - BERT's WordPiece tokens, for uncased vocabularies. */
#ifndef FGT_WORDPIECE_H
#define FGT_WORDPIECE_H

#include "io/error.h"
#include "trainer/data/vocabulary.h"

typedef struct fgt_wordpiece fgt_wordpiece;

/** Reads a vocabulary: one token per line, ids from 0; [UNK], [CLS], [SEP] and [MASK] are required. Returns 0, or -1
 * and why. */
int fgt_wordpiece_create(const unsigned char *text, size_t len, fgt_wordpiece **pieces, fgio_reason *why);
void fgt_wordpiece_destroy(fgt_wordpiece *pieces);

/** Reads the vocabulary from a file, compressed or not. Returns an exit status, after an error message. */
int fgt_wordpiece_open(const char *path, fgt_wordpiece **pieces);

/** Ids of the special tokens. */
typedef struct fgt_wordpiece_special {
    uint32_t unknown, first, separator, mask; /* [UNK], [CLS], [SEP], [MASK] */
} fgt_wordpiece_special;

const fgt_wordpiece_special *fgt_wordpiece_specials(const fgt_wordpiece *pieces);
uint32_t fgt_wordpiece_vocab(const fgt_wordpiece *pieces);

/** The text of a token without the ## of those that continue a word, for which *is_continuation is set; id < vocab. */
const unsigned char *fgt_wordpiece_piece(const fgt_wordpiece *pieces, uint32_t id, size_t *len, int *is_continuation);

/** Cache of words already seen. {0} is empty; one per thread. */
typedef struct fgt_wordpiece_cache {
    fgt_string_map words; /* -> index in cached_ids */
    fgt_ids cached_ids;   /* length, ids, length, ids, ... */
} fgt_wordpiece_cache;

void fgt_wordpiece_cache_free(fgt_wordpiece_cache *cache);

/** Appends the tokens of a text, without special ones. Bytes that are not UTF-8 are skipped. Returns 0, or -1 without
 * memory. */
int fgt_wordpiece_encode(const fgt_wordpiece *pieces, fgt_wordpiece_cache *cache, const unsigned char *text, size_t len,
                         fgt_ids *ids);

#endif

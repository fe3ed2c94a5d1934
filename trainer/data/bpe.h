/* bpe.h - GPT-2's byte-level BPE: a vocabulary, merges, text to ids and back. */
#ifndef FRUGI_BPE_H
#define FRUGI_BPE_H

#include "io/error.h"
#include "trainer/data/vocabulary.h"

typedef struct frugi_bpe frugi_bpe;

/** Read a vocabulary (encoder.json: a JSON object of token and number). Returns 0, or -1 and why. */
int frugi_bpe_create(const unsigned char *json, size_t len, frugi_bpe **bpe, frugi_why *why);

/** Read the merges (vocab.bpe: two tokens a line, the most important first). Once, before anything is encoded. */
int frugi_bpe_merges(frugi_bpe *bpe, const unsigned char *text, size_t len, frugi_why *why);

void frugi_bpe_destroy(frugi_bpe *bpe);

uint32_t frugi_bpe_vocab(const frugi_bpe *bpe);

/** The number of <|endoftext|>, or -1. */
int32_t frugi_bpe_end(const frugi_bpe *bpe);

/** The bytes of a token; id < vocab. */
const unsigned char *frugi_bpe_piece(const frugi_bpe *bpe, uint32_t id, size_t *len);

/** Append the tokens of a text. Any bytes will do. Returns 0, or -1 without memory. Any number of threads. */
int frugi_bpe_encode(const frugi_bpe *bpe, const unsigned char *text, size_t len, frugi_ids *ids);

/** Where the word that begins at text[at] ends, by GPT-2's rule; at < len. */
size_t frugi_bpe_word_end(const unsigned char *text, size_t len, size_t at);

/** Inner: the merge of two tokens: its product, or FRUGI_NO_WORD, and its rank. */
uint32_t frugi_bpe_merge(const frugi_bpe *bpe, uint32_t left, uint32_t right, uint32_t *rank);
uint32_t frugi_bpe_byte(const frugi_bpe *bpe, unsigned char byte);

#endif

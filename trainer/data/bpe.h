/* bpe.h - GPT-2's byte-level BPE: vocabulary, merges, text to ids and back. */
#ifndef FGT_BPE_H
#define FGT_BPE_H

#include "io/error.h"
#include "trainer/data/vocabulary.h"

typedef struct fgt_bpe fgt_bpe;

/** Reads a vocabulary (encoder.json: a JSON object of tokens and ids). Returns 0, or -1 and why. */
int fgt_bpe_create(const unsigned char *json, size_t len, fgt_bpe **bpe, fgio_reason *why);

/** Reads the merges (vocab.bpe: two tokens per line, highest priority first). Once, before anything is encoded. */
int fgt_bpe_merges(fgt_bpe *bpe, const unsigned char *text, size_t len, fgio_reason *why);

void fgt_bpe_destroy(fgt_bpe *bpe);

uint32_t fgt_bpe_vocab(const fgt_bpe *bpe);

/** The id of <|endoftext|>, or -1. */
int32_t fgt_bpe_end(const fgt_bpe *bpe);

/** The bytes of a token; id < vocab. */
const unsigned char *fgt_bpe_piece(const fgt_bpe *bpe, uint32_t id, size_t *len);

/** Appends the tokens of a text, which may have any bytes. Returns 0, or -1 without memory. Thread-safe. */
int fgt_bpe_encode(const fgt_bpe *bpe, const unsigned char *text, size_t len, fgt_ids *ids);

/** End of the word that begins at text[at], by GPT-2's rule; at < len. */
size_t fgt_bpe_word_end(const unsigned char *text, size_t len, size_t at);

/** How the files of a tokenizer write some bytes: one printable character of UTF-8 for each. dst has 2 * len bytes.
 * Returns how many it needs. */
size_t fgt_bpe_spell(const unsigned char *bytes, size_t len, char *dst);

/** Internal: the merge of two tokens: its product, or FGT_STRING_NONE, and its rank. */
uint32_t fgt_bpe_merge(const fgt_bpe *bpe, uint32_t left, uint32_t right, uint32_t *rank);
uint32_t fgt_bpe_byte(const fgt_bpe *bpe, unsigned char byte);

#endif

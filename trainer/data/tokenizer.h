/*
 * tokenizer.h - text to tokens and back, for language models: single bytes, or GPT-2's byte-level BPE.
 *
 * Both are lossless: decoding encoded text gives the same bytes.
 */
#ifndef FGT_TOKENIZER_H
#define FGT_TOKENIZER_H

#include "io/files.h"
#include "trainer/data/vocabulary.h"

typedef struct fgt_tokenizer fgt_tokenizer;

/** "bytes", or a directory with GPT-2's encoder.json and vocab.bpe (also called gpt2_encoder.json and gpt2_vocab.bpe,
 * or vocab.json and merges.txt). Returns an exit status, after one line on stderr. */
int fgt_tokenizer_open(const char *where, fgt_tokenizer **tokens);
void fgt_tokenizer_close(fgt_tokenizer *tokens);

/** Size of the vocabulary. */
uint32_t fgt_tokenizer_vocab(const fgt_tokenizer *tokens);

/** The token that ends a text, or -1 where there is none. */
int32_t fgt_tokenizer_end(const fgt_tokenizer *tokens);

/** Appends the tokens of a text to a list, which must be wide if the vocabulary is over 65,536. Returns an exit status,
 * after an error message (memory). Thread-safe. */
int fgt_tokenizer_encode(const fgt_tokenizer *tokens, const void *text, size_t len, fgt_ids *ids);

/** The bytes of one token, not terminated; they may be part of a character. Empty for ids outside the vocabulary. */
const unsigned char *fgt_tokenizer_piece(const fgt_tokenizer *tokens, int32_t id, size_t *len);

/** The bytes of n tokens. Returns an exit status, after one line on stderr (memory). */
int fgt_tokenizer_decode(const fgt_tokenizer *tokens, const int32_t *ids, size_t n, fgio_bytes *text);

#endif

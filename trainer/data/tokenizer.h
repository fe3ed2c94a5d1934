/*
 * tokenizer.h - text to tokens and back, for language models: single bytes, or GPT-2's byte-level BPE.
 *
 * Both are lossless: decoding encoded text gives the same bytes.
 */
#ifndef FGT_TOKENIZER_H
#define FGT_TOKENIZER_H

#include "io/files.h"
#include "trainer/data/vocabulary.h"

typedef struct fgt_tokens fgt_tokens;

/** "bytes", or a directory with GPT-2's encoder.json and vocab.bpe (also called gpt2_encoder.json and gpt2_vocab.bpe,
 * or vocab.json and merges.txt). Returns an exit status, after one line on stderr. */
int fgt_tokens_open(const char *where, fgt_tokens **tokens);
void fgt_tokens_close(fgt_tokens *tokens);

/** Size of the vocabulary. */
uint32_t fgt_tokens_vocab(const fgt_tokens *tokens);

/** The token that ends a text, or -1 where there is none. */
int32_t fgt_tokens_end(const fgt_tokens *tokens);

/** Appends the tokens of a text to a list, which must be wide if the vocabulary is over 65,536. Returns an exit status,
 * after an error message (memory). Thread-safe. */
int fgt_tokens_encode(const fgt_tokens *tokens, const void *text, size_t len, fgt_ids *ids);

/** The bytes of one token, not terminated; they may be part of a character. Empty for ids outside the vocabulary. */
const unsigned char *fgt_tokens_piece(const fgt_tokens *tokens, int32_t id, size_t *len);

/** The bytes of n tokens. Returns an exit status, after one line on stderr (memory). */
int fgt_tokenizer_decode(const fgt_tokens *tokens, const int32_t *ids, size_t n, fgio_bytes *text);

#endif

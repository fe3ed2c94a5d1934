/*
 * tokenizer.h - text to tokens and back, for language models: single bytes, or GPT-2's byte-level BPE.
 *
 * Both are lossless: decoding what was encoded gives the same bytes, whatever they are.
 */
#ifndef FRUGI_TOKENIZER_H
#define FRUGI_TOKENIZER_H

#include "io/files.h"
#include "trainer/data/vocabulary.h"

typedef struct frugi_tokens frugi_tokens;

/** "bytes", or a directory with GPT-2's encoder.json and vocab.bpe (also called gpt2_encoder.json and gpt2_vocab.bpe,
 * or vocab.json and merges.txt). Returns an exit status, after one line on stderr. */
int frugi_tokens_open(const char *where, frugi_tokens **tokens);
void frugi_tokens_close(frugi_tokens *tokens);

/** How many tokens there are. */
uint32_t frugi_tokens_vocab(const frugi_tokens *tokens);

/** The token that ends a text, or -1 where there is none. */
int32_t frugi_tokens_end(const frugi_tokens *tokens);

/** Append the tokens of a text to a list, which must be wide if the vocabulary is over 65,536. Returns an exit status,
 * after one line on stderr (memory). Any number of threads. */
int frugi_tokens_encode(const frugi_tokens *tokens, const void *text, size_t len, frugi_ids *ids);

/** The bytes of one token, not terminated; they may be part of a character. Numbers outside the vocabulary have none.
 */
const unsigned char *frugi_tokens_piece(const frugi_tokens *tokens, int32_t id, size_t *len);

/** The bytes of n tokens. Returns an exit status, after one line on stderr (memory). */
int frugi_tokens_decode(const frugi_tokens *tokens, const int32_t *ids, size_t n, frugi_bytes *text);

#endif

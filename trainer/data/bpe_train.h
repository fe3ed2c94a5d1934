/*
 * bpe_train.h - learns a byte-level BPE from text: a vocabulary and merges, in the form of GPT-2's files.
 */
#ifndef FGT_BPE_TRAIN_H
#define FGT_BPE_TRAIN_H

#include "io/error.h"
#include "io/files.h"
#include "trainer/data/vocabulary.h"

/** Adds the words of a text, by GPT-2's rule, to the number of times that each has been seen. {0} is none. Words of
 * more than 64 bytes are not counted. Returns 0, or -1 without memory. */
int fgt_bpe_count_words(fgt_string_map *counts, const unsigned char *text, size_t len);

/**
 * Learns merges until the vocabulary has `vocab` tokens: the 256 bytes, a token for each merge, and at last
 * <|endoftext|>. *vocabulary and *merges are the contents of vocab.json and merges.txt. The same counts give the same
 * files, whatever order the words came in. Returns 0, or -1 and why: memory, or too few words.
 */
int fgt_bpe_train(const fgt_string_map *counts, uint32_t vocab, fgio_bytes *vocabulary, fgio_bytes *merges,
                  fgio_reason *why);

#endif

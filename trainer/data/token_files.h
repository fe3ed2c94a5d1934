/*
 * token_files.h - texts that are already tokenized: files of little-endian 16-bit ids, one for each split.
 *
 * Either train.u16, valid.u16 and test.u16, with their vocabulary in vocab.json (a JSON object of all tokens and their
 * ids), or train.gpt2bpe.u16 and so on, with GPT-2's vocabulary. All but the first may be missing, and every file may
 * be compressed.
 */
#ifndef FGT_TOKEN_FILES_H
#define FGT_TOKEN_FILES_H

#include "trainer/data/data_set.h"
#include "trainer/data/vocabulary.h"

/** Whether a directory has such files. */
int fgt_token_files_exist(const char *dir);

/** Reads them, and the number of tokens in their vocabulary. Returns an exit status, after an error message. */
int fgt_token_files_read(const char *dir, fgt_ids ids[FGT_SPLITS], uint32_t *vocab);

#endif

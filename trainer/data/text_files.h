/* text_files.h - the bytes of a text per split: named files of a directory, or any text divided into three splits. */
#ifndef FGT_TEXT_FILES_H
#define FGT_TEXT_FILES_H

#include "trainer/data/data_set.h"

#include <stddef.h>

/** Called with the next piece of a split; a piece ends only where a token does. Returns an exit status. */
typedef int fgt_text_fn(void *ctx, fgt_split split, const unsigned char *text, size_t len);

/** Reads a text: a directory with train.txt (valid.txt, test.txt), or wiki.train.tokens or wiki.train.raw (wiki.valid
 * and wiki.test likewise; WikiText), or else any file, or all .txt files of a directory by name but a tokenizer's
 * merges.txt and vocab.txt, of which the first 90 % are for training, the next 5 % for validation and the last 5 % for
 * testing. Returns an exit status, after an error message. */
int fgt_text_read(const char *path, fgt_text_fn *fn, void *ctx);

/** Whether a directory has files of text for each split. */
int fgt_text_has_splits(const char *dir);

/** Reads a plain file in pieces of about this many bytes, so that the file is never in memory as a whole. As above. */
int fgt_text_stream(const char *path, size_t piece, fgt_split split, fgt_text_fn *fn, void *ctx);

#endif

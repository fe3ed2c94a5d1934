/* text_files.h - the bytes of a text, split by split: named files of a directory, or any text cut into three. */
#ifndef FGT_TEXT_FILES_H
#define FGT_TEXT_FILES_H

#include "trainer/data/data_set.h"

#include <stddef.h>

/** What to do with the next piece of a split; a piece ends where no token does not. Returns an exit status. */
typedef int fgt_text_fn(void *ctx, fgt_split split, const unsigned char *text, size_t len);

/**
 * Hand out a text: a directory with train.txt (valid.txt, test.txt), or wiki.train.tokens or wiki.train.raw (wiki.valid
 * and wiki.test likewise; WikiText), or else any file, or all .txt files of a directory by name, of which the first 90
 * % train, the next 5 % validate and the last 5 % test. Returns an exit status, after one line on stderr.
 */
int fgt_text_read(const char *path, fgt_text_fn *fn, void *ctx);

/** Hand out a plain file in pieces of about so many bytes: memory is theirs, not the file's. As above. */
int fgt_text_stream(const char *path, size_t piece, fgt_split split, fgt_text_fn *fn, void *ctx);

#endif

/*
 * linux_text.h - a sample of Linux, source and documentation, from the archive of Debian's package linux-source-6.1: a
 * text of real size that anyone can get.
 *
 * Which files are in it, and in which split, depends on their names alone: the same archive always gives the same
 * sample. Files are the unit, so no validation text stands beside training text in one file.
 */
#ifndef FGT_LINUX_TEXT_H
#define FGT_LINUX_TEXT_H

#include "trainer/data/data_set.h"

/** A file of the sample. */
typedef struct fgt_document {
    uint64_t order; /* documents are sorted by it */
    size_t at;      /* in the text */
    uint32_t len;
    fgt_split split;
} fgt_document;

/** The sample; {0} is an empty one. */
typedef struct fgt_corpus {
    unsigned char *text;
    fgt_document *documents;
    size_t text_len, text_cap, count, cap;
} fgt_corpus;

/** Reads an archive (.tar, .tar.xz, .tar.gz) and keeps all documentation and `percent` in 100 of the source files.
 * Returns an exit status, after an error message. */
int fgt_linux_text_read(const char *path, uint32_t percent, fgt_corpus *corpus);

void fgt_corpus_free(fgt_corpus *corpus);

#endif

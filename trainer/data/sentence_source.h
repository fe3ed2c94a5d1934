/*
 * sentence_source.h - shared by all data sets of labeled sentences: rows are tokenized as they are read, [CLS] A [SEP]
 * (B [SEP]). A reader of files (glue_source.c, question_files.c) only extracts the rows.
 */
#ifndef FGT_SENTENCE_SOURCE_H
#define FGT_SENTENCE_SOURCE_H

#include "trainer/data/data_source.h"
#include "trainer/data/wordpiece.h"

/** Bytes of a file, not terminated; .text NULL: none. */
typedef struct fgt_text_span {
    const unsigned char *text;
    size_t len;
} fgt_text_span;

/** A row of a file. */
typedef struct fgt_sentence {
    fgt_text_span a, b; /* b.text NULL: one sentence */
    float label;
} fgt_sentence;

/** A data set being read. */
typedef struct fgt_sentences {
    fgt_data *data;
    fgt_wordpiece *pieces;
    fgt_wordpiece_cache cache;
    fgt_ids a, b; /* tokens of the sentences of one row */
    size_t cap;   /* capacity of the split being read */
} fgt_sentences;

/** Begins a data set: opens the vocabulary. Returns an exit status, after an error message. */
int fgt_sentences_begin(const fgt_data_options *options, uint32_t classes, const char *name, fgt_data *data,
                        fgt_sentences *s);

/** Appends a row to a split; the rows of one split are consecutive. Returns 0, or -1 and why. */
int fgt_sentences_add(fgt_sentences *s, fgt_split split, const fgt_sentence *row, fgio_reason *why);

/** Frees what only reading needs. */
void fgt_sentences_end(fgt_sentences *s);

/** The task: the given subset, or the name of the directory. */
const char *fgt_sentences_task(const fgt_data_options *options, const fgt_data *data);

#endif

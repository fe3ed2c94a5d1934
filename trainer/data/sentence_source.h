/*
 * sentence_source.h - what all data sets of labelled sentences share: rows become tokens as they are read,
 * [CLS] A [SEP] (B [SEP]). A reader of files (glue_source.c, question_files.c) only says what stands in them.
 */
#ifndef FRUGI_SENTENCE_SOURCE_H
#define FRUGI_SENTENCE_SOURCE_H

#include "trainer/data/data_source.h"
#include "trainer/data/wordpiece.h"

/** Bytes of a file, not terminated; .text NULL: none. */
typedef struct frugi_span {
    const unsigned char *text;
    size_t len;
} frugi_span;

/** A row as a file has it. */
typedef struct frugi_sentence {
    frugi_span a, b; /* b.text NULL: one sentence */
    float label;
} frugi_sentence;

/** A data set being read. */
typedef struct frugi_sentences {
    frugi_data *data;
    frugi_wordpiece *pieces;
    frugi_wordpiece_cache cache;
    frugi_ids a, b; /* tokens of the sentences of one row */
    size_t cap;     /* rows that there is room for in the split being read */
} frugi_sentences;

/** Begin a data set: open the vocabulary. Returns an exit status, after one line on stderr. */
int frugi_sentences_begin(const frugi_data_want *want, uint32_t classes, const char *name, frugi_data *data,
                          frugi_sentences *s);

/** Append a row to a split; the rows of one split come one after the other. Returns 0, or -1 and why. */
int frugi_sentences_add(frugi_sentences *s, frugi_split split, const frugi_sentence *row, frugi_why *why);

/** Let go of what only reading needs. */
void frugi_sentences_end(frugi_sentences *s);

/** What the caller asked for, or else what the directory is called. */
const char *frugi_sentences_task(const frugi_data_want *want, const frugi_data *data);

#endif

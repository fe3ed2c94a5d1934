/* question_files.h - two forms in which questions come as JSON, read as pairs with a label of 0 or 1. */
#ifndef FGT_QUESTION_FILES_H
#define FGT_QUESTION_FILES_H

#include "trainer/data/sentence_source.h"

/** What to do with a pair, which is gone afterwards. Returns 0, or -1 and why, which ends the reading. */
typedef int fgt_pair_fn(void *ctx, const fgt_sentence *pair, fgio_why *why);

/**
 * BoolQ: a JSON object a line, of which question, passage and answer (true, false) count: (question, passage), 1 if the
 * answer is true. Blank lines are passed over. Returns 0, or -1 and why, with the line.
 */
int fgt_boolq_read(const unsigned char *text, size_t len, fgt_pair_fn *fn, void *ctx, fgio_why *why);

/**
 * ARC as LLM-Adapters has it: a JSON array of objects, whose "instruction" holds a question and choices and whose
 * "answer" names one: a pair (question, choice) for each choice, 1 for that one. Returns 0, or -1 and why, with the
 * line where it is no JSON and the row, from 1, where it is something else.
 */
int fgt_choices_read(const unsigned char *text, size_t len, fgt_pair_fn *fn, void *ctx, fgio_why *why);

#endif

/* question_files.h - two JSON formats of questions, read as pairs with a label of 0 or 1. */
#ifndef FGT_QUESTION_FILES_H
#define FGT_QUESTION_FILES_H

#include "trainer/data/sentence_source.h"

/** Called with a pair, which is valid only during the call. Returns 0, or -1 and why, which ends the reading. */
typedef int fgt_pair_fn(void *ctx, const fgt_sentence *pair, fgio_reason *why);

/** BoolQ: a JSON object per line, with question, passage and answer (true, false): the pair (question, passage), 1 if
 * the answer is true. Blank lines are skipped. Returns 0, or -1 and why, with the line. */
int fgt_boolq_read(const unsigned char *text, size_t len, fgt_pair_fn *fn, void *ctx, fgio_reason *why);

/** ARC in the format of LLM-Adapters: a JSON array of objects, whose "instruction" has a question and choices and whose
 * "answer" names one: a pair (question, choice) for each choice, 1 for the answer. Returns 0, or -1 and why, with the
 * line of a JSON error or else the row, from 1. */
int fgt_choices_read(const unsigned char *text, size_t len, fgt_pair_fn *fn, void *ctx, fgio_reason *why);

#endif

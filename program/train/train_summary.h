/* train_summary.h - the summary of a run or an evaluation, as text and as JSON. */
#ifndef FGP_TRAIN_SUMMARY_H
#define FGP_TRAIN_SUMMARY_H

#include "program/args/job_args.h"

/** Learning rate, its schedule, the limit of the norm, the tokenizer and the augmentation in use, as a line. */
const char *fgp_setting_text(const fgt_job *job, const fgt_report *report, char *dst, size_t cap);

/** "train", "valid" or "test". */
const char *fgp_split_name(fgt_split split);

/** Whether something was evaluated. */
int fgp_quality_known(const fgt_eval_result *quality);

/** The number that counts for the task, with its name: "accuracy 91.73 %", "perplexity 23.41". Returns dst. */
const char *fgp_quality_text(const fgt_eval_result *quality, char *dst, size_t cap);

/** Print the summary of a run on stdout. */
void fgp_summary_print(const fgp_request *request, const fgt_report *report);

/** The same as one JSON object. Returns an exit status. */
int fgp_summary_json(const fgp_request *request, const fgt_report *report);

/** Print what an evaluation found, on stdout. */
void fgp_verdict_print(const fgp_request *request, const fgt_eval_result *quality, const fgt_report *report);

/** The same as one JSON object. Returns an exit status. */
int fgp_verdict_json(const fgp_request *request, const fgt_eval_result *quality, const fgt_report *report);

#endif

/* train_summary.h - what came out of a run or an evaluation: for people, and as JSON. */
#ifndef FRUGI_TRAIN_SUMMARY_H
#define FRUGI_TRAIN_SUMMARY_H

#include "program/args/job_args.h"

/** Learning rate, its schedule, the limit of the norm, the tokenizer and the augmentation in use, as a line. */
const char *frugi_setting_text(const frugi_job *job, const frugi_report *report, char *dst, size_t cap);

/** "train", "valid" or "test". */
const char *frugi_split_name(frugi_split split);

/** Whether something was evaluated. */
int frugi_quality_known(const frugi_quality *quality);

/** The number that counts for the task, with its name: "accuracy 91.73 %", "perplexity 23.41". Returns dst. */
const char *frugi_quality_text(const frugi_quality *quality, char *dst, size_t cap);

/** Print the summary of a run on stdout. */
void frugi_summary_print(const frugi_request *request, const frugi_report *report);

/** The same as one JSON object. Returns an exit status. */
int frugi_summary_json(const frugi_request *request, const frugi_report *report);

/** Print what an evaluation found, on stdout. */
void frugi_verdict_print(const frugi_request *request, const frugi_quality *quality, const frugi_report *report);

/** The same as one JSON object. Returns an exit status. */
int frugi_verdict_json(const frugi_request *request, const frugi_quality *quality, const frugi_report *report);

#endif

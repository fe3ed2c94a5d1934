/*
 * compare.h - what the files of `frugrad compare` share: tasks, methods, the runs that a comparison is made of, and
 * what came out of each.
 */
#ifndef FRUGI_COMPARE_H
#define FRUGI_COMPARE_H

#include "program/args/args.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

/** Kinds of tasks, as bits: some methods are for some of them only. */
enum { FRUGI_VISION = 1, FRUGI_LANGUAGE = 2, FRUGI_SENTENCES = 4, FRUGI_ANY = 7 };

/** Which optimiser goes with a method. */
typedef enum frugi_mover {
    FRUGI_MOVER_AUTO,   /* the trainer's choice */
    FRUGI_MOVER_MERGED, /* what goes with momentum in the compressor, though feedback is not merged */
    FRUGI_MOVER_PLAIN,  /* none of its own momentum */
    FRUGI_MOVER_SIGN,   /* the trainer's choice, which steps by signs: another range of rates */
    FRUGI_MOVER_SCALE,  /* finetune: the head has its rate, and what is searched is the scale of the targets' steps */
    FRUGI_MOVER_HEAD    /* finetune: nothing but the head moves */
} frugi_mover;

enum { FRUGI_TASKS_MOST = 8, FRUGI_METHODS_MOST = 64 };

/** What trains on a GPU: a module of Python. */
#define FRUGI_TORCH "frugrad.torch.train"

/** A model and what it learns. */
typedef struct frugi_compare_task {
    const char *id, *model;
    const char *trainer; /* NULL: this program; otherwise the module that Python runs */
    unsigned family;     /* one of the bits above */
    const char *folder;  /* below --data; NULL: builtin */
    const char *test; /* a file that must be in it: without, tests would go by what the search has gone by; or NULL */
    const char *elsewhere; /* the trainer's name for the same data where there is no such folder; or NULL */
    const char *tokens;    /* "bytes", or a file below --data; NULL: none */
    const char *subset;    /* the trainer's name of a task of sentences; or NULL */
    bool text;             /* what is read is the sentences in the folder, as a text */
    const char *weights;   /* finetune: a file below --weights; NULL: what `before` has learned */
    const char *before;    /* finetune: a model that is trained first, on builtin data; or NULL */
    const char *schedule;
    uint32_t batch; /* of each of 4 workers; others share the same samples a step */
    uint32_t steps, samples, eval_batches, evals;
    uint32_t hold_out;      /* for choosing a rate; 0: the data has a validation split */
    double rate, sign_rate; /* the middle of the search */
} frugi_compare_task;

/** A way to exchange gradients. */
typedef struct frugi_method {
    char id[40], label[64], config[160];
    char inertia[8]; /* of the optimiser of merged momentum; "": as the trainer has it */
    char clip[8];    /* the trainer's limit of the norm; "": none */
    frugi_mover mover;
    unsigned families;
    double scale;     /* of the middle rate, of vision tasks */
    uint32_t workers; /* 0: as many as --workers says */
    double middle;    /* of the search; 0: the task's */
    uint64_t states;  /* finetune: 0: the method has no choice */
} frugi_method;

/** What is compared. */
typedef struct frugi_suite {
    const char *name, *size;
    const char *bytes_of; /* all methods send as many bytes, in steps that follow from runs of this suite; or NULL */
    bool tunes;           /* runs are `frugrad finetune` */
    frugi_compare_task task[FRUGI_TASKS_MOST];
    size_t tasks;
    frugi_method method[FRUGI_METHODS_MOST];
    size_t methods;
} frugi_suite;

/** One run: a place in the suite's tables, and what differs between runs of that place. */
typedef struct frugi_trial {
    size_t task, method;
    bool tune; /* a search of the rate; otherwise a test */
    uint32_t seed;
    double rate;
} frugi_trial;

/** What came out of a run. */
typedef struct frugi_outcome {
    frugi_trial run;
    double value;  /* of the task's metric; NAN where it failed or diverged */
    bool diverged; /* which is an outcome, and the worst one */
    bool refused;  /* no other run of this place makes sense: the command line is wrong, or a search has a hole */
    double seconds;
} frugi_outcome;

typedef struct frugi_ledger frugi_ledger;

/** How a comparison is run. */
typedef struct frugi_compare {
    frugi_suite suite;
    const char *data, *out; /* directories as typed; data may be NULL */
    const char *weights;    /* the same; NULL: none */
    uint32_t workers, rates, seeds, jobs;
    double seconds;                                          /* after which nothing is started */
    char folder[FRUGI_TASKS_MOST][4096];                     /* a task's --data, as typed */
    char unpacked[FRUGI_TASKS_MOST][4096];                   /* what is read instead, unpacked; empty: the same */
    double step_bytes[FRUGI_TASKS_MOST][FRUGI_METHODS_MOST]; /* see compare_bytes.c; 0: not known */
    double equal_bytes[FRUGI_TASKS_MOST];                    /* a step of the method that all others are like */
    frugi_ledger *ledger;
    frugi_outcome *outcome;
    size_t outcomes, room;
} frugi_compare;

/* ---- compare_suites.c ---- */

/** Names of suites and sizes, ended by NULL. */
extern const char *const frugi_suite_names[];
extern const char *const frugi_size_names[];

/** Fill in the tables of a suite, which must have this size. */
void frugi_suite_make(int name, int size, frugi_suite *suite);

/* ---- compare_tasks.c ---- */

/** The tasks of a size, or of fine-tuning at that size, FRUGI_TASKS_MOST rows; NULL: there are none. */
const frugi_compare_task *frugi_tasks_of(int size, bool tunes);

/** "vision", "language" or "sentences"; "accuracy" or "perplexity". */
const char *frugi_task_family(const frugi_compare_task *task);
const char *frugi_task_metric(const frugi_compare_task *task);

/* ---- compare_command.c: the command line of a run ---- */

enum { FRUGI_WORDS_MOST = 64 };

typedef struct frugi_words {
    const char *word[FRUGI_WORDS_MOST + 1]; /* ended by NULL; into text, or of the tables */
    size_t count;
    char text[8192];
    size_t used;
} frugi_words;

/** The words of a run, without those that only say where its output goes. */
void frugi_words_of(const frugi_compare *c, const frugi_trial *run, bool unpacked, frugi_words *words);

/** Add a word and its value; NULL for a switch. */
void frugi_words_add(frugi_words *words, const char *word, const char *value);

/** The words that make the weights which a task's runs begin with; for a task that trains a model first. */
void frugi_words_before(const frugi_compare *c, size_t task, frugi_words *words);

/** The file of weights that runs of a task begin with. Returns dst. */
const char *frugi_words_weights(const frugi_compare *c, size_t task, char *dst, size_t cap);

/** The same words for a shell. Returns dst. */
const char *frugi_words_text(const frugi_words *words, char *dst, size_t cap);

/* ---- compare_bytes.c: equal bytes instead of equal steps ---- */

/** Learn what a step sends, where a record of the suite that a comparison goes by tells. */
void frugi_bytes_learn(frugi_compare *c, const json_t *record);

/** How many steps the runs of a place have. 0: that is not known, and there are none. */
uint32_t frugi_bytes_steps(const frugi_compare *c, size_t task, size_t method);

/** The task's schedule, whose warm-up is as large a part of those steps. Returns dst. */
const char *frugi_bytes_schedule(const frugi_compare *c, size_t task, size_t method, char *dst, size_t cap);

/** Whether all places are known; an error where none is, a hint where some are not. */
int frugi_bytes_check(const frugi_compare *c);

/* ---- compare_data.c ---- */

/** Find the data of all tasks; those without are dropped with a word, or, where they were asked for, an error. */
int frugi_compare_find_data(frugi_compare *c, bool asked_for);

/** Unpack once what takes long to unpack. */
int frugi_compare_unpack(frugi_compare *c);

/* ---- compare_tune.c: what runs of finetune begin with ---- */

/** Write the sentences of SST-2 in a folder as a text, one file for each split. */
int frugi_compare_text(const char *from, const char *to);

/** Train, once, the models that tasks begin with and that are in no file. */
int frugi_compare_before(const frugi_compare *c);

/* ---- compare_python.c: runs of Python ---- */

/** The program that runs modules: $FRUGRAD_PYTHON, or python3. */
const char *frugi_compare_python(void);

/** Whether all the tasks' trainers are there. A comparison should say once that one is not, and not fail at every run.
 */
int frugi_compare_trainers(const frugi_compare *c);

/* ---- compare_records.c: runs.jsonl ---- */

/** Take what is in DIR/runs.jsonl of this comparison as outcomes; where there is no such file, nothing. To write,
 * nobody else may. */
int frugi_ledger_open(frugi_compare *c, bool to_write);
void frugi_ledger_close(frugi_compare *c);

/** Whether a record is of a run of this comparison, by the command that would be run today. */
bool frugi_ledger_has(const frugi_compare *c, const json_t *record);

/** Whether a text of a record is the expected one. */
bool frugi_record_says(const json_t *record, const char *key, const char *expected);

/** Append a record, on the disk when this returns, and drop it. */
int frugi_ledger_put(frugi_compare *c, json_t *record);

/** Remember an outcome. */
int frugi_outcome_add(frugi_compare *c, const frugi_outcome *outcome);

/* ---- compare_outcome.c: what is written about a run ---- */

/** Names of the files of a running child, in DIR/work. */
typedef struct frugi_run_files {
    char out[4200], err[4200], metrics[4200];
} frugi_run_files;

/** What is known when a child has ended. */
typedef struct frugi_ended {
    const frugi_trial *run;
    const frugi_run_files *files;
    const char *begun; /* UTC */
    double seconds;
    int status; /* exit status, 128 + signal */
} frugi_ended;

/** The last line of a file of messages, without hints, safe on a terminal. */
void frugi_last_words(const char *path, char *dst, size_t cap);

/** Make the record of a run and its outcome. Returns NULL when out of memory. */
json_t *frugi_record_make(const frugi_compare *c, const frugi_ended *ended, frugi_outcome *outcome);

/* ---- compare_curve.c: metrics, made short ---- */

/** Add "curve", "evals" and "layers" to a record, out of a file of metrics; where it cannot be read, neither. */
void frugi_curve_add(const char *path, const char *metric, json_t *record);

/* ---- compare_search.c: which run is next ---- */

/** Whether a run is going on now. */
typedef bool frugi_is_running(const void *pool, const frugi_trial *run);

/** The next run to start. Returns false where there is none now: all are done, or wait for those that are running. */
bool frugi_search_next(const frugi_compare *c, frugi_is_running *is_running, const void *pool, frugi_trial *run);

/** The best rate of a place; false while it is not known. */
bool frugi_search_best(const frugi_compare *c, size_t task, size_t method, double *rate);

/** Runs that are still to come, as far as is known now. Also the seconds that they take one after the other; NAN where
 * nothing has been timed. */
size_t frugi_search_left(const frugi_compare *c, double *seconds);

/** How many rates the search of a place has as it is first planned; 1: there is none. */
uint32_t frugi_search_rates(const frugi_compare *c, size_t task, size_t method);

/** The i-th of them. */
double frugi_search_rate(const frugi_compare *c, size_t task, size_t method, int i);

/** Whether the suite has this place: heads are for transformers. */
bool frugi_search_has(const frugi_compare *c, size_t task, size_t method);

/** The outcome of a run, or NULL. */
const frugi_outcome *frugi_search_find(const frugi_compare *c, const frugi_trial *run);

enum { FRUGI_TUNE_SEED = 100 };

/* ---- compare_pool.c: children ---- */

/** Run all that is to be run. Returns FRUGI_EXIT_OK, also when time was up; FRUGI_EXIT_STOPPED after a signal. */
int frugi_pool_run(frugi_compare *c);

#endif

/*
 * compare.h - what the files of `frugrad compare` share: tasks, methods, the runs that a comparison is made of, and
 * what came out of each.
 */
#ifndef FGL_COMPARE_H
#define FGL_COMPARE_H

#include "program/args/args.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

/** Kinds of tasks, as bits: some methods are for some of them only. */
enum { FGL_VISION = 1, FGL_LANGUAGE = 2, FGL_SENTENCES = 4, FGL_ANY = 7 };

/** Which optimiser goes with a method. */
typedef enum fgl_mover {
    FGL_MOVER_AUTO,   /* the trainer's choice */
    FGL_MOVER_MERGED, /* what goes with momentum in the compressor, though feedback is not merged */
    FGL_MOVER_PLAIN,  /* none of its own momentum */
    FGL_MOVER_SIGN,   /* the trainer's choice, which steps by signs: another range of rates */
    FGL_MOVER_SCALE,  /* finetune: the head has its rate, and what is searched is the scale of the targets' steps */
    FGL_MOVER_HEAD    /* finetune: nothing but the head moves */
} fgl_mover;

enum { FGL_TASKS_MOST = 8, FGL_METHODS_MOST = 64 };

/** What trains on a GPU: a module of Python. */
#define FGL_TORCH "frugrad.torch.train"

/** A model and what it learns. */
typedef struct fgl_compare_task {
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
} fgl_compare_task;

/** A way to exchange gradients. */
typedef struct fgl_method {
    char id[40], label[64], config[160];
    char inertia[8]; /* of the optimiser of merged momentum; "": as the trainer has it */
    char clip[8];    /* the trainer's limit of the norm; "": none */
    fgl_mover mover;
    unsigned families;
    double scale;     /* of the middle rate, of vision tasks */
    uint32_t workers; /* 0: as many as --workers says */
    double middle;    /* of the search; 0: the task's */
    uint64_t states;  /* finetune: 0: the method has no choice */
} fgl_method;

/** What is compared. */
typedef struct fgl_suite {
    const char *name, *size;
    const char *bytes_of; /* all methods send as many bytes, in steps that follow from runs of this suite; or NULL */
    bool tunes;           /* runs are `frugrad finetune` */
    fgl_compare_task task[FGL_TASKS_MOST];
    size_t tasks;
    fgl_method method[FGL_METHODS_MOST];
    size_t methods;
} fgl_suite;

/** One run: a place in the suite's tables, and what differs between runs of that place. */
typedef struct fgl_trial {
    size_t task, method;
    bool tune; /* a search of the rate; otherwise a test */
    uint32_t seed;
    double rate;
} fgl_trial;

/** What came out of a run. */
typedef struct fgl_outcome {
    fgl_trial run;
    double value;  /* of the task's metric; NAN where it failed or diverged */
    bool diverged; /* which is an outcome, and the worst one */
    bool refused;  /* no other run of this place makes sense: the command line is wrong, or a search has a hole */
    double seconds;
} fgl_outcome;

typedef struct fgl_ledger fgl_ledger;

/** How a comparison is run. */
typedef struct fgl_compare {
    fgl_suite suite;
    const char *data, *out; /* directories as typed; data may be NULL */
    const char *weights;    /* the same; NULL: none */
    uint32_t workers, rates, seeds, jobs;
    double seconds;                                      /* after which nothing is started */
    char folder[FGL_TASKS_MOST][4096];                   /* a task's --data, as typed */
    char unpacked[FGL_TASKS_MOST][4096];                 /* what is read instead, unpacked; empty: the same */
    double step_bytes[FGL_TASKS_MOST][FGL_METHODS_MOST]; /* see compare_bytes.c; 0: not known */
    double equal_bytes[FGL_TASKS_MOST];                  /* a step of the method that all others are like */
    fgl_ledger *ledger;
    fgl_outcome *outcome;
    size_t outcomes, room;
} fgl_compare;

/* ---- compare_suites.c ---- */

/** Names of suites and sizes, ended by NULL. */
extern const char *const fgl_suite_names[];
extern const char *const fgl_size_names[];

/** Fill in the tables of a suite, which must have this size. */
void fgl_suite_make(int name, int size, fgl_suite *suite);

/* ---- compare_tasks.c ---- */

/** The tasks of a size, or of fine-tuning at that size, FGL_TASKS_MOST rows; NULL: there are none. */
const fgl_compare_task *fgl_tasks_of(int size, bool tunes);

/** "vision", "language" or "sentences"; "accuracy" or "perplexity". */
const char *fgl_task_family(const fgl_compare_task *task);
const char *fgl_task_metric(const fgl_compare_task *task);

/* ---- compare_command.c: the command line of a run ---- */

enum { FGL_WORDS_MOST = 64 };

typedef struct fgl_command_line {
    const char *word[FGL_WORDS_MOST + 1]; /* ended by NULL; into text, or of the tables */
    size_t count;
    char text[8192];
    size_t used;
} fgl_command_line;

/** The words of a run, without those that only say where its output goes. */
void fgl_words_of(const fgl_compare *c, const fgl_trial *run, bool unpacked, fgl_command_line *words);

/** Add a word and its value; NULL for a switch. */
void fgl_words_add(fgl_command_line *words, const char *word, const char *value);

/** The words that make the weights which a task's runs begin with; for a task that trains a model first. */
void fgl_words_before(const fgl_compare *c, size_t task, fgl_command_line *words);

/** The file of weights that runs of a task begin with. Returns dst. */
const char *fgl_words_weights(const fgl_compare *c, size_t task, char *dst, size_t cap);

/** The same words for a shell. Returns dst. */
const char *fgl_words_text(const fgl_command_line *words, char *dst, size_t cap);

/* ---- compare_bytes.c: equal bytes instead of equal steps ---- */

/** Learn what a step sends, where a record of the suite that a comparison goes by tells. */
void fgl_bytes_learn(fgl_compare *c, const json_t *record);

/** How many steps the runs of a place have. 0: that is not known, and there are none. */
uint32_t fgl_bytes_steps(const fgl_compare *c, size_t task, size_t method);

/** The task's schedule, whose warm-up is as large a part of those steps. Returns dst. */
const char *fgl_bytes_schedule(const fgl_compare *c, size_t task, size_t method, char *dst, size_t cap);

/** Whether all places are known; an error where none is, a hint where some are not. */
int fgl_bytes_check(const fgl_compare *c);

/* ---- compare_data.c ---- */

/** Find the data of all tasks; those without are dropped with a word, or, where they were asked for, an error. */
int fgl_compare_find_data(fgl_compare *c, bool asked_for);

/** Unpack once what takes long to unpack. */
int fgl_compare_unpack(fgl_compare *c);

/* ---- compare_tune.c: what runs of finetune begin with ---- */

/** Write the sentences of SST-2 in a folder as a text, one file for each split. */
int fgl_compare_text(const char *from, const char *to);

/** Train, once, the models that tasks begin with and that are in no file. */
int fgl_compare_before(const fgl_compare *c);

/* ---- compare_python.c: runs of Python ---- */

/** The program that runs modules: $FRUGRAD_PYTHON, or python3. */
const char *fgl_compare_python(void);

/** Whether all the tasks' trainers are there. A comparison should say once that one is not, and not fail at every run.
 */
int fgl_compare_trainers(const fgl_compare *c);

/* ---- compare_records.c: runs.jsonl ---- */

/** Take what is in DIR/runs.jsonl of this comparison as outcomes; where there is no such file, nothing. To write,
 * nobody else may. */
int fgl_ledger_open(fgl_compare *c, bool to_write);
void fgl_ledger_close(fgl_compare *c);

/** Whether a record is of a run of this comparison, by the command that would be run today. */
bool fgl_ledger_has(const fgl_compare *c, const json_t *record);

/** Append a record, on the disk when this returns, and drop it. */
int fgl_ledger_put(fgl_compare *c, json_t *record);

/** Remember an outcome. */
int fgl_outcome_add(fgl_compare *c, const fgl_outcome *outcome);

/* ---- compare_outcome.c: what is written about a run ---- */

/** Names of the files of a running child, in DIR/work. */
typedef struct fgl_run_files {
    char out[4200], err[4200], metrics[4200];
} fgl_run_files;

/** What is known when a child has ended. */
typedef struct fgl_ended {
    const fgl_trial *run;
    const fgl_run_files *files;
    const char *begun; /* UTC */
    double seconds;
    int status; /* exit status, 128 + signal */
} fgl_ended;

/** The last line of a file of messages, without hints, safe on a terminal. */
void fgl_last_words(const char *path, char *dst, size_t cap);

/** Make the record of a run and its outcome. Returns NULL when out of memory. */
json_t *fgl_record_make(const fgl_compare *c, const fgl_ended *ended, fgl_outcome *outcome);

/* ---- compare_curve.c: metrics, made short ---- */

/** Add "curve", "evals" and "layers" to a record, out of a file of metrics; where it cannot be read, neither. */
void fgl_curve_add(const char *path, const char *metric, json_t *record);

/* ---- compare_search.c: which run is next ---- */

/** Whether a run is going on now. */
typedef bool fgl_is_running(const void *pool, const fgl_trial *run);

/** The next run to start. Returns false where there is none now: all are done, or wait for those that are running. */
bool fgl_search_next(const fgl_compare *c, fgl_is_running *is_running, const void *pool, fgl_trial *run);

/** The best rate of a place; false while it is not known. */
bool fgl_search_best(const fgl_compare *c, size_t task, size_t method, double *rate);

/** Runs that are still to come, as far as is known now. Also the seconds that they take one after the other; NAN where
 * nothing has been timed. */
size_t fgl_search_left(const fgl_compare *c, double *seconds);

/** How many rates the search of a place has as it is first planned; 1: there is none. */
uint32_t fgl_search_rates(const fgl_compare *c, size_t task, size_t method);

/** The i-th of them. */
double fgl_search_rate(const fgl_compare *c, size_t task, size_t method, int i);

/** Whether the suite has this place: heads are for transformers. */
bool fgl_search_has(const fgl_compare *c, size_t task, size_t method);

/** The outcome of a run, or NULL. */
const fgl_outcome *fgl_search_find(const fgl_compare *c, const fgl_trial *run);

enum { FGL_TUNE_SEED = 100 };

/* ---- compare_pool.c: children ---- */

/** Run all that is to be run. Returns FGIO_EXIT_OK, also when time was up; FGP_EXIT_STOPPED after a signal. */
int fgl_pool_run(fgl_compare *c);

#endif

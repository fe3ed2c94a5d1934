/*
 * compare.h - types and functions that the files of `frugrad compare` share.
 *
 * A suite is a table of tasks and methods. A cell is one method on one task; its runs are a search of the learning
 * rate, then tests at the best rate. Files use each other in this order only: tasks, suites, bytes, command, search,
 * records, curve, outcome, tune, data, python, pool, cmd_compare.
 */
#ifndef FGL_COMPARE_H
#define FGL_COMPARE_H

#include "program/args/args.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

/** Kinds of tasks, as bits: some methods are for some of them only. */
enum { FGL_VISION = 1, FGL_LANGUAGE = 2, FGL_SENTENCES = 4, FGL_ANY = 7 };

/** Which optimizer a method uses. */
typedef enum fgl_optimizer_kind {
    FGL_OPTIMIZER_AUTO,   /* the trainer's default */
    FGL_OPTIMIZER_MERGED, /* the one for momentum in the compressor, though feedback is not merged */
    FGL_OPTIMIZER_PLAIN,  /* without momentum of its own */
    FGL_OPTIMIZER_SIGN,   /* the trainer's default, whose steps have a length of their own: another range of rates */
    FGL_OPTIMIZER_MUON,   /* muon instead of the trainer's default; rates as above */
    FGL_OPTIMIZER_SCALE,  /* finetune: fixed rate for the head; the scale of the targets' steps is searched */
    FGL_OPTIMIZER_HEAD    /* finetune: only the head is trained */
} fgl_optimizer_kind;

enum { FGL_MAX_TASKS = 8, FGL_MAX_METHODS = 64 };

/** The Python module that trains on a GPU. */
#define FGL_TORCH "frugrad.torch.train"

/** A model and its data. */
typedef struct fgl_compare_task {
    const char *id, *model;
    const char *trainer;   /* NULL: this program; otherwise the module that Python runs */
    unsigned family;       /* one of the bits above */
    const char *metric;    /* NULL: that of the family */
    const char *folder;    /* below --data; NULL: builtin */
    const char *test;      /* a file that must be in it, so that tests do not use the data of the search; or NULL */
    const char *elsewhere; /* the trainer's name for the same data if there is no such folder; or NULL */
    const char *tokens;    /* "bytes", or a file below --data; NULL: none */
    const char *subset;    /* the trainer's name of a task of sentences; or NULL */
    bool text;             /* the sentences in the folder are read as plain text */
    const char
        *weights; /* to begin with: a file below --data, finetune: --weights; NULL: none, or the model of `before` */
    const char *before; /* finetune: a model that is trained first, on builtin data; or NULL */
    const char *schedule;
    const char *passes; /* --passes of a trainer on a GPU; NULL: its default */
    uint32_t batch;     /* per worker for 4 workers; other numbers of workers keep the total */
    uint32_t steps, samples, eval_batches, evals;
    uint32_t hold_out;      /* for choosing a rate; 0: the data has a validation split */
    double rate, sign_rate; /* the middle of the search */
    const char *muon;       /* options of dense Muon that are better here than its defaults; or NULL */
} fgl_compare_task;

/** A way to exchange gradients. */
typedef struct fgl_method {
    char id[40], label[64], config[160];
    char inertia[8]; /* of the optimizer with merged momentum; "": the trainer's default */
    char clip[8];    /* clipping norm of the trainer; "": none */
    fgl_optimizer_kind optimizer;
    unsigned families;
    double scale[3];  /* of the middle rate, by fgl_family_index() */
    uint32_t workers; /* 0: as --workers */
    double middle;    /* of the search; 0: the task's */
    uint64_t states;  /* finetune; 0: the method has no such option */
} fgl_method;

/** The tasks and methods that are compared. */
typedef struct fgl_suite {
    const char *name, *size;
    const char *bytes_of; /* all methods send the same bytes, with numbers of steps from runs of this suite; or NULL */
    bool tunes;           /* runs are `frugrad finetune` */
    double factor;        /* between the rates of a search */
    int extra_rates;      /* of a search whose best rate is the lowest or the highest */
    fgl_compare_task task[FGL_MAX_TASKS];
    size_t tasks;
    fgl_method method[FGL_MAX_METHODS];
    size_t methods;
} fgl_suite;

/** One run: a cell of the suite, and what differs between the runs of that cell. */
typedef struct fgl_trial {
    size_t task, method;
    bool tune; /* a search of the rate; otherwise a test */
    uint32_t seed;
    double rate;
} fgl_trial;

/** The result of a run. */
typedef struct fgl_outcome {
    fgl_trial run;
    double value;  /* of the task's metric; NAN if it failed or diverged */
    bool diverged; /* counts as the worst result */
    bool refused;  /* no other run of this cell is started: invalid command line, or a failed run in the search */
    double seconds;
} fgl_outcome;

typedef struct fgl_records fgl_records;

/** A comparison. */
typedef struct fgl_compare {
    fgl_suite suite;
    const char *data, *out; /* directories as typed; data may be NULL */
    const char *weights;    /* the same; NULL: none */
    uint32_t workers, rates, seeds, jobs;
    double seconds;                                    /* the time limit, by which runs should have ended */
    char folder[FGL_MAX_TASKS][4096];                  /* a task's --data, as typed */
    char unpacked[FGL_MAX_TASKS][4096];                /* unpacked copy to read instead; empty: none */
    double step_bytes[FGL_MAX_TASKS][FGL_MAX_METHODS]; /* see compare_bytes.c; 0: unknown */
    double equal_bytes[FGL_MAX_TASKS];                 /* bytes per step of the reference method */
    fgl_records *records;
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

/** The tasks of a suite at a size, FGL_MAX_TASKS rows; NULL: it does not have this size. */
const fgl_compare_task *fgl_tasks_of(const char *suite, int size);

/** 0, 1 or 2: vision, language, sentences. */
int fgl_family_index(const fgl_compare_task *task);

/** "vision", "language" or "sentences"; "accuracy", "perplexity" or "correlation". */
const char *fgl_task_family(const fgl_compare_task *task);
const char *fgl_task_metric(const fgl_compare_task *task);

/* ---- compare_command.c: the command line of a run ---- */

enum { FGL_MAX_ARGUMENTS = 64 };

typedef struct fgl_command_line {
    const char *word[FGL_MAX_ARGUMENTS + 1]; /* ended by NULL; into text, or of the tables */
    size_t count;
    char text[8192];
    size_t used;
} fgl_command_line;

/** The command line of a run, without the options for its output files. */
void fgl_command_make(const fgl_compare *c, const fgl_trial *run, bool unpacked, fgl_command_line *words);

/** Add an option and its value; NULL for a switch. */
void fgl_command_add(fgl_command_line *words, const char *word, const char *value);

/** The command line that trains the initial weights of a task. */
void fgl_command_initial(const fgl_compare *c, size_t task, fgl_command_line *words);

/** The file of initial weights of a task. Returns dst. */
const char *fgl_command_weights(const fgl_compare *c, size_t task, char *dst, size_t cap);

/** The command line as shell text. Returns dst. */
const char *fgl_command_text(const fgl_command_line *words, char *dst, size_t cap);

/* ---- compare_bytes.c: equal bytes instead of equal steps ---- */

/** Set the bytes per step from a record of the reference suite; other records are ignored. */
void fgl_bytes_add_record(fgl_compare *c, const json_t *record);

/** Number of steps of the runs of a cell. 0: unknown, and the cell has no runs. */
uint32_t fgl_bytes_steps(const fgl_compare *c, size_t task, size_t method);

/** The task's schedule, with the warm-up scaled to those steps. Returns dst. */
const char *fgl_bytes_schedule(const fgl_compare *c, size_t task, size_t method, char *dst, size_t cap);

/** Check that the bytes of the cells are known: an error if none are, a hint if some are not. */
int fgl_bytes_check(const fgl_compare *c);

/* ---- compare_data.c ---- */

/** Find the data of all tasks; tasks without data are dropped with a message or, if requested by name, an error. */
int fgl_compare_find_data(fgl_compare *c, bool asked_for);

/** Unpack CIFAR-10 once, because unpacking takes longer than a short run. */
int fgl_compare_unpack(fgl_compare *c);

/* ---- compare_tune.c: text and initial weights of finetune runs ---- */

/** Write the sentences of SST-2 in a folder as plain text, one file per split. */
int fgl_compare_make_text(const char *from, const char *to);

/** Train, once, the initial models that are in no file. */
int fgl_compare_train_initial(const fgl_compare *c);

/* ---- compare_python.c: runs of Python ---- */

/** The program that runs modules: $FRUGRAD_PYTHON, or python3. */
const char *fgl_compare_python(void);

/** Check that the trainers of all tasks can be loaded, so that a missing one is reported once and not for every run. */
int fgl_compare_trainers(const fgl_compare *c);

/* ---- compare_records.c: runs.jsonl ---- */

/** Read the outcomes of this comparison from DIR/runs.jsonl, if it exists. With to_write the file is locked. */
int fgl_records_open(fgl_compare *c, bool to_write);
void fgl_records_close(fgl_compare *c);

/** Whether a record is of a run of this comparison with the same command, but for options that change no result. */
bool fgl_records_has(const fgl_compare *c, const json_t *record);

/** Append a record, synced when this returns, and drop the reference. */
int fgl_records_append(fgl_compare *c, json_t *record);

/** Add an outcome. */
int fgl_outcome_add(fgl_compare *c, const fgl_outcome *outcome);

/* ---- compare_outcome.c: the record of a run ---- */

/** Names of the files of a running child, in DIR/work. */
typedef struct fgl_run_files {
    char out[4200], err[4200], metrics[4200];
} fgl_run_files;

/** An ended child. */
typedef struct fgl_ended {
    const fgl_trial *run;
    const fgl_run_files *files;
    const char *begun; /* UTC */
    double seconds;
    int status; /* exit status, 128 + signal */
} fgl_ended;

/** The last line of a file of messages, without hints, safe on a terminal. */
void fgl_last_message(const char *path, char *dst, size_t cap);

/** Make the record of a run and its outcome. Returns NULL when out of memory. */
json_t *fgl_record_make(const fgl_compare *c, const fgl_ended *ended, fgl_outcome *outcome);

/* ---- compare_curve.c: downsampled metrics ---- */

/** Add "curve", "evals" and "layers" to a record, from a file of metrics; nothing if it cannot be read. */
void fgl_curve_add(const char *path, const char *metric, json_t *record);

/* ---- compare_search.c: the next run ---- */

/** Whether a run must not be started now: it is active, or there is no time for it. */
typedef bool fgl_is_excluded(const void *ctx, const fgl_trial *run);

/** The next run to start. Returns false if there is none now: all are done, excluded, or depend on active runs. */
bool fgl_search_next(const fgl_compare *c, fgl_is_excluded *is_excluded, const void *ctx, fgl_trial *run);

/** The best rate of a cell; false while it is unknown. */
bool fgl_search_best(const fgl_compare *c, size_t task, size_t method, double *rate);

/** Number of remaining runs, as far as known. Also the seconds that they take one after the other; NAN if no run has
 * been timed. */
size_t fgl_search_left(const fgl_compare *c, double *seconds);

/** Seconds of the longest run of a task so far; 0 if none has been timed. */
double fgl_search_longest(const fgl_compare *c, size_t task);

/** Number of rates that the search of a cell starts with; 1: no search. */
uint32_t fgl_search_rates(const fgl_compare *c, size_t task, size_t method);

/** The i-th of these rates. */
double fgl_search_rate(const fgl_compare *c, size_t task, size_t method, int i);

/** Whether the suite has this cell: some methods are for some tasks only. */
bool fgl_suite_has(const fgl_compare *c, size_t task, size_t method);

/** The outcome of a run, or NULL. */
const fgl_outcome *fgl_search_find(const fgl_compare *c, const fgl_trial *run);

enum { FGL_TUNE_SEED = 100 };

/* ---- compare_pool.c: children ---- */

/** Run all remaining runs. Returns FGIO_EXIT_OK, also when time was up; FGP_EXIT_STOPPED after a signal. */
int fgl_pool_run(fgl_compare *c);

#endif

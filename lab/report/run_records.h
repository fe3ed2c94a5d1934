/*
 * run_records.h - recorded runs: lines of JSON that `frugrad compare` appends to DIR/runs.jsonl.
 *
 * docs/report.md has the format. Files are untrusted: every number has a range, every list a maximum length, and errors
 * name the line.
 */
#ifndef FGL_RUN_RECORDS_H
#define FGL_RUN_RECORDS_H

#include "io/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FGL_MAX_RUNS = 20000,    /* records */
    FGL_MAX_POINTS = 10000,  /* of a curve, times of a speed record */
    FGL_MAX_LAYERS = 4096,   /* names */
    FGL_MAX_MOMENTS = 1024,  /* steps at which the densities of layers are known */
    FGL_MAX_LINE = 64 << 20, /* bytes */
};

/** The parts of result.time_ms. */
enum { FGL_TIMES = 9 };
extern const char *const fgl_time_names[FGL_TIMES];

/** Measurements over a run: lists of `count` points. Unknown numbers are NaN. */
typedef struct fgl_curve {
    size_t count;
    double *step, *seconds, *bytes, *value; /* one allocation, at step */
} fgl_curve;

/** Density of every layer at some steps; density[moment * names + layer]. */
typedef struct fgl_layers {
    size_t names, moments;
    json_t *name; /* strings */
    double *step; /* one allocation with density */
    double *density;
} fgl_layers;

/** The machine of a run; unknown strings are NULL. */
typedef struct fgl_machine {
    const char *version, *commit, *cpu, *system;
    double cores;
} fgl_machine;

/** One training run. Strings belong to the record; unknown numbers are NaN. */
typedef struct fgl_run {
    json_t *record;
    const char *suite, *size, *task, *family, *metric, *method, *label, *command, *begun, *error;
    fgl_machine machine;
    size_t number;   /* of the records read before it */
    uint64_t recipe; /* see run_recipe.h */
    bool stale;      /* made by another command than the last of its cell: ignored */
    bool test;       /* false: a run of the rate search */
    uint64_t seed;
    double rate;
    double value; /* the metric; NaN when the run diverged or failed */
    double steps, workers, bytes_sent, bytes_dense, density, step_ms;
    double state_bytes, weight_bytes, gradient_bytes, library_bytes;
    double states, head_states, optimizer_bytes; /* of fine-tuning */
    double time_ms[FGL_TIMES];
    fgl_curve curve, evals;
    fgl_layers layers;
} fgl_run;

/** Step times over a network. */
typedef struct fgl_timing {
    json_t *record;
    const char *suite, *method, *label, *model, *link, *command;
    fgl_machine machine;
    double workers, step_ms; /* the median */
} fgl_timing;

/** Filter of runs. */
typedef bool fgl_run_filter(const void *user, const fgl_run *run);

typedef struct fgl_runs {
    fgl_run_filter *wanted; /* filter while reading; NULL: all */
    const void *user;       /* its argument */
    fgl_run *run;
    size_t count, cap;
    fgl_timing *timing;
    size_t timings, timings_cap;
    size_t records; /* runs read, including replaced ones */
    int torn;       /* a file ended in the middle of a line, which was ignored */
} fgl_runs;

/**
 * Read records out of memory and add them to a set, which begins as {0}, or with `wanted` alone. Of runs with the same
 * suite, size, task, method, workers, phase, seed and rate the last one is kept, and those made by another command than
 * the last of its method are marked as stale. Unknown fields are ignored.
 *
 * Returns 0, or -1 with the reason, which begins with the line number. After that the set can only be freed.
 */
int fgl_runs_parse(fgl_runs *runs, const void *data, size_t len, fgio_reason *why);

/** Read a file, or runs.jsonl of a folder. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after one line on stderr. */
int fgl_runs_read(fgl_runs *runs, const char *path);

/** Remove run times (of a busy machine); times over a network stay. */
void fgl_runs_clear_times(fgl_runs *runs);

void fgl_runs_free(fgl_runs *runs);

/** Whether a higher number of this metric is better. */
bool fgl_metric_up(const char *metric);

#endif

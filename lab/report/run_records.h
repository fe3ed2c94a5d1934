/*
 * run_records.h - recorded runs: lines of JSON as `frugrad compare` appends them to DIR/runs.jsonl. docs/report.md has
 * the format. Files are untrusted: every number has a range, every list a length, and what is wrong is told by its
 * line.
 */
#ifndef FGL_RUN_RECORDS_H
#define FGL_RUN_RECORDS_H

#include "io/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FGL_RUNS_MOST = 20000,    /* records */
    FGL_POINTS_MOST = 10000,  /* of a curve, times of a speed record */
    FGL_LAYERS_MOST = 4096,   /* names */
    FGL_MOMENTS_MOST = 1024,  /* steps at which the densities of layers are known */
    FGL_LINE_MOST = 64 << 20, /* bytes */
};

/** The parts of result.time_ms. */
enum { FGL_TIMES = 9 };
extern const char *const fgl_time_names[FGL_TIMES];

/** What is measured over a run: `count` points, each list as long. A number that is not known is NaN. */
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

/** Where something ran; words that are not known are NULL. */
typedef struct fgl_machine {
    const char *version, *commit, *cpu, *system;
    double cores;
} fgl_machine;

/** One training run. Words belong to the record; numbers that are not known are NaN. */
typedef struct fgl_run {
    json_t *record;
    const char *suite, *size, *task, *family, *metric, *method, *label, *command, *begun, *error;
    fgl_machine machine;
    size_t number;   /* of the records read before it */
    uint64_t recipe; /* see run_recipe.h */
    bool stale;      /* made by another recipe than the last of its kind: it counts nowhere */
    bool test;       /* or one that looks for a rate */
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

/** Whether a run is one of those that somebody asks about. */
typedef bool fgl_wanted(const void *user, const fgl_run *run);

typedef struct fgl_runs {
    fgl_wanted *wanted; /* others are passed over as they are read; NULL: all are wanted */
    const void *user;   /* what it is called with */
    fgl_run *run;
    size_t count, cap;
    fgl_timing *timing;
    size_t timings, timings_cap;
    size_t records; /* runs that were read, also those that others have replaced */
    int torn;       /* a file ended in the middle of a line, which was left out */
} fgl_runs;

/**
 * Read records out of memory and add them to a set, which begins as {0}, or with `wanted` alone. Of runs with the same
 * suite, size, task, method, workers, phase, seed and rate the last one stays, and those made by another command than
 * the last of its method are marked as stale. What is not known is ignored.
 *
 * Returns 0, or -1 and why, beginning with the line. The set can be freed and nothing else after that.
 */
int fgl_runs_parse(fgl_runs *runs, const void *data, size_t len, fgio_why *why);

/** Read a file, or runs.jsonl of a folder. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after one line on stderr. */
int fgl_runs_read(fgl_runs *runs, const char *path);

/** Leave out how long runs took (a busy machine's times say nothing); times over a network stay. */
void fgl_runs_forget_times(fgl_runs *runs);

void fgl_runs_free(fgl_runs *runs);

/** Whether a higher number of this metric is better. */
bool fgl_metric_up(const char *metric);

#endif

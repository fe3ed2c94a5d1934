/*
 * run_stats.h - statistics of recorded runs: one panel for every suite, size and task, and in it one cell for every
 * method (and number of workers). Unknown numbers are NaN, which tables leave blank.
 */
#ifndef FGL_RUN_STATS_H
#define FGL_RUN_STATS_H

#include "lab/report/run_records.h"

/** A method on a task: means over the test seeds, at the best rate of its tune runs where there are any. */
typedef struct fgl_cell {
    const fgl_run *first; /* has its names; curves and commands are in the runs */
    const char *label;
    bool dense; /* the baseline; of fine-tuning, AdamW with all its states */
    bool ours;  /* a FruGrad method; of fine-tuning, a sketch */
    double workers;
    double rate;          /* the best one */
    bool edge;            /* the lowest or highest rate tried: a better one may be beyond */
    size_t tune_runs;     /* of the search */
    size_t seeds, failed; /* test runs with a value, and those that diverged or failed */
    double mean, sd;      /* of the metric; sd is NaN for a single seed */
    double of_dense;      /* quality relative to dense: accuracy / dense, dense / perplexity */
    double steps;
    double density;                 /* share of the entries sent */
    double bytes_step, bytes_total; /* of one worker */
    double bytes_of_dense;
    double state_bytes, state_of_dense; /* weights, gradients, library state */
    double weight_bytes, gradient_bytes, library_bytes;
    double states, optimizer_bytes; /* of fine-tuning, without a head's, which are the same for all */
    double step_ms, time_ms[FGL_TIMES];
    double speedup; /* over dense at `link` */
    const char *link;
} fgl_cell;

typedef struct fgl_panel {
    const char *suite, *size, *task, *metric;
    fgl_cell *cell; /* dense first, then FruGrad by its ids, then the others in the order of the file */
    size_t count;
    size_t stale; /* ignored runs: made by other commands than the last of their method */
    bool tuned;   /* suite sgc: fine-tuning, where the bytes of the optimizer count and not those sent */
} fgl_panel;

typedef struct fgl_findings {
    const fgl_runs *runs;
    const char *suite; /* NULL: all */
    fgl_panel *panel;
    size_t count;
} fgl_findings;

/** Compute all panels; `suite` NULL for all. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after an error message. */
int fgl_findings_make(const fgl_runs *runs, const char *suite, fgl_findings *findings);

void fgl_findings_free(fgl_findings *findings);

/** The baseline with the same number of workers, or any; NULL if there is none. */
const fgl_cell *fgl_dense_of(const fgl_panel *panel, const fgl_cell *cell);

/** Whether a run counts for the cell: a test run at its rate. */
bool fgl_run_counts(const fgl_cell *cell, const fgl_run *run);

/** Speed-up of a timing over dense at the same link, model and number of workers; NaN without one. */
double fgl_speedup(const fgl_runs *runs, const fgl_timing *timing);

/** Length of a method's id without a number at its end: topk-0.99, dense-w4. */
size_t fgl_method_stem(const char *method);

/**
 * The mean curve of a cell over its seeds: of losses, or of evaluations. Seeds that were recorded at other steps than
 * the first are left out. To be freed by free(curve->step). Returns 0, or -1 when there is none.
 */
int fgl_curve_mean(const fgl_runs *runs, const fgl_cell *cell, bool evals, fgl_curve *curve);

#endif

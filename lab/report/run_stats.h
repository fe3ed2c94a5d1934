/*
 * run_stats.h - what recorded runs say: one panel for every suite, size and task, and in it one cell for every method
 * (and number of workers). Numbers that are not known are NaN, which tables leave blank.
 */
#ifndef FGL_RUN_STATS_H
#define FGL_RUN_STATS_H

#include "lab/report/run_records.h"

/** A method on a task: means over the test seeds, at the best rate of its tune runs where there are any. */
typedef struct fgl_cell {
    const fgl_run *first; /* its words; its curves and commands are those of the runs behind it */
    const char *label;
    bool dense; /* the baseline; of fine-tuning, AdamW with all its states */
    bool ours;  /* a FruGrad method; of fine-tuning, a sketch */
    double workers;
    double rate;          /* the best one */
    bool edge;            /* no rate beyond it was tried: a better one may lie there */
    size_t tune_runs;     /* that it was chosen from */
    size_t seeds, failed; /* test runs with a value, and those that diverged or failed */
    double mean, sd;      /* of the metric; sd is NaN for a single seed */
    double of_dense;      /* quality relative to dense: accuracy / dense, dense / perplexity */
    double steps;
    double density;                 /* share of the entries sent */
    double bytes_step, bytes_total; /* of one worker */
    double bytes_of_dense;
    double state_bytes, state_of_dense; /* weights, gradients, what the library keeps */
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
    size_t stale; /* runs by other commands than the last of their method, which do not count */
    bool tuned;   /* suite sgc: fine-tuning, where the optimiser's bytes count and not those that are sent */
} fgl_panel;

typedef struct fgl_findings {
    const fgl_runs *runs;
    const char *suite; /* NULL: all */
    fgl_panel *panel;
    size_t count;
} fgl_findings;

/** Work everything out; `suite` NULL for all. Returns FGIO_EXIT_OK, or FGIO_EXIT_FAIL after one line. */
int fgl_findings_make(const fgl_runs *runs, const char *suite, fgl_findings *findings);

void fgl_findings_free(fgl_findings *findings);

/** The baseline with as many workers, or any; NULL where there is none. */
const fgl_cell *fgl_dense_of(const fgl_panel *panel, const fgl_cell *cell);

/** Whether a run counts for the cell: a test run at its rate. */
bool fgl_run_counts(const fgl_cell *cell, const fgl_run *run);

/** Speed-up of a timing over dense at the same link, model and number of workers; NaN without one. */
double fgl_speedup(const fgl_runs *runs, const fgl_timing *timing);

/** How long a method's id is without a number at its end: topk-0.99, dense-w4. */
size_t fgl_method_stem(const char *method);

/**
 * The mean curve of a cell over its seeds: of losses, or of evaluations. Seeds that were recorded at other steps than
 * the first are left out. To be freed by free(curve->step). Returns 0, or -1 when there is none.
 */
int fgl_curve_mean(const fgl_runs *runs, const fgl_cell *cell, bool evals, fgl_curve *curve);

#endif

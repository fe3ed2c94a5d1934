/*
 * run_stats.c - statistics of recorded runs.
 *
 * The rate of a method is the one whose tune runs were best on average, where a run that diverged or failed counts as
 * worst. Test runs at other rates are ignored, so that no test score is the best of several. Spread is the standard
 * deviation of a sample (n - 1).
 */
#include "lab/report/run_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t fgl_method_stem(const char *method) {
    size_t len = strlen(method), at = len;
    while (at > 0 && strchr("0123456789.", method[at - 1]) != NULL)
        at--;
    if (at == len)
        return len;
    if (at > 1 && method[at - 1] == 'w' && method[at - 2] == '-')
        at--;
    return at > 1 && method[at - 1] == '-' ? at - 1 : len;
}

static bool same_number(double a, double b) {
    return isnan(a) ? isnan(b) : a <= b && a >= b;
}

static bool belongs_to_cell(const fgl_run *cell, const fgl_run *run) {
    return strcmp(cell->suite, run->suite) == 0 && strcmp(cell->size, run->size) == 0 &&
           strcmp(cell->task, run->task) == 0 && strcmp(cell->method, run->method) == 0 &&
           (isnan(cell->workers) || isnan(run->workers) || same_number(cell->workers, run->workers)) && !run->stale;
}

bool fgl_run_counts(const fgl_cell *cell, const fgl_run *run) {
    return run->test && same_number(run->rate, cell->rate) && belongs_to_cell(cell->first, run);
}

/* ---- the rate ---------------------------------------------------------------------------------- */

/* Mean over the tune runs at a rate, higher is better; -inf if one had no value. */
static double rate_quality(const fgl_runs *runs, const fgl_cell *cell, double rate) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *run = &runs->run[i];
        if (run->test || !same_number(run->rate, rate) || !belongs_to_cell(cell->first, run))
            continue;
        if (isnan(run->value))
            return -INFINITY;
        sum += fgl_metric_up(run->metric) ? run->value : -run->value;
        count++;
    }
    return sum / (double)count;
}

/* The best tuned rate, if it was tested; otherwise the rate of the last test. */
static void choose_rate(const fgl_runs *runs, fgl_cell *cell) {
    double best = -INFINITY, tuned = NAN, last = cell->first->rate, low = INFINITY, high = -INFINITY;
    bool any = false, tested = false;
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *run = &runs->run[i];
        if (!belongs_to_cell(cell->first, run))
            continue;
        if (run->test) {
            last = run->rate;
            continue;
        }
        double now = rate_quality(runs, cell, run->rate);
        cell->tune_runs++;
        low = fmin(low, run->rate);
        high = fmax(high, run->rate);
        if (!any || now > best) {
            best = now;
            tuned = run->rate;
            any = true;
        }
    }
    cell->rate = tuned;
    for (size_t i = 0; i < runs->count && any; i++)
        tested |= fgl_run_counts(cell, &runs->run[i]);
    cell->rate = tested ? tuned : last;
    cell->edge = tested && low < high && (tuned <= low || tuned >= high);
}

/* ---- means ---------------------------------------------------------------------------------------- */

/** A mean of the known values. */
typedef struct running_mean {
    double sum;
    size_t count;
} running_mean;

static void add(running_mean *t, double x) {
    if (!isnan(x)) {
        t->sum += x;
        t->count++;
    }
}

static double mean(const running_mean *t) {
    return t->count == 0 ? NAN : t->sum / (double)t->count;
}

enum {
    VALUE,
    STEPS,
    DENSITY,
    BYTES,
    BYTES_STEP,
    BYTES_DENSE,
    STATE,
    WEIGHTS,
    GRADIENTS,
    LIBRARY,
    STATES,
    OPTIMIZER,
    STEP,
    TIMES,
    TALLIES = TIMES + FGL_TIMES
};

static void add_run(running_mean *t, const fgl_run *run) {
    add(&t[VALUE], run->value);
    add(&t[STEPS], run->steps);
    add(&t[DENSITY], run->density);
    add(&t[BYTES], run->bytes_sent);
    add(&t[BYTES_STEP], run->steps > 0 ? run->bytes_sent / run->steps : NAN);
    add(&t[BYTES_DENSE], run->steps > 0 ? run->bytes_dense / run->steps : NAN);
    add(&t[STATE], run->state_bytes);
    add(&t[WEIGHTS], run->weight_bytes);
    add(&t[GRADIENTS], run->gradient_bytes);
    add(&t[LIBRARY], run->library_bytes);
    add(&t[STATES], run->states);
    add(&t[OPTIMIZER], run->optimizer_bytes - (isnan(run->head_states) ? 0 : 4 * run->head_states));
    add(&t[STEP], run->step_ms);
    for (int k = 0; k < FGL_TIMES; k++)
        add(&t[TIMES + k], run->time_ms[k]);
}

static double spread(const fgl_runs *runs, const fgl_cell *cell) {
    double squares = 0;
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *run = &runs->run[i];
        if (fgl_run_counts(cell, run) && !isnan(run->value))
            squares += (run->value - cell->mean) * (run->value - cell->mean);
    }
    return cell->seeds < 2 ? NAN : sqrt(squares / (double)(cell->seeds - 1));
}

static void average_runs(const fgl_runs *runs, fgl_cell *cell) {
    running_mean t[TALLIES] = {{0, 0}};
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *run = &runs->run[i];
        if (!fgl_run_counts(cell, run))
            continue;
        add_run(t, run);
        cell->failed += isnan(run->value) ? 1 : 0;
        if (isnan(cell->workers))
            cell->workers = run->workers;
    }
    cell->seeds = t[VALUE].count;
    cell->mean = mean(&t[VALUE]);
    cell->sd = spread(runs, cell);
    cell->steps = mean(&t[STEPS]);
    cell->density = mean(&t[DENSITY]);
    cell->bytes_total = mean(&t[BYTES]);
    cell->bytes_step = mean(&t[BYTES_STEP]);
    cell->bytes_of_dense = cell->bytes_step / mean(&t[BYTES_DENSE]);
    cell->state_bytes = mean(&t[STATE]);
    cell->weight_bytes = mean(&t[WEIGHTS]);
    cell->gradient_bytes = mean(&t[GRADIENTS]);
    cell->library_bytes = mean(&t[LIBRARY]);
    cell->states = mean(&t[STATES]);
    cell->optimizer_bytes = mean(&t[OPTIMIZER]);
    cell->step_ms = mean(&t[STEP]);
    for (int k = 0; k < FGL_TIMES; k++)
        cell->time_ms[k] = mean(&t[TIMES + k]);
}

/* ---- beside dense ------------------------------------------------------------------------------------ */

const fgl_cell *fgl_dense_of(const fgl_panel *panel, const fgl_cell *cell) {
    const fgl_cell *any = NULL;
    for (size_t i = 0; i < panel->count; i++) {
        if (!panel->cell[i].dense)
            continue;
        if (same_number(panel->cell[i].workers, cell->workers))
            return &panel->cell[i];
        any = any == NULL ? &panel->cell[i] : any;
    }
    return any;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

/* Bytes are relative to those of dense runs, which may have another number of steps; if there are none, to the
 * trainer's count for dense. */
static void compare_with_dense(const fgl_panel *panel, fgl_cell *cell) {
    const fgl_cell *dense = fgl_dense_of(panel, cell);
    cell->of_dense = cell->state_of_dense = NAN;
    if (dense == NULL)
        return;
    cell->of_dense = fgl_metric_up(panel->metric) ? ratio(cell->mean, dense->mean) : ratio(dense->mean, cell->mean);
    cell->state_of_dense = ratio(cell->state_bytes, dense->state_bytes);
    if (dense->bytes_total > 0)
        cell->bytes_of_dense = cell->bytes_total / dense->bytes_total;
}

double fgl_speedup(const fgl_runs *runs, const fgl_timing *timing) {
    for (size_t i = 0; i < runs->timings; i++) {
        const fgl_timing *t = &runs->timing[i];
        if (strcmp(t->method, "dense") == 0 && strcmp(t->suite, timing->suite) == 0 &&
            strcmp(t->model, timing->model) == 0 && strcmp(t->link, timing->link) == 0 &&
            same_number(t->workers, timing->workers))
            return t->step_ms / timing->step_ms;
    }
    return NAN;
}

/* A timing belongs to a cell of the same method if the task begins with its model: resnet20 in resnet20-cifar10. */
static void find_speed(const fgl_runs *runs, fgl_cell *cell) {
    cell->speedup = NAN;
    for (size_t i = 0; i < runs->timings && isnan(cell->speedup); i++) {
        const fgl_timing *t = &runs->timing[i];
        size_t len = strlen(t->model);
        if (strcmp(t->suite, cell->first->suite) != 0 || strcmp(t->method, cell->first->method) != 0 || len == 0 ||
            strncmp(t->model, cell->first->task, len) != 0 || strchr("-", cell->first->task[len]) == NULL)
            continue;
        cell->speedup = fgl_speedup(runs, t);
        cell->link = t->link;
    }
}

/* ---- panels ------------------------------------------------------------------------------------------- */

static bool method_is(const char *method, const char *name) {
    size_t len = strlen(name);
    return fgl_method_stem(method) == len && strncmp(method, name, len) == 0;
}

static bool belongs_to_panel(const fgl_panel *panel, const fgl_run *run) {
    return strcmp(panel->suite, run->suite) == 0 && strcmp(panel->size, run->size) == 0 &&
           strcmp(panel->task, run->task) == 0;
}

static fgl_panel *panel_of(fgl_findings *f, const fgl_run *run) {
    for (size_t i = 0; i < f->count; i++)
        if (belongs_to_panel(&f->panel[i], run))
            return &f->panel[i];
    fgl_panel *all = realloc(f->panel, (f->count + 1) * sizeof *all);
    if (all == NULL)
        return NULL;
    f->panel = all;
    all[f->count] =
        (fgl_panel){run->suite, run->size, run->task, run->metric, NULL, 0, 0, strcmp(run->suite, "sgc") == 0};
    return &all[f->count++];
}

static bool is_sketch(const char *method) {
    return method_is(method, "sgc") || method_is(method, "mesgc") || method_is(method, "cesgc") ||
           method_is(method, "table");
}

static int add_cell(fgl_panel *panel, const fgl_run *run) {
    for (size_t i = 0; i < panel->count; i++)
        if (belongs_to_cell(panel->cell[i].first, run)) {
            if (isnan(panel->cell[i].first->workers) && !isnan(run->workers))
                panel->cell[i].first = run; /* prefer a run that did not fail */
            return 0;
        }
    fgl_cell *all = realloc(panel->cell, (panel->count + 1) * sizeof *all);
    if (all == NULL)
        return -1;
    panel->cell = all;
    all[panel->count++] =
        (fgl_cell){.first = run,
                   .label = run->label,
                   .dense = method_is(run->method, panel->tuned ? "full" : "dense"),
                   .ours = panel->tuned ? is_sketch(run->method) : strncmp(run->method, "frugrad", 7) == 0,
                   .workers = run->workers,
                   .speedup = NAN};
    return 0;
}

static int compare_kinds(const void *a, const void *b) {
    const fgl_cell *x = a, *y = b;
    int kind = (y->dense - x->dense) * 2 + (y->ours - x->ours);
    if (kind == 0 && x->ours) /* in the same order on every task */
        kind = strcmp(x->first->method, y->first->method);
    return kind != 0 ? kind : (x->first > y->first) - (x->first < y->first);
}

static void finish_panel(const fgl_runs *runs, fgl_panel *panel) {
    if (panel->count > 0)
        qsort(panel->cell, panel->count, sizeof *panel->cell, compare_kinds);
    for (size_t i = 0; i < panel->count; i++) {
        choose_rate(runs, &panel->cell[i]);
        average_runs(runs, &panel->cell[i]);
        find_speed(runs, &panel->cell[i]);
    }
    for (size_t i = panel->count; i-- > 0;) /* dense last: the others are compared with it */
        compare_with_dense(panel, &panel->cell[i]);
}

int fgl_findings_make(const fgl_runs *runs, const char *suite, fgl_findings *findings) {
    *findings = (fgl_findings){.runs = runs, .suite = suite};
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *run = &runs->run[i];
        if (suite != NULL && strcmp(suite, run->suite) != 0)
            continue;
        fgl_panel *panel = panel_of(findings, run);
        if (panel != NULL && run->stale) {
            panel->stale++;
            continue;
        }
        if (panel == NULL || add_cell(panel, run) != 0) {
            fgl_findings_free(findings);
            return fgio_error("out of memory");
        }
    }
    for (size_t i = 0; i < findings->count; i++)
        finish_panel(runs, &findings->panel[i]);
    return FGIO_EXIT_OK;
}

void fgl_findings_free(fgl_findings *findings) {
    for (size_t i = 0; i < findings->count; i++)
        free(findings->panel[i].cell);
    free(findings->panel);
    *findings = (fgl_findings){0};
}

/* ---- curves -------------------------------------------------------------------------------------------- */

static bool same_steps(const fgl_curve *a, const fgl_curve *b) {
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!same_number(a->step[i], b->step[i]))
            return false;
    return a->count == b->count;
}

int fgl_curve_mean(const fgl_runs *runs, const fgl_cell *cell, bool evals, fgl_curve *curve) {
    size_t seeds = 0, count = 0;
    double *sum = NULL;
    const fgl_curve *first = NULL;
    for (size_t i = 0; i < runs->count; i++) {
        const fgl_run *run = &runs->run[i];
        const fgl_curve *c = evals ? &run->evals : &run->curve;
        if (!fgl_run_counts(cell, run) || c->count == 0 || (first != NULL && !same_steps(first, c)))
            continue;
        if (first == NULL) {
            first = c;
            count = c->count;
            if ((sum = calloc(4 * count, sizeof *sum)) == NULL)
                return -1;
        }
        for (size_t k = 0; k < 4 * count; k++)
            sum[k] += c->step[k]; /* the four lists are contiguous */
        seeds++;
    }
    if (first == NULL)
        return -1;
    for (size_t k = 0; k < 4 * count; k++)
        sum[k] /= (double)seeds;
    *curve = (fgl_curve){count, sum, sum + count, sum + 2 * count, sum + 3 * count};
    return 0;
}

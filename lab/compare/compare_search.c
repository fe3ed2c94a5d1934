/*
 * compare_search.c - the next run.
 *
 * The only state is the outcomes: what a cell still needs follows from them, so a comparison that was stopped continues
 * as if it had not been.
 *
 * Every cell gets the same search: the same number of rates around the middle one, the suite's factor apart, one seed;
 * if the best is the first or the last of them, one more outside it, as often as the suite has extra rates. Then tests
 * at the best rate. The order makes partial results usable when time is up: task by task all searches and the first
 * seed, then the second seed of all, and so on.
 */
#include "lab/compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool fgl_suite_has(const fgl_compare *c, size_t task, size_t method) {
    return (c->suite.method[method].families & c->suite.task[task].family) != 0 && fgl_bytes_steps(c, task, method) > 0;
}

/* A language model has no head: if only the head is trained there is nothing to search. */
uint32_t fgl_search_rates(const fgl_compare *c, size_t task, size_t method) {
    bool nothing =
        c->suite.method[method].optimizer == FGL_OPTIMIZER_HEAD && c->suite.task[task].family == FGL_LANGUAGE;
    return nothing ? 1 : c->rates;
}

/* Rates have two digits, so that the command line, the record and the comparison have the same number. */
double fgl_search_rate(const fgl_compare *c, size_t task, size_t method, int i) {
    const fgl_compare_task *t = &c->suite.task[task];
    const fgl_method *m = &c->suite.method[method];
    bool own_length = m->optimizer == FGL_OPTIMIZER_SIGN || m->optimizer == FGL_OPTIMIZER_MUON;
    double middle = own_length ? t->sign_rate : t->rate;
    char text[32];
    if (m->middle > 0)
        middle = m->middle;
    middle *= m->scale[fgl_family_index(t)];
    snprintf(text, sizeof text, "%.1e", middle * pow(c->suite.factor, i - (int)fgl_search_rates(c, task, method) / 2));
    return strtod(text, NULL);
}

static bool same_rate(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static bool same_run(const fgl_trial *a, const fgl_trial *b) {
    return a->task == b->task && a->method == b->method && a->tune == b->tune && a->seed == b->seed &&
           same_rate(a->rate, b->rate);
}

/* The last outcome counts: failed runs may have been repeated. */
const fgl_outcome *fgl_search_find(const fgl_compare *c, const fgl_trial *run) {
    for (size_t i = c->outcomes; i > 0; i--)
        if (same_run(&c->outcome[i - 1].run, run))
            return &c->outcome[i - 1];
    return NULL;
}

static bool is_refused(const fgl_compare *c, size_t task, size_t method) {
    for (size_t i = 0; i < c->outcomes; i++) {
        const fgl_outcome *o = &c->outcome[i];
        if (o->run.task == task && o->run.method == method && o->refused)
            return true;
    }
    return false;
}

/** The state of a search. */
typedef struct search {
    int first, last; /* range of its rates */
    int best;        /* of the known rates */
    bool done;       /* all are known, and no more are needed */
} search;

static fgl_trial tune_run(const fgl_compare *c, size_t task, size_t method, int i) {
    return (fgl_trial){task, method, true, FGL_TUNE_SEED, fgl_search_rate(c, task, method, i)};
}

/* Quality of a rate; failed or diverged is the worst. false: not known yet. */
static bool rate_quality(const fgl_compare *c, size_t task, size_t method, int i, double *value) {
    fgl_trial run = tune_run(c, task, method, i);
    const fgl_outcome *o = fgl_search_find(c, &run);
    bool lower = c->suite.task[task].family == FGL_LANGUAGE;
    if (o != NULL)
        *value = isnan(o->value) ? -INFINITY : lower ? -o->value : o->value;
    return o != NULL;
}

/* Of equal rates the lowest wins, so that a search in which all diverge continues downward. */
static search get_search(const fgl_compare *c, size_t task, size_t method) {
    search s = {0, (int)fgl_search_rates(c, task, method) - 1, 0, false};
    for (int further = 0;; further++) {
        double best = 0, value;
        for (int i = s.first; i <= s.last; i++) {
            if (!rate_quality(c, task, method, i, &value))
                return s;
            if (i == s.first || value > best) {
                best = value;
                s.best = i;
            }
        }
        if (further == c->suite.extra_rates || (s.best != s.first && s.best != s.last))
            break;
        if (s.best == s.first)
            s.first--;
        else
            s.last++;
    }
    s.done = true;
    return s;
}

bool fgl_search_best(const fgl_compare *c, size_t task, size_t method, double *rate) {
    search s = {0, 0, 0, true};
    if (fgl_search_rates(c, task, method) > 1)
        s = get_search(c, task, method);
    if (s.done)
        *rate = fgl_search_rate(c, task, method, s.best);
    return s.done;
}

static bool is_needed(const fgl_compare *c, fgl_is_excluded *is_excluded, const void *ctx, const fgl_trial *run) {
    return fgl_search_find(c, run) == NULL && !is_excluded(ctx, run);
}

/* The next run of a cell, up to a seed. */
static bool next_in_cell(const fgl_compare *c, fgl_is_excluded *is_excluded, const void *ctx, size_t task,
                         size_t method, uint32_t seed, fgl_trial *run) {
    double rate = 0;
    if (!fgl_suite_has(c, task, method) || is_refused(c, task, method))
        return false;
    if (fgl_search_best(c, task, method, &rate)) {
        *run = (fgl_trial){task, method, false, seed, rate};
        return is_needed(c, is_excluded, ctx, run);
    }
    search s = get_search(c, task, method);
    for (int i = s.first; i <= s.last; i++) {
        *run = tune_run(c, task, method, i);
        if (is_needed(c, is_excluded, ctx, run))
            return true;
    }
    return false;
}

bool fgl_search_next(const fgl_compare *c, fgl_is_excluded *is_excluded, const void *ctx, fgl_trial *run) {
    for (uint32_t seed = 1; seed <= c->seeds; seed++)
        for (size_t task = 0; task < c->suite.tasks; task++)
            for (size_t method = 0; method < c->suite.methods; method++)
                if (next_in_cell(c, is_excluded, ctx, task, method, seed, run))
                    return true;
    return false;
}

/* Remaining runs of a cell, if its search needs no extra rates. */
static size_t remaining_in_cell(const fgl_compare *c, size_t task, size_t method) {
    size_t left = 0;
    double rate = 0;
    if (!fgl_suite_has(c, task, method) || is_refused(c, task, method))
        return 0;
    if (!fgl_search_best(c, task, method, &rate)) {
        search s = get_search(c, task, method);
        for (int i = s.first; i <= s.last; i++) {
            fgl_trial run = tune_run(c, task, method, i);
            left += fgl_search_find(c, &run) == NULL;
        }
        return left + c->seeds;
    }
    for (uint32_t seed = 1; seed <= c->seeds; seed++) {
        fgl_trial run = {task, method, false, seed, rate};
        left += fgl_search_find(c, &run) == NULL;
    }
    return left;
}

/* Mean seconds of the runs of a task; of all tasks if it has none. Some recorded runs have no time. */
static double mean_seconds(const fgl_compare *c, size_t task) {
    double sum[2] = {0, 0};
    size_t count[2] = {0, 0};
    for (size_t i = 0; i < c->outcomes; i++) {
        const fgl_outcome *o = &c->outcome[i];
        int other = o->run.task != task;
        if (isfinite(o->value) && o->seconds > 0) {
            sum[other] += o->seconds;
            count[other]++;
        }
    }
    return count[0] ? sum[0] / (double)count[0] : count[1] ? sum[1] / (double)count[1] : NAN;
}

double fgl_search_longest(const fgl_compare *c, size_t task) {
    double longest = 0;
    for (size_t i = 0; i < c->outcomes; i++)
        if (c->outcome[i].run.task == task && c->outcome[i].seconds > longest)
            longest = c->outcome[i].seconds;
    return longest;
}

size_t fgl_search_left(const fgl_compare *c, double *seconds) {
    size_t all = 0;
    *seconds = 0;
    for (size_t task = 0; task < c->suite.tasks; task++) {
        size_t left = 0;
        for (size_t method = 0; method < c->suite.methods; method++)
            left += remaining_in_cell(c, task, method);
        *seconds += (double)left * (left ? mean_seconds(c, task) : 0);
        all += left;
    }
    return all;
}

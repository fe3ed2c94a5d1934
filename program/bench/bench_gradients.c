/*
 * bench_gradients.c - `frugrad bench recover --gradients FILE`: how well sketches and tables track recorded gradients.
 *
 * A tensor's gradients are fed step by step to an optimizer of the library and to AdamW with full state
 * (bench_reference.c); rows give the difference, over the second half of the steps, when the means are full.
 *
 * Everything is read from the weights, through the public interface. Weights begin each step at zero, so that they are
 * the update afterwards. The recovered mean comes from a second optimizer that gets the gradient scaled down by a power
 * of two, until eps = 1 is all that remains of its divisor; that changes no bit of what is recovered.
 */
#include "program/bench/bench_gradients.h"

#include "frugrad.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CASES   128u
#define REFRESH     20u   /* steps between two divisions of s among chunks */
#define MAX_PURSUIT 1024u /* entries of a chunk beyond which recovery takes minutes a step */
#define QUICK_STEPS 8u

typedef enum source { FROM_OPTIMIZER, FROM_REFERENCE, FROM_BEST } source;

/* One case: which entries are selected, and what processes them. */
typedef struct trial {
    char name[48];
    char text[192]; /* of the optimizer; empty: only the selection is measured */
    source source;
    fgp_selection choice;
} trial;

typedef struct plan {
    trial trial[MAX_CASES];
    size_t count;
    const fgp_gradient_run *run;
} plan;

/* A trial on one stream. */
typedef struct trial_state {
    const fgp_gradient_run *run;
    const fgp_recorded *stream;
    const trial *trial;
    const float *grad; /* steps x d */
    size_t steps;
    frug_layout *layout;
    frug_optimizer *updates, *means;
    float *update, *mean, *scaled; /* d */
    double scale;                  /* of the gradients that `means` gets */
    double seconds;
    fgp_reference truth;
    fgp_gradient_row row;
} trial_state;

/* ---- cases ------------------------------------------------------------------------------------------ */

static trial *add(plan *p, const char *name, const fgp_selection *choice) {
    if ((p->run->filter && !strstr(name, p->run->filter)) || p->count == MAX_CASES)
        return NULL;
    trial *t = &p->trial[p->count++];
    *t = (trial){.choice = *choice};
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static void set_text(const plan *p, trial *t, const char *kind, const char *more) {
    if (t)
        snprintf(t->text, sizeof t->text, "%s:s=%u,kappa=%u,c=%u,targets=all,threads=%d%s", kind, t->choice.s,
                 t->choice.kappa, t->choice.c, p->run->threads, more);
}

static void add_kappas(plan *p, fgp_selection choice) {
    static const uint32_t kappas[] = {5, 6, 7, 8, 10, 14};
    static const char *const matrices[] = {"implicit", "explicit"}, *const methods[] = {"batch", "gomp4"};
    char name[48], more[64];
    for (size_t i = 0; i < sizeof kappas / sizeof kappas[0]; i++) {
        choice.kappa = kappas[i];
        for (size_t m = 0; m < 4; m++) {
            snprintf(name, sizeof name, "%s/%s/%u", matrices[m / 2], methods[m % 2], kappas[i]);
            snprintf(more, sizeof more, ",matrix=%s,method=%s", matrices[m / 2], methods[m % 2]);
            set_text(p, add(p, name, &choice), "mesgc", more);
        }
        snprintf(name, sizeof name, "table/%u", kappas[i]);
        set_text(p, add(p, name, &choice), "table", "");
    }
}

/* From one chunk to four times as many as requested, by powers of two. All get the same s, and shares of it that are
 * divisible by four, so s differs slightly from that of the other cases. */
static void add_chunks(plan *p, const fgp_selection *usual) {
    uint32_t most = 1, each;
    char name[48], more[96];
    while (2 * (uint64_t)most <= 4 * (uint64_t)usual->c && 8 * (uint64_t)most <= usual->s)
        most *= 2;
    each = (usual->s + 2 * most) / (4 * most);
    snprintf(more, sizeof more, ",adaptive=1,refresh=%u", REFRESH);
    for (uint32_t c = 1; c <= most; c *= 2) {
        fgp_selection choice = {.c = c, .s = (each ? each : 1) * 4 * most, .kappa = 7};
        int fast = choice.s / c <= MAX_PURSUIT;
        snprintf(name, sizeof name, "chunks/%u", c);
        trial *even = add(p, name, &choice);
        if (fast)
            set_text(p, even, "mesgc", "");
        if (c == 1)
            continue;
        choice.refresh = REFRESH;
        snprintf(name, sizeof name, "adaptive/%u", c);
        trial *adaptive = add(p, name, &choice);
        if (fast)
            set_text(p, adaptive, "mesgc", more);
    }
}

/* The parameters of a tensor: c chunks near the requested length, s a multiple of c. */
static int make_plan(plan *p, const fgp_gradient_run *run, const fgp_recorded *stream) {
    fgp_selection choice = {.kappa = 7};
    uint64_t c = (stream->d + run->chunk / 2) / run->chunk, s = run->s ? run->s : stream->d * 31 / 2048;
    char shown[80];
    c = c ? c : 1;
    choice.c = (uint32_t)c;
    choice.s = (uint32_t)((s / c ? s / c : 1) * c);
    *p = (plan){.run = run};
    if (choice.s / c * 14 > stream->d / c)
        return fgio_usage_error("%u entries of %llu in tensor %s are too many for kappa=14; take a smaller --s",
                                choice.s, (unsigned long long)stream->d,
                                fgio_printable(stream->name, shown, sizeof shown));
    trial *exact = add(p, "sparse-adamw", &choice), *best = add(p, "best-s", &choice);
    if (exact)
        exact->source = FROM_REFERENCE;
    if (best)
        best->source = FROM_BEST;
    add_kappas(p, choice);
    add_chunks(p, &choice);
    return p->count ? FGIO_EXIT_OK : fgio_usage_error("no case has '%s' in its name", run->filter);
}

/* ---- one optimizer and the reference ----------------------------------------------------------------- */

static int open_optimizer(trial_state *f, const char *more, frug_optimizer **optimizer) {
    char text[256];
    snprintf(text, sizeof text, "%s%s", f->trial->text, more);
    if (frug_optimizer_create(text, f->layout, NULL, optimizer) != FRUG_OK)
        return fgio_library_error(f->trial->name);
    return FGIO_EXIT_OK;
}

/* Gradients for reading means have a largest magnitude near 2^-40: their roots vanish beside eps = 1. */
static void set_scale(trial_state *f) {
    float most = 0;
    int exponent = 0;
    for (uint64_t i = 0; i < f->steps * f->stream->d; i++)
        most = fabsf(f->grad[i]) > most ? fabsf(f->grad[i]) : most;
    frexp((double)most, &exponent);
    f->scale = ldexp(1.0, -40 - exponent);
}

static int open_trial(trial_state *f) {
    const fgio_tensor *item = f->stream->first;
    frug_tensor tensor = FRUG_TENSOR_INIT;
    size_t bytes = ((size_t)f->stream->d + 1) * sizeof(float);
    tensor.name = "gradient";
    tensor.ndim = item->ndim;
    memcpy(tensor.shape, item->shape, sizeof tensor.shape);
    f->update = calloc(1, bytes);
    f->mean = calloc(1, bytes);
    f->scaled = calloc(1, bytes);
    if (!f->update || !f->mean || !f->scaled)
        return fgio_error("no memory for %llu elements", (unsigned long long)f->stream->d);
    set_scale(f);
    int status = fgp_reference_open(&f->truth, f->stream->d, &f->trial->choice);
    if (status != FGIO_EXIT_OK || !f->trial->text[0])
        return status;
    if (frug_layout_create(&f->layout) != FRUG_OK || frug_layout_add(f->layout, &tensor) != FRUG_OK)
        return fgio_library_error("cannot describe the tensor");
    status = open_optimizer(f, "", &f->updates);
    return status == FGIO_EXIT_OK ? open_optimizer(f, ",eps=1", &f->means) : status;
}

static void close_trial(trial_state *f) {
    frug_optimizer_destroy(f->updates);
    frug_optimizer_destroy(f->means);
    frug_layout_destroy(f->layout);
    fgp_reference_close(&f->truth);
    free(f->update), free(f->mean), free(f->scaled);
}

static double processor_seconds(void) {
    struct timespec now;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0 ? (double)now.tv_sec + 1e-9 * (double)now.tv_nsec : 0;
}

/* Stores minus the update and minus the mean, bias corrected, in the two arrays. */
static int step_optimizers(trial_state *f, size_t t, const float *g) {
    const uint64_t d = f->stream->d;
    memset(f->update, 0, (size_t)d * sizeof *f->update);
    memset(f->mean, 0, (size_t)d * sizeof *f->mean);
    for (uint64_t i = 0; i < d; i++)
        f->scaled[i] = (float)((double)g[i] * f->scale);
    double start = processor_seconds();
    frug_status status = frug_optimizer_step(f->updates, t, (frug_range){0, d}, g, 1.0, f->update);
    f->seconds += processor_seconds() - start;
    if (status == FRUG_OK)
        status = frug_optimizer_step(f->means, t, (frug_range){0, d}, f->scaled, 1.0, f->mean);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error(f->trial->name);
}

/* The case's update and mean of element i, comparable with AdamW's, without bias correction. */
static void estimate_of(const trial_state *f, uint64_t i, double *update, double *mean) {
    const fgp_reference *truth = &f->truth;
    if (f->trial->source == FROM_OPTIMIZER && f->trial->text[0]) {
        *update = -(double)f->update[i];
        *mean = -(double)f->mean[i] / f->scale * truth->correct1;
        return;
    }
    int there = f->trial->source == FROM_REFERENCE || truth->best[i];
    *update = there ? truth->step_sparse[i] : 0;
    *mean = there ? truth->mean[i] : 0;
}

static double cosine(double product, double a, double b) {
    return a > 0 && b > 0 ? product / sqrt(a * b) : 0;
}

static void compare(trial_state *f) {
    const fgp_reference *truth = &f->truth;
    double miss = 0, squares = 0, best = 0, found = 0, own = 0, sparse = 0, whole = 0, to_sparse = 0, to_whole = 0;
    fgp_gradient_row *row = &f->row;
    for (uint64_t i = 0; i < f->stream->d; i++) {
        double update, mean, m = truth->mean[i], a = truth->step_sparse[i], b = truth->step_whole[i];
        estimate_of(f, i, &update, &mean);
        miss += (mean - m) * (mean - m), squares += m * m;
        best += truth->best[i] && fabs(m) > 0;
        found += truth->best[i] && fabs(m) > 0 && fabs(mean) > 0;
        own += update * update, sparse += a * a, whole += b * b;
        to_sparse += update * a, to_whole += update * b;
    }
    row->steps++;
    row->found += best > 0 ? found / best : 1;
    row->error += squares > 0 ? sqrt(miss / squares) : 0;
    row->error_best += truth->error_best;
    row->cosine += cosine(to_sparse, own, sparse);
    row->cosine_whole += cosine(to_whole, own, whole);
    row->in_union += truth->in_union / truth->choice.s;
    row->heavy += truth->heavy / truth->choice.s;
    row->energy += truth->energy;
    row->overlap += truth->overlap;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

#define FIGURES 10
static void collect_figures(fgp_gradient_row *row, double *figure[FIGURES]) {
    double *all[FIGURES] = {&row->found,  &row->error,        &row->error_best, &row->in_union, &row->heavy,
                            &row->cosine, &row->cosine_whole, &row->energy,     &row->overlap,  &row->ms};
    memcpy(figure, all, sizeof all);
}

/* A table without evictions is AdamW on the selected entries; a sketch updates at most s entries. */
static void verify(trial_state *f) {
    fgp_gradient_row *row = &f->row;
    uint64_t room = frug_optimizer_state_count(f->updates) / 2, moved = 0;
    for (uint64_t i = 0; i < f->stream->d; i++)
        moved += fabsf(f->mean[i]) > 0;
    int table = strncmp(f->trial->text, "table", 5) == 0;
    if (!table && moved > row->s)
        snprintf(row->wrong, sizeof row->wrong, "%llu entries recovered of %u", (unsigned long long)moved, row->s);
    if (table && f->truth.in_union <= (double)(room / row->c) && !(row->error < 1e-4)) /* all fit one chunk */
        snprintf(row->wrong, sizeof row->wrong, "nothing was evicted, but means have an error of %.2g", row->error);
}

static void finish_row(trial_state *f) {
    fgp_gradient_row *row = &f->row;
    double *figure[FIGURES];
    row->ms = f->seconds * 1e3 / (double)f->steps / row->c * (double)row->steps;
    if (!f->updates)
        row->ms = NAN;
    collect_figures(row, figure);
    for (size_t i = 0; i < FIGURES; i++)
        *figure[i] /= (double)row->steps;
    if (f->updates) {
        row->bytes = (double)frug_optimizer_state_size(f->updates) - 40;
        verify(f);
    } else if (f->trial->source == FROM_OPTIMIZER) { /* only the selection was measured */
        row->found = row->error = row->cosine = row->cosine_whole = NAN;
    }
}

static int run_trial(const fgp_gradient_run *run, const fgp_recorded *stream, const trial *of, const float *grad,
                     size_t steps, fgp_gradient_row *row) {
    trial_state f = {.run = run, .stream = stream, .trial = of, .grad = grad, .steps = steps};
    const fgp_selection *choice = &of->choice;
    f.row = (fgp_gradient_row){.tensor = stream->name, .c = choice->c, .s = choice->s, .tensors = 1};
    f.row.kappa = of->text[0] ? choice->kappa : 0;
    f.row.bytes = NAN;
    snprintf(f.row.name, sizeof f.row.name, "%s", of->name);
    int status = open_trial(&f);
    for (size_t t = 0; t < steps && status == FGIO_EXIT_OK; t++) {
        const float *g = grad + t * stream->d;
        fgp_reference_step(&f.truth, t, g);
        if (f.updates)
            status = step_optimizers(&f, t, g);
        if (status == FGIO_EXIT_OK && t >= steps / 2)
            compare(&f);
    }
    if (status == FGIO_EXIT_OK)
        finish_row(&f);
    *row = f.row;
    close_trial(&f);
    return status;
}

/* Rows of one name over all tensors. */
typedef struct totals {
    fgp_gradient_row row[MAX_CASES];
    size_t count;
} totals;

static void add_to_totals(totals *all, fgp_gradient_row *row) {
    double *from[FIGURES], *to[FIGURES];
    size_t i = 0;
    while (i < all->count && strcmp(all->row[i].name, row->name) != 0)
        i++;
    if (i == MAX_CASES)
        return;
    if (i == all->count) {
        all->row[all->count++] = *row;
        return;
    }
    fgp_gradient_row *total = &all->row[i];
    collect_figures(row, from), collect_figures(total, to);
    for (size_t m = 0; m < FIGURES; m++)
        *to[m] += *from[m];
    total->tensors++;
    total->bytes += row->bytes;
    total->c = total->c == row->c ? row->c : 0;
    total->s = total->s == row->s ? row->s : 0;
}

static int print_totals(const fgp_gradient_run *run, totals *all) {
    int status = FGIO_EXIT_OK;
    for (size_t i = 0; i < all->count && status == FGIO_EXIT_OK; i++) {
        fgp_gradient_row *row = &all->row[i];
        double *figure[FIGURES];
        if (row->tensors < 2)
            continue;
        collect_figures(row, figure);
        for (size_t m = 0; m < FIGURES; m++)
            *figure[m] /= (double)row->tensors;
        row->tensor = NULL;
        row->wrong[0] = '\0';
        status = fgp_gradient_print(run, row);
    }
    return status;
}

/* ---- the command ---------------------------------------------------------------------------------------- */

static int run_stream(const fgp_gradient_run *run, const fgp_recording *recording, const fgp_recorded *stream,
                      totals *all, int *failed) {
    static plan p;
    size_t steps = run->quick && stream->steps > QUICK_STEPS ? QUICK_STEPS : stream->steps;
    float *grad = NULL;
    int status = make_plan(&p, run, stream);
    if (status == FGIO_EXIT_OK)
        status = fgp_recorded_load(recording, stream, steps, &grad);
    for (size_t i = 0; i < p.count && status == FGIO_EXIT_OK; i++) {
        fgp_gradient_row row;
        status = run_trial(run, stream, &p.trial[i], grad, steps, &row);
        if (status == FGIO_EXIT_OK)
            status = fgp_gradient_print(run, &row);
        if (status == FGIO_EXIT_OK && row.wrong[0]) {
            fgio_error("case %s does not verify: %s", row.name, row.wrong);
            *failed = 1;
        }
        if (status == FGIO_EXIT_OK)
            add_to_totals(all, &row);
    }
    free(grad);
    return status;
}

static int read_run(const fgp_args *args, fgp_gradient_run *run) {
    uint64_t threads = 1;
    int status = FGIO_EXIT_OK;
    run->quick = fgp_arg_given(args, "quick");
    run->json = fgp_arg_given(args, "json");
    run->filter = fgp_arg(args, "case");
    if (fgp_arg_given(args, "rounds"))
        return fgio_usage_error("bench recover --gradients takes no --rounds: its steps are those of the recording");
    if (fgp_arg_given(args, "s"))
        status = fgp_arg_u64(args, "s", 1, UINT64_C(1) << 24, &run->s);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(args, "chunk", 64, UINT64_C(1) << 28, &run->chunk);
    if (status == FGIO_EXIT_OK && fgp_arg_given(args, "threads"))
        status = fgp_arg_u64(args, "threads", 1, 1024, &threads);
    run->threads = (int)threads;
    return status;
}

int fgp_bench_gradients(const fgp_args *args) {
    static totals all;
    fgp_gradient_run run = {0};
    fgp_recording recording = {.file = FGIO_TENSOR_FILE_CLOSED};
    const char *path = fgp_arg(args, "gradients");
    int status = read_run(args, &run), failed = 0;
    if (status == FGIO_EXIT_OK)
        status = fgp_recording_open(path, &recording);
    if (status == FGIO_EXIT_OK)
        fgp_gradient_head(&run, path, &recording);
    for (size_t i = 0; i < recording.count && status == FGIO_EXIT_OK; i++)
        status = run_stream(&run, &recording, &recording.stream[i], &all, &failed);
    if (status == FGIO_EXIT_OK)
        status = print_totals(&run, &all);
    fgp_recording_close(&recording);
    return status == FGIO_EXIT_OK && failed ? FGIO_EXIT_FAIL : status;
}

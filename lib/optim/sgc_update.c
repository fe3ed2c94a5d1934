/*
 * sgc_update.c - update rule of sgc, mesgc and cesgc (Sparse Gradient Compression for Fine-Tuning Large Language
 * Models, 2025): AdamW's means as measurements.
 *
 * In every chunk the s largest entries are selected, they and their squares are measured with the same matrix, and
 * running means of the measurements are stored: M = A m and V = A v for the means m and v that AdamW would have. A step
 * recovers the s largest entries of m and of v, each by its own pursuit, and updates the weights where m was found.
 *
 * v is recovered with an error, and would be zero where it was not found. So it has two lower bounds: the smallest
 * positive value found in its chunk; and, by the Cauchy-Schwarz inequality, the smallest mean square that is possible
 * with the mean m (frugi_step_args.min_root). A true pair of means always meets the second, so it changes nothing that
 * was recovered well, and no step is longer than AdamW can take.
 */
#include "optim/target.h"

#include "base/float_bits.h"

#include <math.h>

/* ---- chunks and their solvers -------------------------------------------- */

uint32_t frugi_chunk_entries(const frug_optimizer *o, const frugi_optim_target *t, uint32_t chunk) {
    return o->options.adaptive ? o->targets->level[t->level_at + chunk] * t->unit : t->s;
}

const frugi_solver *frugi_chunk_solver(const frug_optimizer *o, const frugi_optim_target *t, uint32_t chunk) {
    const frugi_optim_targets *all = o->targets;
    uint32_t s = frugi_chunk_entries(o, t, chunk), d = (uint32_t)frugi_chunk_max_length(t);
    for (size_t i = 0; s && i < all->solvers; i++)
        if (all->solver[i].s == s && all->solver[i].d == d)
            return &all->solver[i];
    return NULL;
}

/* Consecutive chunks with equal numbers are recovered together. */
void frugi_recover_chunks(frug_optimizer *o, const frugi_optim_target *t, const float *p, const frugi_entries *out) {
    uint64_t s = 0;
    for (uint32_t j = 0, run; j < t->c; j += run) {
        const frugi_solver *solver = frugi_chunk_solver(o, t, j);
        for (run = 1; j + run < t->c && frugi_chunk_entries(o, t, j + run) == (solver ? solver->s : 0); run++)
            continue;
        if (!solver) {
            memset(out->count + j, 0, run * sizeof *out->count);
            continue;
        }
        /* Cannot fail: measurements are finite, and all numbers were checked when the solver was created. */
        (void)frugi_recover_run(solver->recover, p, run, out->index + s, out->value + s, out->count + j);
        p += (uint64_t)run * solver->k;
        s += (uint64_t)run * solver->s;
    }
}

/* ---- measure ------------------------------------------------------------- */

static void measure_chunks(frug_optimizer *o, const frugi_optim_target *t, const float *g, float *p, float *q) {
    frugi_target_work *work = &o->targets->work;
    const frugi_entries *x = &work->x;
    for (uint32_t j = 0; j < t->c; j++) {
        const frugi_solver *solver = frugi_chunk_solver(o, t, j);
        uint64_t from = frugi_chunk_begin(t, j), len = frugi_chunk_begin(t, j + 1) - from;
        if (!solver)
            continue;
        /* Cannot fail: indices are within the chunk, which is no longer than the matrix. */
        frugi_select_largest(work, g + from, len, solver->s, x->index, x->value);
        (void)frugi_matrix_apply(solver->matrix, x->index, x->value, solver->s, work->span, p);
        for (uint32_t i = 0; i < solver->s; i++)
            x->value[i] *= x->value[i];
        (void)frugi_matrix_apply(solver->matrix, x->index, x->value, solver->s, work->span, q);
        p += solver->k;
        q += solver->k;
    }
}

bool frugi_sketch_needs_gradient(const frug_optimizer *o, const frugi_optim_target *t, uint64_t step) {
    return (t->rank && frugi_basis_is_due(o, t, step)) || (o->options.adaptive && frugi_shares_are_due(o, t, step));
}

void frugi_sketch_measure(frug_optimizer *o, uint64_t step, const frugi_optim_target *t, const float *g,
                          float *measured) {
    if (t->rank) {
        frugi_project_gradient(o, step, t, g);
        g = o->targets->work.projected;
    }
    if (o->options.adaptive && frugi_shares_are_due(o, t, step))
        frugi_assign_shares(o, t, g);
    measure_chunks(o, t, g, measured, measured + t->moments);
    frugi_phase_end(o->targets, FRUGI_PHASE_PROJECT);
}

/* ---- update -------------------------------------------------------------- */

/* The recovered value of v at an index; 0 if there is none. Both lists ascend. */
static float find_value(const uint32_t *index, const float *value, uint32_t count, uint32_t wanted, uint32_t *next) {
    while (*next < count && index[*next] < wanted)
        (*next)++;
    return *next < count && index[*next] == wanted ? value[*next] : 0.0f;
}

static float smallest_positive(const float *value, uint32_t count) {
    float floor = 0;
    for (uint32_t i = 0; i < count; i++)
        if (value[i] > 0 && (floor == 0 || value[i] < floor))
            floor = value[i];
    return floor;
}

/* Turn the entries of x in one chunk into what is subtracted from the weights, over rate. */
static void normalize_entries(const frugi_step_args *args, const uint32_t *index, float *x, uint32_t nx,
                              const uint32_t *y_index, const float *y, uint32_t ny) {
    float floor = smallest_positive(y, ny);
    uint32_t next = 0;
    for (uint32_t i = 0; i < nx; i++) {
        float v = find_value(y_index, y, ny, index[i], &next);
        float root = sqrtf(v > floor ? v : floor) * args->root_gain, bound = fabsf(x[i]) * args->min_root;
        x[i] = x[i] / ((root > bound ? root : bound) + args->eps);
    }
}

/* w -= step at one measured index: a weight, or after a projection a vector of weights. */
static void subtract_at(const frugi_optim_target *t, const float *basis, uint64_t index, float step, float *w) {
    if (!t->rank) {
        w[index] -= step;
        return;
    }
    const size_t longer = t->side.longer, shorter = t->side.shorter, cols = t->side.cols;
    const float *direction = basis + index / longer * shorter;
    float *first = w + (t->side.tall ? index % longer * cols : index % longer);
    const size_t apart = t->side.tall ? 1 : cols;
    for (size_t e = 0; e < shorter; e++)
        first[e * apart] -= step * direction[e];
}

static void apply_update(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, float *w) {
    frugi_target_work *work = &o->targets->work;
    const float *basis = o->targets->basis + t->basis_at;
    const float rate = args->adam_rate * (float)o->options.scale;
    uint64_t at = 0;
    for (uint32_t j = 0; j < t->c; j++) {
        const uint32_t *index = work->x.index + at, nx = work->x.count[j];
        float *x = work->x.value + at;
        uint64_t from = frugi_chunk_begin(t, j), len = frugi_chunk_begin(t, j + 1) - from;
        normalize_entries(args, index, x, nx, work->y.index + at, work->y.value + at, work->y.count[j]);
        for (uint32_t i = 0; i < nx; i++)
            if (index[i] < len) /* a chunk may be one element shorter than the matrix */
                subtract_at(t, basis, from + index[i], rate * x[i], w);
        at += frugi_chunk_entries(o, t, j);
    }
}

static void update_means(float *state, const float *measured, uint64_t n, float beta, float rest) {
    for (uint64_t i = 0; i < n; i++)
        state[i] = beta * state[i] + rest * measured[i];
}

void frugi_step_sketch(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t,
                       const float *measured, float *w) {
    frugi_optim_targets *all = o->targets;
    float *mean = all->mean + t->moment_at, *square = all->square + t->moment_at;
    update_means(mean, measured, t->moments, args->beta1, args->one_minus_beta1);
    update_means(square, measured + t->moments, t->moments, args->beta2, args->one_minus_beta2);
    frugi_phase_end(all, FRUGI_PHASE_APPLY);
    frugi_recover_chunks(o, t, mean, &all->work.x);
    frugi_recover_chunks(o, t, square, &all->work.y);
    frugi_phase_end(all, FRUGI_PHASE_RECOVER);
    apply_update(o, args, t, w);
    frugi_phase_end(all, FRUGI_PHASE_APPLY);
}

/*
 * sgc_update.c - sgc, mesgc and cesgc (Sparse Gradient Compression for Fine-Tuning Large Language Models, 2025): the
 * means of AdamW as measurements. Of every chunk the s largest entries are taken, they and their squares are measured
 * by the same matrix, and running means are kept of the measurements: M = A m and V = A v for the means m and v that
 * AdamW would have. A step recovers the s largest entries of m and of v, each by a pursuit of its own, and moves the
 * weights where m was found.
 *
 * v is recovered with an error, and where it was not found it would be zero. So two floors hold. It is at least the
 * smallest positive value found in its chunk; and it is at least what the inequality of Cauchy and Schwarz says that
 * the mean square is when the mean is m (frugi_move.least_root). A true pair of means always meets the second, so it
 * changes nothing that was recovered well, and no step is longer than AdamW can take.
 */
#include "optim/target.h"

#include "base/float_bits.h"

#include <math.h>

/* ---- chunks and their solvers -------------------------------------------- */

uint32_t frugi_chunk_entries(const frug_optimizer *o, const frugi_tuned *t, uint32_t chunk) {
    return o->options.adaptive ? o->targets->level[t->level_at + chunk] * t->unit : t->s;
}

const frugi_solver *frugi_chunk_solver(const frug_optimizer *o, const frugi_tuned *t, uint32_t chunk) {
    const frugi_targets *all = o->targets;
    uint32_t s = frugi_chunk_entries(o, t, chunk), d = (uint32_t)frugi_chunk_most(t);
    for (size_t i = 0; s && i < all->solvers; i++)
        if (all->solver[i].s == s && all->solver[i].d == d)
            return &all->solver[i];
    return NULL;
}

/* Chunks of equal numbers lie side by side and are recovered together. */
void frugi_recover_chunks(frug_optimizer *o, const frugi_tuned *t, const float *p, const frugi_entries *out) {
    uint64_t s = 0;
    for (uint32_t j = 0, run; j < t->c; j += run) {
        const frugi_solver *solver = frugi_chunk_solver(o, t, j);
        for (run = 1; j + run < t->c && frugi_chunk_entries(o, t, j + run) == (solver ? solver->s : 0); run++)
            continue;
        if (!solver) {
            memset(out->count + j, 0, run * sizeof *out->count);
            continue;
        }
        /* Cannot fail: measurements are finite, and all numbers were checked when the solver was made. */
        (void)frugi_recover_run(solver->recover, p, run, out->index + s, out->value + s, out->count + j);
        p += (uint64_t)run * solver->k;
        s += (uint64_t)run * solver->s;
    }
}

/* ---- measuring ----------------------------------------------------------- */

static void measure(frug_optimizer *o, const frugi_tuned *t, const float *g, float *p, float *q) {
    frugi_target_work *work = &o->targets->work;
    const frugi_entries *x = &work->x;
    for (uint32_t j = 0; j < t->c; j++) {
        const frugi_solver *solver = frugi_chunk_solver(o, t, j);
        uint64_t from = frugi_chunk_at(t, j), len = frugi_chunk_at(t, j + 1) - from;
        if (!solver)
            continue;
        /* Cannot fail: places come from the chunk, which is no longer than the matrix. */
        frugi_largest(work, g + from, len, solver->s, x->index, x->value);
        (void)frugi_matrix_apply(solver->matrix, x->index, x->value, solver->s, work->span, p);
        for (uint32_t i = 0; i < solver->s; i++)
            x->value[i] *= x->value[i];
        (void)frugi_matrix_apply(solver->matrix, x->index, x->value, solver->s, work->span, q);
        p += solver->k;
        q += solver->k;
    }
}

bool frugi_sketch_renews(const frug_optimizer *o, const frugi_tuned *t, uint64_t step) {
    return (t->rank && frugi_basis_is_due(o, t, step)) || (o->options.adaptive && frugi_shares_are_due(o, t, step));
}

void frugi_sketch_measure(frug_optimizer *o, uint64_t step, const frugi_tuned *t, const float *g, float *measured) {
    if (t->rank) {
        frugi_project(o, step, t, g);
        g = o->targets->work.far;
    }
    if (o->options.adaptive && frugi_shares_are_due(o, t, step))
        frugi_share_out(o, t, g);
    measure(o, t, g, measured, measured + t->moments);
    frugi_lap_ends(o->targets, FRUGI_LAP_PROJECT);
}

/* ---- moving -------------------------------------------------------------- */

/* What is recovered of v at these places; 0 where nothing was. Both lists ascend. */
static float value_at(const uint32_t *index, const float *value, uint32_t count, uint32_t place, uint32_t *next) {
    while (*next < count && index[*next] < place)
        (*next)++;
    return *next < count && index[*next] == place ? value[*next] : 0.0f;
}

static float smallest_positive(const float *value, uint32_t count) {
    float least = 0;
    for (uint32_t i = 0; i < count; i++)
        if (value[i] > 0 && (least == 0 || value[i] < least))
            least = value[i];
    return least;
}

/* Turn the entries of x in one chunk into what is subtracted from the weights, over rate. */
static void normalise(const frugi_move *move, const uint32_t *index, float *x, uint32_t nx, const uint32_t *y_index,
                      const float *y, uint32_t ny) {
    float least = smallest_positive(y, ny);
    uint32_t next = 0;
    for (uint32_t i = 0; i < nx; i++) {
        float v = value_at(y_index, y, ny, index[i], &next);
        float root = sqrtf(v > least ? v : least) * move->root_gain, bound = fabsf(x[i]) * move->least_root;
        x[i] = x[i] / ((root > bound ? root : bound) + move->eps);
    }
}

/* w -= step at one place of what was measured: a weight, or after a projection a vector of weights. */
static void put(const frugi_tuned *t, const float *basis, uint64_t place, float step, float *w) {
    if (!t->rank) {
        w[place] -= step;
        return;
    }
    const size_t far = t->side.far, near = t->side.near, cols = t->side.cols;
    const float *direction = basis + place / far * near;
    float *first = w + (t->side.tall ? place % far * cols : place % far);
    const size_t apart = t->side.tall ? 1 : cols;
    for (size_t e = 0; e < near; e++)
        first[e * apart] -= step * direction[e];
}

static void apply(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, float *w) {
    frugi_target_work *work = &o->targets->work;
    const float *basis = o->targets->basis + t->basis_at;
    const float rate = move->adam_rate * (float)o->options.scale;
    uint64_t at = 0;
    for (uint32_t j = 0; j < t->c; j++) {
        const uint32_t *index = work->x.index + at, nx = work->x.count[j];
        float *x = work->x.value + at;
        uint64_t from = frugi_chunk_at(t, j), len = frugi_chunk_at(t, j + 1) - from;
        normalise(move, index, x, nx, work->y.index + at, work->y.value + at, work->y.count[j]);
        for (uint32_t i = 0; i < nx; i++)
            if (index[i] < len) /* a chunk may be one shorter than the matrix */
                put(t, basis, from + index[i], rate * x[i], w);
        at += frugi_chunk_entries(o, t, j);
    }
}

static void add_measured(float *state, const float *measured, uint64_t n, float beta, float rest) {
    for (uint64_t i = 0; i < n; i++)
        state[i] = beta * state[i] + rest * measured[i];
}

void frugi_move_sketch(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *measured,
                       float *w) {
    frugi_targets *all = o->targets;
    float *mean = all->mean + t->moment_at, *square = all->square + t->moment_at;
    add_measured(mean, measured, t->moments, move->beta1, move->rest1);
    add_measured(square, measured + t->moments, t->moments, move->beta2, move->rest2);
    frugi_lap_ends(all, FRUGI_LAP_APPLY);
    frugi_recover_chunks(o, t, mean, &all->work.x);
    frugi_recover_chunks(o, t, square, &all->work.y);
    frugi_lap_ends(all, FRUGI_LAP_RECOVER);
    apply(o, move, t, w);
    frugi_lap_ends(all, FRUGI_LAP_APPLY);
}

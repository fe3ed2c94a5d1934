/*
 * lowrank_update.c - the methods that SGC is compared with, on gradients of whole tensors.
 *
 * lora (Hu et al., 2021): w = w0 + alpha / rank B A, with AdamW on A and B. Their gradients are products with the
 * gradient of w, and w changes by the difference of two products, so w0 is not stored; rounding errors add up as in any
 * optimizer. galore (Zhao et al., 2024): AdamW on the gradient projected to its leading singular vectors, which are
 * recomputed every `refresh` steps; means are not rotated with them, as in the paper. apollo (Zhu et al., 2024): the
 * gradient itself, each row or column along the longer side scaled by how much AdamW changes the length of its random
 * projection. The projection uses random signs instead of normal numbers: they preserve lengths as well and are drawn
 * again at every step instead of being stored. As in the paper, the norm of a step is at most 1.01 times that of the
 * one before.
 */
#include "optim/target.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "optim/matrix_product.h"

#include <float.h>
#include <math.h>

#define SEED_LORA   0x6c6f7261u
#define SEED_APOLLO 0x61706f6cu
#define SEED_BASIS  0x62617365u

/* ---- lora ---------------------------------------------------------------- */

/* Factors, their gradients and moments: rank x cols, then rank x rows. */
void frugi_lora_init(frug_optimizer *o, const frugi_optim_target *t) {
    const size_t inputs = t->input_first ? t->side.rows : t->side.cols, n = (size_t)t->rank * inputs;
    float *factor = o->targets->basis + t->basis_at + (t->input_first ? (size_t)t->rank * t->side.cols : 0);
    const float bound = (float)(1 / sqrt((double)inputs)); /* as PyTorch initializes Linear */
    for (size_t i = 0; i < n; i++)
        factor[i] = (float)(int32_t)frugi_random(SEED_LORA, t->tensor, i) * 0x1p-31f * bound;
}

static void add_product(const frugi_optim_target *t, const float *by_row, const float *by_col, float factor, float *w,
                        int threads) {
    frugi_product p = {by_row, 1, t->side.rows, by_col, t->side.cols, t->side.rows, t->side.cols, t->rank};
    frugi_multiply(&p, 1, factor, w, threads);
}

void frugi_step_lora(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                     float *w, float decay_factor) {
    const size_t rows = t->side.rows, cols = t->side.cols, first = (size_t)t->rank * cols, n = first + t->rank * rows;
    const int threads = (int)o->options.threads;
    const float factor = (float)(o->options.alpha / (double)t->rank);
    frugi_optim_targets *all = o->targets;
    float *factors = all->basis + t->basis_at, *grad = all->work.projected, *old_factors = all->work.update;
    frugi_product to_cols = {factors + first, rows, 1, g, cols, t->rank, cols, rows};
    frugi_multiply(&to_cols, 0, factor, grad, threads);
    frugi_multiply_rows(factors, t->rank, g, rows, cols, grad + first, threads);
    for (size_t i = first; i < n; i++)
        grad[i] *= factor;
    frugi_phase_end(all, FRUGI_PHASE_PROJECT);
    if (!frugi_all_below(grad, n, FRUGI_OPTIM_GRAD_LIMIT))
        return;
    memcpy(old_factors, factors, n * sizeof *factors);
    frugi_step_adam(args, all->mean + t->moment_at, all->square + t->moment_at, factors, grad, (uint32_t)n,
                    decay_factor);
    if (!frugi_all_below(factors, n, FRUGI_OPTIM_GRAD_LIMIT)) { /* the learning rate was far too large */
        memcpy(factors, old_factors, n * sizeof *factors);
        return;
    }
    for (size_t i = 0; i < n; i++)
        grad[i] = factors[i] - old_factors[i];
    /* B' A' - B A = (B' - B) A' + B (A' - A): avoids the difference of large products. */
    add_product(t, grad + first, factors, factor, w, threads);
    add_product(t, old_factors + first, grad, factor, w, threads);
}

/* ---- galore -------------------------------------------------------------- */

bool frugi_basis_is_due(const frug_optimizer *o, const frugi_optim_target *t, uint64_t step) {
    const float *basis = o->targets->basis + t->basis_at;
    bool none = true; /* no step yet, or all were skipped: rows of a basis have length one */
    for (size_t i = 0; i < t->side.shorter && none; i++)
        none = basis[i] == 0;
    return none || step % o->options.refresh == 0;
}

void frugi_project_gradient(frug_optimizer *o, uint64_t step, const frugi_optim_target *t, const float *g) {
    frugi_target_work *work = &o->targets->work;
    float *basis = o->targets->basis + t->basis_at;
    const int threads = (int)o->options.threads;
    if (frugi_basis_is_due(o, t, step))
        frugi_compute_basis(&t->side, g, t->rank, SEED_BASIS, work->basis, basis, threads);
    frugi_project_to_longer(&t->side, basis, t->rank, g, work->projected, threads);
}

/* Update AdamW's means of work.projected; work.update = what it would subtract, over the rate and its correction. */
static void adam_update(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t) {
    const float *r = o->targets->work.projected;
    float *m = o->targets->mean + t->moment_at, *v = o->targets->square + t->moment_at, *n = o->targets->work.update;
    for (uint64_t i = 0; i < t->moments; i++) {
        m[i] = args->beta1 * m[i] + args->one_minus_beta1 * r[i];
        v[i] = args->beta2 * v[i] + args->one_minus_beta2 * (r[i] * r[i]);
        n[i] = m[i] / (sqrtf(v[i]) * args->root_gain + args->eps);
    }
}

void frugi_step_galore(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                       float *w, float decay_factor) {
    frugi_project_gradient(o, args->step, t, g);
    frugi_phase_end(o->targets, FRUGI_PHASE_PROJECT);
    adam_update(o, args, t);
    frugi_add_outer_products(&t->side, o->targets->basis + t->basis_at, o->targets->work.update, t->rank, decay_factor,
                             -args->adam_rate * (float)o->options.scale, w, (int)o->options.threads);
}

/* ---- apollo -------------------------------------------------------------- */

static void draw_signs(float *x, size_t rank, size_t shorter, uint64_t tensor, uint64_t epoch) {
    const float unit = (float)(1 / sqrt((double)rank));
    for (size_t i = 0; i < rank * shorter; i += 32) {
        uint32_t bits = frugi_random(SEED_APOLLO + (tensor << 32), epoch, i / 32);
        for (size_t j = i; j < i + 32 && j < rank * shorter; j++, bits >>= 1)
            x[j] = bits & 1 ? unit : -unit;
    }
}

/* Ratio of the lengths of update and projection, for each column along the longer side, or for all of them together. */
static void scale_factors(const frugi_optim_target *t, bool together, const float *r, const float *step,
                          float *factor) {
    const size_t longer = t->side.longer;
    double old_factors = 0, after = 0;
    for (size_t e = 0; e < longer; e++) {
        old_factors = together ? old_factors : 0;
        after = together ? after : 0;
        for (size_t i = 0; i < t->rank; i++) {
            old_factors += (double)r[i * longer + e] * (double)r[i * longer + e];
            after += (double)step[i * longer + e] * (double)step[i * longer + e];
        }
        factor[e] = old_factors > 0 ? (float)sqrt(after / old_factors) : 0.0f;
    }
    for (size_t e = 0; together && e < longer; e++)
        factor[e] = factor[longer - 1];
}

/*
 * Factor by which to scale the step so that its norm is at most `growth` times that of the step before, which is stored
 * in *last. There is no limit after no step or one of zeros.
 */
static float limit_growth(const frugi_optim_target *t, const float *g, const float *factor, double gain, double growth,
                          float *last) {
    double sum = 0;
    for (size_t i = 0; i < t->side.rows; i++)
        for (size_t j = 0; j < t->side.cols; j++) {
            double step = (double)factor[t->side.tall ? i : j] * (double)g[i * t->side.cols + j];
            sum += step * step;
        }
    double norm = gain * sqrt(sum), most = growth * (double)*last;
    double cut = *last > 0 && norm > most ? most / norm : 1;
    norm *= cut;
    *last = norm < (double)FLT_MAX ? (float)norm : 0.0f;
    return (float)cut;
}

void frugi_step_apollo(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                       float *w, float decay_factor) {
    frugi_target_work *work = &o->targets->work;
    const size_t rows = t->side.rows, cols = t->side.cols;
    draw_signs(work->signs, t->rank, t->side.shorter, t->tensor, args->step / o->options.refresh);
    frugi_project_to_longer(&t->side, work->signs, t->rank, g, work->projected, (int)o->options.threads);
    frugi_phase_end(o->targets, FRUGI_PHASE_PROJECT);
    adam_update(o, args, t);
    scale_factors(t, o->options.per_tensor != 0, work->projected, work->update, work->factor);
    const float cut =
        limit_growth(t, g, work->factor, (double)args->mean_gain, o->options.growth, o->targets->basis + t->basis_at);
    const float rate = args->adam_rate * (float)o->options.scale * cut;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            w[i * cols + j] =
                decay_factor * w[i * cols + j] - rate * work->factor[t->side.tall ? i : j] * g[i * cols + j];
}

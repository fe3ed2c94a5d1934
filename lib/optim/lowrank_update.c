/*
 * lowrank_update.c - the methods that SGC is compared with, over the same gradients of whole tensors.
 *
 * lora (Hu et al., 2021): w = w0 + alpha / rank B A, with AdamW on A and B. Their gradients are products with that of
 * w, and w moves by the difference of two products, so w0 is not kept; rounding adds up as in any optimiser. galore
 * (Zhao et al., 2024): AdamW on the gradient projected to its leading singular vectors, which are renewed now and then;
 * means are not turned with them, as there. apollo (Zhu et al., 2024): the gradient itself, each row or column along
 * the longer side scaled by how much AdamW changes the length of its random projection. Signs take the place of normal
 * numbers: they preserve lengths as well and are drawn anew at every step instead of being stored. As there, the norm
 * of a step is at most 1.01 times that of the one before.
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
void frugi_lora_begin(frug_optimizer *o, const frugi_tuned *t) {
    const size_t inputs = t->input_first ? t->side.rows : t->side.cols, n = (size_t)t->rank * inputs;
    float *factor = o->targets->basis + t->basis_at + (t->input_first ? (size_t)t->rank * t->side.cols : 0);
    const float bound = (float)(1 / sqrt((double)inputs)); /* as PyTorch's Linear begins */
    for (size_t i = 0; i < n; i++)
        factor[i] = (float)(int32_t)frugi_random(SEED_LORA, t->tensor, i) * 0x1p-31f * bound;
}

static void add_product(const frugi_tuned *t, const float *by_row, const float *by_col, float factor, float *w,
                        int threads) {
    frugi_product p = {by_row, 1, t->side.rows, by_col, t->side.cols, t->side.rows, t->side.cols, t->rank};
    frugi_multiply(&p, 1, factor, w, threads);
}

void frugi_move_lora(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                     float keep) {
    const size_t rows = t->side.rows, cols = t->side.cols, first = (size_t)t->rank * cols, n = first + t->rank * rows;
    const int threads = (int)o->options.threads;
    const float factor = (float)(o->options.alpha / (double)t->rank);
    frugi_targets *all = o->targets;
    float *own = all->basis + t->basis_at, *grad = all->work.far, *before = all->work.step;
    frugi_product to_cols = {own + first, rows, 1, g, cols, t->rank, cols, rows};
    frugi_multiply(&to_cols, 0, factor, grad, threads);
    frugi_multiply_rows(own, t->rank, g, rows, cols, grad + first, threads);
    for (size_t i = first; i < n; i++)
        grad[i] *= factor;
    frugi_lap_ends(all, FRUGI_LAP_PROJECT);
    if (!frugi_all_below(grad, n, FRUGI_OPTIM_HELD))
        return;
    memcpy(before, own, n * sizeof *own);
    frugi_move_adam(move, all->mean + t->moment_at, all->square + t->moment_at, own, grad, (uint32_t)n, keep);
    if (!frugi_all_below(own, n, FRUGI_OPTIM_HELD)) { /* a rate without reason */
        memcpy(own, before, n * sizeof *own);
        return;
    }
    for (size_t i = 0; i < n; i++)
        grad[i] = own[i] - before[i];
    /* B' A' - B A = (B' - B) A' + B (A' - A): no difference of large products. */
    add_product(t, grad + first, own, factor, w, threads);
    add_product(t, before + first, grad, factor, w, threads);
}

/* ---- galore -------------------------------------------------------------- */

bool frugi_basis_is_due(const frug_optimizer *o, const frugi_tuned *t, uint64_t step) {
    const float *basis = o->targets->basis + t->basis_at;
    bool none = true; /* no step yet, or all were held back: a basis has rows of length one */
    for (size_t i = 0; i < t->side.near && none; i++)
        none = basis[i] == 0;
    return none || step % o->options.refresh == 0;
}

void frugi_project(frug_optimizer *o, uint64_t step, const frugi_tuned *t, const float *g) {
    frugi_target_work *work = &o->targets->work;
    float *basis = o->targets->basis + t->basis_at;
    const int threads = (int)o->options.threads;
    if (frugi_basis_is_due(o, t, step))
        frugi_basis(&t->side, g, t->rank, SEED_BASIS, work->basis, basis, threads);
    frugi_to_far(&t->side, basis, t->rank, g, work->far, threads);
}

/* AdamW's means of work.far, and in work.step what it would subtract, over the rate and its correction. */
static void adam(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t) {
    const float *r = o->targets->work.far;
    float *m = o->targets->mean + t->moment_at, *v = o->targets->square + t->moment_at, *n = o->targets->work.step;
    for (uint64_t i = 0; i < t->moments; i++) {
        m[i] = move->beta1 * m[i] + move->rest1 * r[i];
        v[i] = move->beta2 * v[i] + move->rest2 * (r[i] * r[i]);
        n[i] = m[i] / (sqrtf(v[i]) * move->root_gain + move->eps);
    }
}

void frugi_move_galore(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep) {
    frugi_project(o, move->step, t, g);
    frugi_lap_ends(o->targets, FRUGI_LAP_PROJECT);
    adam(o, move, t);
    frugi_from_both(&t->side, o->targets->basis + t->basis_at, o->targets->work.step, t->rank, keep,
                    -move->adam_rate * (float)o->options.scale, w, (int)o->options.threads);
}

/* ---- apollo -------------------------------------------------------------- */

static void draw_signs(float *x, size_t rank, size_t near, uint64_t tensor, uint64_t epoch) {
    const float unit = (float)(1 / sqrt((double)rank));
    for (size_t i = 0; i < rank * near; i += 32) {
        uint32_t bits = frugi_random(SEED_APOLLO + (tensor << 32), epoch, i / 32);
        for (size_t j = i; j < i + 32 && j < rank * near; j++, bits >>= 1)
            x[j] = bits & 1 ? unit : -unit;
    }
}

/* How much longer each of the `far` columns of step is than that of the projection, or all together are. */
static void scale_factors(const frugi_tuned *t, bool together, const float *r, const float *step, float *factor) {
    const size_t far = t->side.far;
    double before = 0, after = 0;
    for (size_t e = 0; e < far; e++) {
        before = together ? before : 0;
        after = together ? after : 0;
        for (size_t i = 0; i < t->rank; i++) {
            before += (double)r[i * far + e] * (double)r[i * far + e];
            after += (double)step[i * far + e] * (double)step[i * far + e];
        }
        factor[e] = before > 0 ? (float)sqrt(after / before) : 0.0f;
    }
    for (size_t e = 0; together && e < far; e++)
        factor[e] = factor[far - 1];
}

/*
 * What the step is multiplied by so that its norm is at most `growth` times that of the step before, which is kept in
 * *last. Nothing limits a step after none or one of zeros.
 */
static float limit_growth(const frugi_tuned *t, const float *g, const float *factor, double gain, double growth,
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

void frugi_move_apollo(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep) {
    frugi_target_work *work = &o->targets->work;
    const size_t rows = t->side.rows, cols = t->side.cols;
    draw_signs(work->near, t->rank, t->side.near, t->tensor, move->step / o->options.refresh);
    frugi_to_far(&t->side, work->near, t->rank, g, work->far, (int)o->options.threads);
    frugi_lap_ends(o->targets, FRUGI_LAP_PROJECT);
    adam(o, move, t);
    scale_factors(t, o->options.per_tensor != 0, work->far, work->step, work->factor);
    const float cut =
        limit_growth(t, g, work->factor, (double)move->mean_gain, o->options.growth, o->targets->basis + t->basis_at);
    const float rate = move->adam_rate * (float)o->options.scale * cut;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            w[i * cols + j] = keep * w[i * cols + j] - rate * work->factor[t->side.tall ? i : j] * g[i * cols + j];
}

/*
 * norm_planes.h - the kernels of batch norm (kernels.h) for vectors of LANES floats. A vector that reaches past the end
 * of the plane is filled up with numbers that add nothing.
 *
 * Included by one file per variant, which defines LANES and lane_sum(). Descriptions of planes are copied, so that
 * the compiler knows that no store changes them.
 */
#include "trainer/nn/kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The LANES numbers at x, or only the first n of them and then `fill`. */
INLINE vec load_some(const float *x, size_t n, float fill) {
    if (n >= LANES)
        return load(x);
    vec v = fill - (vec){0};
    memcpy(&v, x, n * sizeof *x);
    return v;
}

INLINE void store_some(float *y, size_t n, vec v) {
    if (n >= LANES)
        store(y, v);
    else
        memcpy(y, &v, n * sizeof *y);
}

/* v where x > 0, 0 elsewhere. */
INLINE vec where_positive(vec x, vec v) {
    return (vec)((int_vec)(x > 0.0f) & (int_vec)v);
}

/* ---- sums: of two numbers for each pixel, in two pairs of vectors ---- */

typedef struct vec_pair {
    vec a, b;
} vec_pair;

INLINE void store_sums(const vec_pair s[2], double sum[2]) {
    sum[0] = (double)lane_sum(s[0].a + s[1].a);
    sum[1] = (double)lane_sum(s[0].b + s[1].b);
}

INLINE vec_pair difference_step(vec_pair s, const fgt_norm_plane *p, size_t i, size_t n) {
    vec d = load_some(p->x + i, n, p->mean) - p->mean;
    return (vec_pair){s.a + d, s.b + d * d};
}

static void norm_sums(const fgt_norm_plane *plane, double sum[2]) {
    const fgt_norm_plane p = *plane;
    vec_pair s[2] = {{{0}, {0}}, {{0}, {0}}};
    size_t i = 0;
    for (; i + 2 * LANES <= p.n; i += 2 * LANES) {
        s[0] = difference_step(s[0], &p, i, LANES);
        s[1] = difference_step(s[1], &p, i + LANES, LANES);
    }
    for (; i < p.n; i += LANES)
        s[0] = difference_step(s[0], &p, i, p.n - i);
    store_sums(s, sum);
}

/* g, where d is x - mean. The result of ReLU without a sum is computed again: that costs less than reading it. */
INLINE vec masked_grad(const fgt_norm_plane *p, const float *dy, size_t i, size_t n, vec d, const fgt_norm_end end) {
    vec g = load_some(dy + i, n, 0.0f);
    if (end == FGT_NORM_RELU)
        return where_positive(d * p->scale + p->bias, g);
    return end == FGT_NORM_ADD_RELU ? where_positive(load_some(p->y + i, n, 0.0f), g) : g;
}

INLINE vec_pair grad_step(vec_pair s, const fgt_norm_plane *p, const float *dy, size_t i, size_t n,
                          const fgt_norm_end end) {
    vec d = load_some(p->x + i, n, p->mean) - p->mean, g = masked_grad(p, dy, i, n, d, end);
    return (vec_pair){s.a + g, s.b + g * d};
}

INLINE void sum_grads(const fgt_norm_plane p, const float *dy, double sum[2], const fgt_norm_end end) {
    vec_pair s[2] = {{{0}, {0}}, {{0}, {0}}};
    size_t i = 0;
    for (; i + 2 * LANES <= p.n; i += 2 * LANES) {
        s[0] = grad_step(s[0], &p, dy, i, LANES, end);
        s[1] = grad_step(s[1], &p, dy, i + LANES, LANES, end);
    }
    for (; i < p.n; i += LANES)
        s[0] = grad_step(s[0], &p, dy, i, p.n - i, end);
    store_sums(s, sum);
}

static void norm_grad_sums(const fgt_norm_plane *p, const fgt_norm_grads *d, double sum[2]) {
    switch (p->end) {
    case FGT_NORM_ONLY: sum_grads(*p, d->dy, sum, FGT_NORM_ONLY); break;
    case FGT_NORM_RELU: sum_grads(*p, d->dy, sum, FGT_NORM_RELU); break;
    case FGT_NORM_ADD_RELU: sum_grads(*p, d->dy, sum, FGT_NORM_ADD_RELU); break;
    }
}

/* ---- results ---- */

INLINE void apply_step(const fgt_norm_plane *p, size_t i, size_t n, const fgt_norm_end end) {
    vec y = (load_some(p->x + i, n, 0.0f) - p->mean) * p->scale + p->bias;
    if (end == FGT_NORM_ADD_RELU)
        y += load_some(p->other + i, n, 0.0f);
    store_some(p->y + i, n, end == FGT_NORM_ONLY ? y : where_positive(y, y));
}

INLINE void apply_plane(const fgt_norm_plane p, const fgt_norm_end end) {
    size_t i = 0;
    for (; i + LANES <= p.n; i += LANES)
        apply_step(&p, i, LANES, end);
    if (i < p.n)
        apply_step(&p, i, p.n - i, end);
}

static void norm_apply(const fgt_norm_plane *p) {
    switch (p->end) {
    case FGT_NORM_ONLY: apply_plane(*p, FGT_NORM_ONLY); break;
    case FGT_NORM_RELU: apply_plane(*p, FGT_NORM_RELU); break;
    case FGT_NORM_ADD_RELU: apply_plane(*p, FGT_NORM_ADD_RELU); break;
    }
}

/* to = v, or to += v. */
INLINE void put_grad(float *to, bool add, size_t n, vec v) {
    store_some(to, n, add ? load_some(to, n, 0.0f) + v : v);
}

INLINE void input_step(const fgt_norm_plane *p, const fgt_norm_grads *d, size_t i, size_t n, const fgt_norm_end end) {
    vec x = load_some(p->x + i, n, 0.0f) - p->mean, g = masked_grad(p, d->dy, i, n, x, end);
    if (d->dx)
        put_grad(d->dx + i, d->dx_add, n, d->factor * g + (d->slope * x + d->shift));
    if (end == FGT_NORM_ADD_RELU && d->d_other)
        put_grad(d->d_other + i, d->d_other_add, n, g);
}

INLINE void input_plane(const fgt_norm_plane p, const fgt_norm_grads d, const fgt_norm_end end) {
    size_t i = 0;
    for (; i + LANES <= p.n; i += LANES)
        input_step(&p, &d, i, LANES, end);
    if (i < p.n)
        input_step(&p, &d, i, p.n - i, end);
}

static void norm_grads(const fgt_norm_plane *p, const fgt_norm_grads *d) {
    switch (p->end) {
    case FGT_NORM_ONLY: input_plane(*p, *d, FGT_NORM_ONLY); break;
    case FGT_NORM_RELU: input_plane(*p, *d, FGT_NORM_RELU); break;
    case FGT_NORM_ADD_RELU: input_plane(*p, *d, FGT_NORM_ADD_RELU); break;
    }
}

#define NORM_KERNEL                                                                                                    \
    { norm_sums, norm_apply, norm_grad_sums, norm_grads }

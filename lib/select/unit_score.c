/*
 * unit_score.c - compute the scores of units, reading memory in order.
 *
 * A row of units is divided into runs of at most 2048 units; the sums of a run are kept in an array while its rows
 * of elements are read. So columns, whose elements are far apart, are read as fast as rows. One thread processes a
 * whole run, and long ranges are summed in eight lanes on every machine, so the result depends on neither the number
 * of threads nor the machine. Cost: one pass.
 */
#include "select/unit_score.h"

#include "base/float_bits.h"

#include <float.h>

#define RUN    2048u /* units whose sums are computed together */
#define LANES  8u
#define INLINE static inline __attribute__((always_inline))

typedef double two_f64 __attribute__((vector_size(16)));

/* One run: adjacent units of h x w elements; the last one may be narrower. */
typedef struct run {
    const float *x;
    uint64_t cols, h, w, last_w;
    uint32_t units;
} run;

INLINE double contribution(float x, frugi_score how) {
    double m = (double)x;
    return how == FRUGI_SCORE_L2 ? m * m : (double)frugi_bits_f32(frugi_magnitude(x));
}

/* The contributions of two elements. */
INLINE two_f64 contribution_of_two(const float *x, frugi_score how) {
    return (two_f64){contribution(x[0], how), contribution(x[1], how)};
}

/* The sum over n consecutive elements. */
INLINE double sum_range(const float *x, uint64_t n, frugi_score how) {
    double sum = 0;
    uint64_t i = 0;
    if (n >= 2 * LANES) {
        two_f64 a = {0}, b = {0}, c = {0}, d = {0}; /* separate variables: gcc would keep an array in memory */
        for (; i + LANES <= n; i += LANES) {
            a += contribution_of_two(x + i, how);
            b += contribution_of_two(x + i + 2, how);
            c += contribution_of_two(x + i + 4, how);
            d += contribution_of_two(x + i + 6, how);
        }
        a = (a + b) + (c + d);
        sum = a[0] + a[1];
    }
    for (; i < n; i++)
        sum += contribution(x[i], how);
    return sum;
}

INLINE void sum_run(const run *r, frugi_score how, float *score) {
    double sum[RUN] = {0};
    for (uint64_t row = 0; row < r->h; row++) {
        const float *x = r->x + row * r->cols;
        if (r->w == 1)
            for (uint32_t u = 0; u < r->units; u++)
                sum[u] += contribution(x[u], how);
        else
            for (uint32_t u = 0; u < r->units; u++)
                sum[u] += sum_range(x + u * r->w, u + 1 < r->units ? r->w : r->last_w, how);
    }
    for (uint32_t u = 0; u < r->units; u++)
        score[u] = sum[u] < (double)FLT_MAX ? (float)sum[u] : FLT_MAX;
}

static void max_run(const run *r, float *score) {
    uint32_t most[RUN] = {0};
    for (uint64_t row = 0; row < r->h; row++) {
        const float *line = r->x + row * r->cols;
        if (r->w == 1) { /* one loop, which compilers vectorize */
            for (uint32_t u = 0; u < r->units; u++) {
                uint32_t m = frugi_magnitude(line[u]);
                most[u] = m > most[u] ? m : most[u];
            }
            continue;
        }
        for (uint32_t u = 0; u < r->units; u++) {
            const float *x = line + u * r->w;
            uint64_t n = u + 1 < r->units ? r->w : r->last_w;
            uint32_t top = most[u];
            for (uint64_t i = 0; i < n; i++) {
                uint32_t m = frugi_magnitude(x[i]);
                top = m > top ? m : top;
            }
            most[u] = top;
        }
    }
    for (uint32_t u = 0; u < r->units; u++)
        score[u] = frugi_bits_f32(most[u]);
}

static void score_run(const run *r, frugi_score how, float *score) {
    switch (how) {
    case FRUGI_SCORE_L1: sum_run(r, FRUGI_SCORE_L1, score); break;
    case FRUGI_SCORE_MAX: max_run(r, score); break;
    default: sum_run(r, FRUGI_SCORE_L2, score);
    }
}

void frugi_score_units(const frugi_grid *grid, const float *x, frugi_score how, float *score, int threads) {
    uint64_t runs = (grid->across - 1) / RUN + 1, all = grid->down * runs;
    threads = threads > 1 ? threads : 1;
    threads = (uint64_t)threads < all ? threads : (int)all;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        uint64_t part = all / (uint64_t)threads, more = all % (uint64_t)threads, i = (uint64_t)t;
        uint64_t begin = i * part + (i < more ? i : more), end = begin + part + (i < more);
        for (uint64_t job = begin; job < end; job++) {
            uint64_t first = job / runs * grid->across + job % runs * RUN, left = grid->across - job % runs * RUN;
            uint32_t units = (uint32_t)(left < RUN ? left : RUN);
            frugi_tile tile = frugi_grid_tile(grid, first), last = frugi_grid_tile(grid, first + units - 1);
            run r = {x + tile.at, grid->cols, tile.h, grid->w, last.w, units};
            score_run(&r, how, score + first);
        }
    }
}

/*
 * unit_score.c - weigh units band by band, reading memory in order.
 *
 * A band is one row of units, cut into runs of at most 2048 units; the sums of a run stand side by side while its rows
 * of elements go by. So columns, whose elements lie far apart, are read as fast as rows. A run is one thread's work
 * from its first element to its last, and a long stretch is summed in eight lanes on every machine, so the result
 * depends on neither. Cost: one pass.
 */
#include "select/unit_score.h"

#include "base/float_bits.h"

#include <float.h>

#define RUN    2048u /* units whose sums stand side by side */
#define LANES  8u
#define INLINE static inline __attribute__((always_inline))

typedef double two_f64 __attribute__((vector_size(16)));

/* One run: units of h x w elements side by side, the last one maybe narrower. */
typedef struct run {
    const float *x;
    uint64_t cols, h, w, last_w;
    uint32_t units;
} run;

INLINE double weigh(float x, frugi_score how) {
    double m = (double)x;
    return how == FRUGI_SCORE_L2 ? m * m : (double)frugi_bits_f32(frugi_magnitude(x));
}

/* The weights of two elements. */
INLINE two_f64 weigh_two(const float *x, frugi_score how) {
    return (two_f64){weigh(x[0], how), weigh(x[1], how)};
}

/* The sum over n elements in a row. */
INLINE double sum_stretch(const float *x, uint64_t n, frugi_score how) {
    double sum = 0;
    uint64_t i = 0;
    if (n >= 2 * LANES) {
        two_f64 a = {0}, b = {0}, c = {0}, d = {0}; /* by name, or gcc keeps them in memory */
        for (; i + LANES <= n; i += LANES) {
            a += weigh_two(x + i, how);
            b += weigh_two(x + i + 2, how);
            c += weigh_two(x + i + 4, how);
            d += weigh_two(x + i + 6, how);
        }
        a = (a + b) + (c + d);
        sum = a[0] + a[1];
    }
    for (; i < n; i++)
        sum += weigh(x[i], how);
    return sum;
}

INLINE void sum_run(const run *r, frugi_score how, float *score) {
    double sum[RUN] = {0};
    for (uint64_t row = 0; row < r->h; row++) {
        const float *x = r->x + row * r->cols;
        if (r->w == 1)
            for (uint32_t u = 0; u < r->units; u++)
                sum[u] += weigh(x[u], how);
        else
            for (uint32_t u = 0; u < r->units; u++)
                sum[u] += sum_stretch(x + u * r->w, u + 1 < r->units ? r->w : r->last_w, how);
    }
    for (uint32_t u = 0; u < r->units; u++)
        score[u] = sum[u] < (double)FLT_MAX ? (float)sum[u] : FLT_MAX;
}

static void max_run(const run *r, float *score) {
    uint32_t most[RUN] = {0};
    for (uint64_t row = 0; row < r->h; row++) {
        const float *line = r->x + row * r->cols;
        if (r->w == 1) { /* one loop, which compilers turn into vectors */
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

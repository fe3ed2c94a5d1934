/* bench_noise.h - generated gradients for bench. */
#ifndef FRUGI_BENCH_NOISE_H
#define FRUGI_BENCH_NOISE_H

#include <stdint.h>

typedef enum frugi_dist {
    FRUGI_DIST_GAUSSIAN,
    FRUGI_DIST_LAPLACE,
    FRUGI_DIST_HEAVY,
    FRUGI_DIST_LAYERS,
    FRUGI_DIST_SPARSE,
    FRUGI_DIST_TIES
} frugi_dist;

/** The names of the distributions, in the order of the enumeration, ended by NULL. */
extern const char *const frugi_dist_names[];

/** Fill dst with n numbers. The same seed gives the same numbers for any number of threads. */
void frugi_noise(frugi_dist dist, uint64_t seed, uint64_t n, float *dst);

/** Seconds on a clock that never goes back. */
double frugi_now(void);

#endif

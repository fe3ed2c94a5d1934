/* bench_noise.h - generated gradients for bench. */
#ifndef FGP_BENCH_NOISE_H
#define FGP_BENCH_NOISE_H

#include <stdint.h>

typedef enum fgp_dist {
    FGP_DIST_GAUSSIAN,
    FGP_DIST_LAPLACE,
    FGP_DIST_HEAVY,
    FGP_DIST_LAYERS,
    FGP_DIST_SPARSE,
    FGP_DIST_TIES
} fgp_dist;

/** The names of the distributions, in the order of the enumeration, ended by NULL. */
extern const char *const fgp_dist_names[];

/** Fill dst with n numbers. The same seed gives the same numbers for any number of threads. */
void fgp_generate_gradient(fgp_dist dist, uint64_t seed, uint64_t n, float *dst);

#endif

/* bench_reduce.h - types and functions that the files of `frugrad bench reduce` share. */
#ifndef FGP_BENCH_REDUCE_H
#define FGP_BENCH_REDUCE_H

#include "frugrad.h"

#include <stddef.h>
#include <stdint.h>

#define FGP_REDUCE_ROUNDS_MAX 1000u
#define FGP_MAX_ALGORITHMS    32u /* algorithms */

/** Options. */
typedef struct fgp_reduce_run {
    uint64_t n;
    double density;
    size_t rounds;
    int threads; /* of each worker */
    int workers;
    int json;
    const char *filter; /* of --case, or NULL */
    char base[2304];    /* of --config: of all algorithms, or of the one that it names */
} fgp_reduce_run;

/** Results of one algorithm; the same on all workers. */
typedef struct fgp_reduce_row {
    char name[32];
    char config[2368];
    double seconds[FGP_REDUCE_ROUNDS_MAX]; /* of an exchange: the slowest worker's */
    double sent;                           /* bytes by the worker that sends most, per exchange */
    double compress, wait, wire, decode;   /* seconds per exchange, mean of all workers */
    char skipped[200];                     /* why it cannot run here; empty if it can */
    char wrong[200];                       /* failed check; empty if all passed */
    int compared;                          /* the first exchange was compared with frames added by one worker */
} fgp_reduce_row;

/** Measure every algorithm and print the figures. Returns an exit status. */
int fgp_bench_reduce(const fgp_reduce_run *run);

/** Print the results; row 0 is the dense baseline. Returns an exit code. */
int fgp_reduce_print(const fgp_reduce_run *run, const char *transport, const fgp_reduce_row *row, size_t rows);

#endif

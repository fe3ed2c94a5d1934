/* bench_recover.h - `frugrad bench recover`: what measuring and printing share. */
#ifndef FGP_BENCH_RECOVER_H
#define FGP_BENCH_RECOVER_H

#include "program/args/args.h"

#include <stddef.h>
#include <stdint.h>

#define FGP_RECOVER_ROUNDS_MAX 1000u

/** What was asked for. */
typedef struct fgp_recover_bench {
    size_t rounds;
    int threads;
    int quick;
    int json;
    const char *filter; /* of --case, or NULL */
} fgp_recover_bench;

/** One case's figures. */
typedef struct fgp_recover_row {
    const char *name;
    const char *against; /* the case that its speed is held against */
    uint32_t d, s, k;
    uint32_t atoms, reach; /* columns taken in a pass, and in all */
    uint32_t chunks;
    double seconds[FGP_RECOVER_ROUNDS_MAX]; /* of all chunks */
    double base[FGP_RECOVER_ROUNDS_MAX];    /* the same of the case it is held against */
    double overlap;                         /* share of the true places that were found */
    double exact;                           /* share of the chunks in which all were */
    double matrix_bytes, work_bytes;
    char wrong[200]; /* what does not verify; empty when all does */
} fgp_recover_row;

/** The command, after its operand. Returns an exit status. */
int fgp_bench_recover(const fgp_args *args);

void fgp_recover_print_head(const fgp_recover_bench *run);

/** Returns an exit status. */
int fgp_recover_print(const fgp_recover_bench *run, const fgp_recover_row *row);

#endif

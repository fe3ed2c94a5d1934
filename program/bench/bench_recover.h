/* bench_recover.h - types and functions that the files of `frugrad bench recover` share. */
#ifndef FGP_BENCH_RECOVER_H
#define FGP_BENCH_RECOVER_H

#include "program/args/args.h"

#include <stddef.h>
#include <stdint.h>

#define FGP_RECOVER_ROUNDS_MAX 1000u

/** Options. */
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
    const char *against; /* the baseline of its speed */
    uint32_t d, s, k;
    uint32_t atoms, reach; /* columns selected per pass, and in total */
    uint32_t chunks;
    double seconds[FGP_RECOVER_ROUNDS_MAX]; /* of all chunks */
    double base[FGP_RECOVER_ROUNDS_MAX];    /* the same of the baseline */
    double overlap;                         /* share of the true indices that were found */
    double exact;                           /* share of the chunks in which all were */
    double matrix_bytes, work_bytes;
    char wrong[200]; /* failed check; empty if all passed */
} fgp_recover_row;

/** The command, after its operand. Returns an exit status. */
int fgp_bench_recover(const fgp_args *args);

void fgp_recover_print_head(const fgp_recover_bench *run);

/** Returns an exit status. */
int fgp_recover_print(const fgp_recover_bench *run, const fgp_recover_row *row);

#endif

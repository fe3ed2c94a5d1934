/* bench_recover.h - `frugrad bench recover`: what measuring and printing share. */
#ifndef FRUGI_BENCH_RECOVER_H
#define FRUGI_BENCH_RECOVER_H

#include "program/args/args.h"

#include <stddef.h>
#include <stdint.h>

#define FRUGI_RECOVER_ROUNDS_MAX 1000u

/** What was asked for. */
typedef struct frugi_recover_bench {
    size_t rounds;
    int threads;
    int quick;
    int json;
    const char *filter; /* of --case, or NULL */
} frugi_recover_bench;

/** One case's figures. */
typedef struct frugi_recover_row {
    const char *name;
    const char *against; /* the case that its speed is held against */
    uint32_t d, s, k;
    uint32_t atoms, reach; /* columns taken in a pass, and in all */
    uint32_t chunks;
    double seconds[FRUGI_RECOVER_ROUNDS_MAX]; /* of all chunks */
    double base[FRUGI_RECOVER_ROUNDS_MAX];    /* the same of the case it is held against */
    double overlap;                           /* share of the true places that were found */
    double exact;                             /* share of the chunks in which all were */
    double matrix_bytes, work_bytes;
    char wrong[200]; /* what does not verify; empty when all does */
} frugi_recover_row;

/** The command, after its operand. Returns an exit status. */
int frugi_bench_recover(const frugi_args *args);

void frugi_recover_print_head(const frugi_recover_bench *run);

/** Returns an exit status. */
int frugi_recover_print(const frugi_recover_bench *run, const frugi_recover_row *row);

#endif

/* bench_spmv.h - `frugrad bench spmv`: packed weights against dense ones in decoding. */
#ifndef FGP_BENCH_SPMV_H
#define FGP_BENCH_SPMV_H

#include "program/args/args.h"

/** The command, after its operand. Returns an exit status. */
int fgp_bench_spmv(const fgp_args *args);

#endif

/* blas.h - OpenBLAS as the trainer uses it: on one thread for each call, from threads of the trainer's own. */
#ifndef FGT_BLAS_H
#define FGT_BLAS_H

#include <stdint.h>

/** Bytes of memory that the process may have (ulimit -v, ulimit -d); UINT64_MAX: no limit. */
uint64_t fgt_blas_limit(void);

/**
 * Call this before anything is multiplied. Where memory of the process is limited (ulimit -v, ulimit -d) it takes the
 * buffers that so many threads need, and returns FGIO_EXIT_FAIL after a line on stderr where there is no room.
 */
int fgt_blas_begin(uint64_t threads);

#endif

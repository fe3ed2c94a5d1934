/* blas.h - OpenBLAS as the trainer uses it: every call runs on one thread; the trainer has its own threads. */
#ifndef FGT_BLAS_H
#define FGT_BLAS_H

#include <stdint.h>

/** Bytes of memory that the process may have (ulimit -v, ulimit -d); UINT64_MAX: no limit. */
uint64_t fgt_memory_limit(void);

/** Call this before the first matrix product. Where the memory of the process is limited (ulimit -v, ulimit -d) it
 * reserves the buffers for this many threads, and returns FGIO_EXIT_FAIL after an error message where they do not fit.
 * */
int fgt_blas_init(uint64_t threads);

#endif

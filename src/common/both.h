/* both.h - functions that a CPU and a GPU share: the same source, so the same bits. */
#ifndef FRUGI_BOTH_H
#define FRUGI_BOTH_H

#ifdef __CUDACC__
#define FRUGI_BOTH static __host__ __device__ inline
#else
#define FRUGI_BOTH static inline
#endif

#endif

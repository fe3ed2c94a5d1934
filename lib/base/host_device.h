/* host_device.h - functions that a CPU and a GPU share: the same source, so the same bits. */
#ifndef FRUGI_HOST_DEVICE_H
#define FRUGI_HOST_DEVICE_H

#ifdef __CUDACC__
#define FRUGI_BOTH static __host__ __device__ inline
#else
#define FRUGI_BOTH static inline
#endif

#endif

/* host_device.h - FRUGI_HOST_DEVICE marks functions that CPU and GPU code share, so that both compute the same bits. */
#ifndef FRUGI_HOST_DEVICE_H
#define FRUGI_HOST_DEVICE_H

#ifdef __CUDACC__
#define FRUGI_HOST_DEVICE static __host__ __device__ inline
#else
#define FRUGI_HOST_DEVICE static inline
#endif

#endif

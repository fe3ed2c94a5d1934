/* residual_kernel.h - the loops of the residual formats, and their variants. All variants give the same bits. */
#ifndef FRUGI_RESIDUAL_KERNEL_H
#define FRUGI_RESIDUAL_KERNEL_H

#include "base/cpu.h"

#include <stdint.h>

/** n elements, a multiple of 64, at 16 byte alignment or better. */
typedef struct frugi_residual_kernel {
    /** The bits of the largest magnitude of finite floats. */
    uint32_t (*largest)(const float *src, uint32_t n);
    void (*load_bf16)(const unsigned char *data, uint32_t n, float *dst);
    /** Scales below FRUGI_STORE_CLAMP_SCALE; the reference takes all. */
    void (*load_int8)(const unsigned char *data, uint32_t n, float scale, float *dst);
    void (*load_int4)(const unsigned char *data, uint32_t n, float scale, float *dst);
    /** Round stochastically by one random number; inverse is 32768 / scale. */
    void (*save_bf16)(unsigned char *data, uint32_t n, const float *src, uint32_t random);
    void (*save_int8)(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random);
    void (*save_int4)(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random);
} frugi_residual_kernel;

/** The kernel of a variant. */
const frugi_residual_kernel *frugi_residual_kernel_for(frugi_isa isa);

extern const frugi_residual_kernel frugi_residual_kernel_ref, frugi_residual_kernel_neon, frugi_residual_kernel_avx2,
    frugi_residual_kernel_avx512;

#endif

/* accumulate_kernel.h - the loops of error feedback in place, once per instruction set. All give the same bits. */
#ifndef FRUGI_ACCUMULATE_KERNEL_H
#define FRUGI_ACCUMULATE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Each function updates n elements, a multiple of 64, if all results are finite, and else changes nothing. Returns
 * whether they are. The arrays do not overlap.
 */
typedef struct frugi_accumulate_kernel {
    /** acc = beta acc + grad */
    bool (*add)(float *acc, const float *grad, float beta, uint32_t n);
    /** momentum = mu momentum + grad; acc = acc + momentum */
    bool (*add_dgc)(float *acc, float *momentum, const float *grad, float mu, uint32_t n);
    /** change = theta (grad - smoothed); smoothed = smoothed + change; acc = acc + change */
    bool (*add_ef21)(float *acc, float *smoothed, const float *grad, float theta, uint32_t n);
    /** Whether n elements, any number, are finite. */
    bool (*all_finite)(const float *x, uint32_t n);
} frugi_accumulate_kernel;

extern const frugi_accumulate_kernel frugi_accumulate_ref, frugi_accumulate_neon, frugi_accumulate_avx2;

/** The best variant for this CPU, or the one named by FRUG_ISA. */
const frugi_accumulate_kernel *frugi_accumulate_kernel_chosen(void);

#endif

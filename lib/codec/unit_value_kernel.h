/* unit_value_kernel.h - the loops of unit_value.c over the values of one value group, once per instruction set. */
#ifndef FRUGI_UNIT_VALUE_KERNEL_H
#define FRUGI_UNIT_VALUE_KERNEL_H

#include "codec/bf16_encode.h"
#include "codec/unit_value_code.h"

/** Two sums over the values that satisfy a condition and over the others. */
typedef struct frugi_split_sum {
    double yes, no;
    uint64_t count; /* values that satisfy the condition */
} frugi_split_sum;

/*
 * Sums are computed in doubles: value i of a value group is added to sum i mod 8, and the eight sums are added in
 * order.
 */
struct frugi_value_kernel {
    double (*sum_magnitudes)(const float *v, uint64_t n);
    double (*sum_squares)(const float *v, uint64_t n);
    frugi_split_sum (*split_by_sign)(const float *v, uint64_t n);              /* values below 0 */
    frugi_split_sum (*split_by_size)(const float *v, uint64_t n, float least); /* magnitudes below `least` */

    /** Encode the n values of a value group into `out`; v receives the rounding error if `error`. */
    void (*quantize)(const frugi_value_group_scale *scale, float *v, uint64_t n, int error, unsigned char *out);

    frugi_bf16_encoder *encode_bf16;
};

extern const frugi_value_kernel frugi_value_kernel_ref;
extern const frugi_value_kernel frugi_value_kernel_neon;
extern const frugi_value_kernel frugi_value_kernel_avx2;
extern const frugi_value_kernel frugi_value_kernel_avx512;

#endif

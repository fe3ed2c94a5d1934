/*
 * recover_lanes.h - vectors of four floats. Sums are in four lanes that are added in one fixed order, so that a machine
 * with longer vectors computes the same bits; compilers may not reorder sums on their own.
 */
#ifndef FRUGI_RECOVER_LANES_H
#define FRUGI_RECOVER_LANES_H

#include <stdint.h>
#include <string.h>

#define FRUGI_INLINED static inline __attribute__((always_inline))

typedef float frugi_float4 __attribute__((vector_size(16)));

FRUGI_INLINED frugi_float4 frugi_load4(const float *x) {
    frugi_float4 v;
    memcpy(&v, x, sizeof v);
    return v;
}

FRUGI_INLINED void frugi_store4(float *x, frugi_float4 v) {
    memcpy(x, &v, sizeof v);
}

FRUGI_INLINED frugi_float4 frugi_splat4(float x) {
    return (frugi_float4){x, x, x, x};
}

FRUGI_INLINED float frugi_sum4(frugi_float4 v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}

/** Sum of a[i] b[i], n a multiple of four. */
static inline float frugi_dot(const float *a, const float *b, uint32_t n) {
    frugi_float4 sum = {0};
    for (uint32_t i = 0; i < n; i += 4)
        sum += frugi_load4(a + i) * frugi_load4(b + i);
    return frugi_sum4(sum);
}

#endif

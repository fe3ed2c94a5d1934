/*
 * recover_lanes.h - vectors of four floats. Sums are kept in four lanes that are added in one fixed order, so that a
 * machine with longer vectors gets the same bits; compilers may not reorder sums on their own.
 */
#ifndef FRUGI_RECOVER_LANES_H
#define FRUGI_RECOVER_LANES_H

#include <stdint.h>
#include <string.h>

#define FRUGI_INLINED static inline __attribute__((always_inline))

typedef float frugi_four __attribute__((vector_size(16)));

FRUGI_INLINED frugi_four frugi_load(const float *x) {
    frugi_four v;
    memcpy(&v, x, sizeof v);
    return v;
}

FRUGI_INLINED void frugi_store(float *x, frugi_four v) {
    memcpy(x, &v, sizeof v);
}

FRUGI_INLINED frugi_four frugi_spread(float x) {
    return (frugi_four){x, x, x, x};
}

FRUGI_INLINED float frugi_sum(frugi_four v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}

/** Sum of a[i] b[i], n a multiple of four. */
static inline float frugi_dot(const float *a, const float *b, uint32_t n) {
    frugi_four sum = {0};
    for (uint32_t i = 0; i < n; i += 4)
        sum += frugi_load(a + i) * frugi_load(b + i);
    return frugi_sum(sum);
}

#endif

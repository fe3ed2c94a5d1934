/* recover_helpers.h - helpers of the tests of sparse recovery. */
#ifndef FRUG_TEST_RECOVER_HELPERS_H
#define FRUG_TEST_RECOVER_HELPERS_H

#include "support/assertions.h"

#include "recover/recover.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define BOTH(kind)                                                                                                     \
    for (frugi_matrix_kind kind = FRUGI_MATRIX_GAUSSIAN; kind <= FRUGI_MATRIX_HADAMARD;                                \
         kind = (frugi_matrix_kind)(kind + 1))

static inline frugi_matrix *matrix(frugi_matrix_kind kind, uint32_t k, uint32_t d, uint64_t seed) {
    frugi_matrix *a = NULL;
    OK(frugi_matrix_create(&(frugi_matrix_options){.kind = kind, .k = k, .d = d, .seed = seed, .threads = 1}, &a));
    return a;
}

/** n zeros, aligned for frugi_matrix_correlate(); freed by free(). */
static inline float *floats(size_t n) {
    float *x = aligned_alloc(64, (n + 32) / 16 * 64);
    assert_non_null(x);
    memset(x, 0, (n + 32) / 16 * 64);
    return x;
}

#endif

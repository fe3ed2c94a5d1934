/*
 * gemm.c - products of matrices: OpenBLAS on one thread each, over slices of the longer side of the result. Its own
 * threads are not used, because workers of the trainer are threads themselves.
 */
#include "nn/gemm.h"

#include <cblas.h>

#define SLICE 32u /* slices begin at multiples of it, so that kernels see few odd ends */

static void product(size_t m, size_t n, size_t k, float scale, frugi_matrix a, frugi_matrix b, float keep, float *c,
                    size_t stride) {
    cblas_sgemm(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans, b.turned ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, scale, a.data, (blasint)a.stride, b.data, (blasint)b.stride, keep, c,
                (blasint)stride);
}

/* Where part i of `parts` of a side begins. */
static size_t begin_of(size_t side, size_t parts, size_t i) {
    size_t units = (side + SLICE - 1) / SLICE, at = units * i / parts * SLICE;
    return at < side ? at : side;
}

void frugi_gemm(int threads, size_t m, size_t n, size_t k, float scale, frugi_matrix a, frugi_matrix b, float keep,
                float *c, size_t stride) {
    bool rows = m >= n;
    size_t side = rows ? m : n, parts = (size_t)threads;
    if (threads <= 1 || side < 2 * SLICE) {
        if (m && n)
            product(m, n, k, scale, a, b, keep, c, stride);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < parts; i++) {
        size_t first = begin_of(side, parts, i), count = begin_of(side, parts, i + 1) - first;
        if (!count)
            continue;
        frugi_matrix part = rows ? a : b;
        part.data += rows != part.turned ? first * part.stride : first;
        if (rows)
            product(count, n, k, scale, part, b, keep, c + first * stride, stride);
        else
            product(m, count, k, scale, a, part, keep, c + first, stride);
    }
}

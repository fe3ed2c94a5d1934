/*
 * gemm_onednn.c - a matrix product by oneDNN, which is faster than gemm_packed.c for every shape of our models on a
 * Xeon with AVX-512.
 */
#include "trainer/nn/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <omp.h>

bool fgt_gemm_onednn(size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
                     size_t stride) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* oneDNN starts as many as OpenMP says */
    dnnl_status_t status =
        dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k,
                   alpha, a.data, (dnnl_dim_t)a.stride, b.data, (dnnl_dim_t)b.stride, beta, c, (dnnl_dim_t)stride);
    omp_set_num_threads(threads);
    return status == dnnl_success;
}

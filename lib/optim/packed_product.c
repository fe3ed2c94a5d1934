/* packed_product.c - products of large matrices, by panels of columns. No BLAS, for the reason in matrix_product.c. */
#include "optim/packed_product.h"

void frugi_multiply_large(const frugi_large_product *p, float beta, float alpha, float *c, int threads) {
    const frugi_product_kernel *kernel = frugi_product_kernel_chosen();
    const size_t panels = (p->n + kernel->cols - 1) / kernel->cols;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (size_t panel = 0; panel < panels; panel++)
        kernel->multiply_columns(p, panel * kernel->cols, beta, alpha, c);
    for (size_t i = 0; p->symmetric && i < p->m; i++)
        for (size_t j = 0; j < i; j++)
            c[j * p->n + i] = c[i * p->n + j];
    (void)threads;
}

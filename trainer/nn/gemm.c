/*
 * gemm.c - matrix products by OpenBLAS, oneDNN or gemm_packed.c, single-threaded, over tiles of the result. The threads
 * of OpenBLAS are not used, because workers of the trainer are threads themselves.
 *
 * BLAS kernels round differently for other sizes, so the tiles depend on the shape alone, not on the number of threads:
 * one thread computes the same tiles as many. A tile of h x w packs h rows of a and w columns of b, which an unsplit
 * product packs once. Per multiplication the tiling adds (down - 1) / m + (across - 1) / n packed elements; a result is
 * split as far as that stays below 1 / MULTIPLIES_PER_REPACK. The number of tiles is a power of two, so that 2, 4 and 8
 * threads have equal shares.
 */
#include "trainer/nn/gemm.h"

#include <cblas.h>

enum {
    UNIT = 32,                   /* tiles begin at multiples of it, so that kernels have few partial vectors */
    MULTIPLIES_PER_REPACK = 160, /* minimum of multiplications for each element that is packed again */
    TILES_MAX = 64               /* more than the cores of one worker */
};

/** How a result is split: down * across tiles. */
typedef struct grid {
    size_t down, across;
} grid;

void fgt_gemm_single(size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
                     size_t stride) {
    const fgt_kernels *kernels = fgt_kernels_chosen();
#if defined(FGT_HAVE_ONEDNN)
    if (kernels->gemm && fgt_gemm_onednn(m, n, k, alpha, a, b, beta, c, stride))
        return;
#endif
    if (kernels->gemm)
        fgt_gemm_packed(kernels->conv, m, n, k, alpha, a, b, beta, c, stride);
    else
        cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
                    (blasint)m, (blasint)n, (blasint)k, alpha, a.data, (blasint)a.stride, b.data, (blasint)b.stride,
                    beta, c, (blasint)stride);
}

/* Whether the tiling packs few enough elements again. */
static bool repacks_little(grid cut, size_t m, size_t n) {
    return ((cut.down - 1) * n + (cut.across - 1) * m) * MULTIPLIES_PER_REPACK <= m * n;
}

/* Repeatedly halves the longer side of the tiles. The first split is always worth it: an idle second thread costs more.
 * */
static grid tile_grid(size_t m, size_t n) {
    grid cut = {1, 1};
    while (cut.down * cut.across < TILES_MAX) {
        bool tall = m * cut.across >= n * cut.down;
        grid next = {tall ? 2 * cut.down : cut.down, tall ? cut.across : 2 * cut.across};
        bool short_side = tall ? m < next.down * UNIT : n < next.across * UNIT, first = next.down * next.across == 2;
        if (short_side || (!first && !repacks_little(next, m, n)))
            break;
        cut = next;
    }
    return cut;
}

/* Begin of part i of `parts` of a side. */
static size_t tile_begin(size_t side, size_t parts, size_t i) {
    size_t units = (side + UNIT - 1) / UNIT, at = units * i / parts * UNIT;
    return at < side ? at : side;
}

/* Rows (or columns) of a matrix from `first` on. */
static fgt_matrix submatrix(fgt_matrix x, bool rows, size_t first) {
    x.data += rows != x.transposed ? first * x.stride : first;
    return x;
}

void fgt_gemm(int threads, size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
              size_t stride) {
    if (m == 0 || n == 0)
        return;
    const grid cut = tile_grid(m, n);
    const size_t tiles = cut.down * cut.across;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && tiles > 1)
    for (size_t i = 0; i < tiles; i++) {
        size_t row = tile_begin(m, cut.down, i / cut.across), rows = tile_begin(m, cut.down, i / cut.across + 1) - row;
        size_t col = tile_begin(n, cut.across, i % cut.across),
               cols = tile_begin(n, cut.across, i % cut.across + 1) - col;
        fgt_gemm_single(rows, cols, k, alpha, submatrix(a, true, row), submatrix(b, false, col), beta,
                        c + row * stride + col, stride);
    }
}

void fgt_gemv(int threads, size_t n, size_t k, const float *x, fgt_matrix b, float beta, float *y) {
    const size_t parts = n / UNIT < TILES_MAX ? n / UNIT + 1 : TILES_MAX;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < parts; i++) {
        size_t first = tile_begin(n, parts, i), count = tile_begin(n, parts, i + 1) - first;
        const float *data = submatrix(b, false, first).data;
        if (count > 0)
            cblas_sgemv(CblasRowMajor, b.transposed ? CblasNoTrans : CblasTrans, (blasint)(b.transposed ? count : k),
                        (blasint)(b.transposed ? k : count), 1.0f, data, (blasint)b.stride, x, 1, beta, y + first, 1);
    }
}

void fgt_gemv_rows(int threads, size_t n, size_t k, const float *x, fgt_matrix b, float beta, float *y, float *work) {
    const size_t parts = k < FGT_GEMV_PARTS ? k : FGT_GEMV_PARTS; /* none is empty: BLAS would leave its sum unset */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (size_t i = 0; i < parts; i++) {
            size_t first = k * i / parts, count = k * (i + 1) / parts - first;
            cblas_sgemv(CblasRowMajor, CblasTrans, (blasint)count, (blasint)n, 1.0f, b.data + first * b.stride,
                        (blasint)b.stride, x + first, 1, 0.0f, work + i * n, 1);
        }
#pragma omp for schedule(static)
        for (size_t c = 0; c < n; c++) {
            float sum = beta * y[c];
            for (size_t i = 0; i < parts; i++)
                sum += work[i * n + c];
            y[c] = sum;
        }
    }
}

/*
 * gemm.c - products of matrices: OpenBLAS on one thread each, over tiles of the result. Its own threads are not used,
 * because workers of the trainer are threads themselves.
 *
 * BLAS kernels round differently for other sizes, so the tiles depend on the shape alone, never on the number of
 * threads: one thread computes the same tiles as many. A tile of h x w packs h rows of a and w columns of b, which is
 * work that an uncut product does once. Per multiplication the cuts add (down - 1) / m + (across - 1) / n packed
 * elements; a result is cut as often as keeps that below 1 / PACKED. The number of tiles is a power of two, so that 2,
 * 4 and 8 threads have equal shares.
 */
#include "trainer/nn/gemm.h"

#include <cblas.h>

enum {
    UNIT = 32,      /* tiles begin at multiples of it, so that kernels see few odd ends */
    PACKED = 160,   /* multiplications for each element that cuts pack again, at least */
    MOST_TILES = 64 /* beyond the cores that one worker is given */
};

/** How often a result is cut: down * across tiles. */
typedef struct grid {
    size_t down, across;
} grid;

void fgt_gemm_whole(size_t m, size_t n, size_t k, float scale, fgt_matrix a, fgt_matrix b, float keep, float *c,
                    size_t stride) {
    cblas_sgemm(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans, b.turned ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, scale, a.data, (blasint)a.stride, b.data, (blasint)b.stride, keep, c,
                (blasint)stride);
}

/* Whether the cuts pack few enough elements again. */
static bool is_cheap(grid cut, size_t m, size_t n) {
    return ((cut.down - 1) * n + (cut.across - 1) * m) * PACKED <= m * n;
}

/* Cuts the longer side of the tiles in two, again and again. The first cut is always worth it: an idle second thread
 * costs more. */
static grid grid_of(size_t m, size_t n) {
    grid cut = {1, 1};
    while (cut.down * cut.across < MOST_TILES) {
        bool tall = m * cut.across >= n * cut.down;
        grid next = {tall ? 2 * cut.down : cut.down, tall ? cut.across : 2 * cut.across};
        bool short_side = tall ? m < next.down * UNIT : n < next.across * UNIT, first = next.down * next.across == 2;
        if (short_side || (!first && !is_cheap(next, m, n)))
            break;
        cut = next;
    }
    return cut;
}

/* Where part i of `parts` of a side begins. */
static size_t begin_of(size_t side, size_t parts, size_t i) {
    size_t units = (side + UNIT - 1) / UNIT, at = units * i / parts * UNIT;
    return at < side ? at : side;
}

/* Rows (or columns) of a matrix from `first` on. */
static fgt_matrix from(fgt_matrix x, bool rows, size_t first) {
    x.data += rows != x.turned ? first * x.stride : first;
    return x;
}

void fgt_gemm(int threads, size_t m, size_t n, size_t k, float scale, fgt_matrix a, fgt_matrix b, float keep, float *c,
              size_t stride) {
    if (m == 0 || n == 0)
        return;
    const grid cut = grid_of(m, n);
    const size_t tiles = cut.down * cut.across;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && tiles > 1)
    for (size_t i = 0; i < tiles; i++) {
        size_t row = begin_of(m, cut.down, i / cut.across), rows = begin_of(m, cut.down, i / cut.across + 1) - row;
        size_t col = begin_of(n, cut.across, i % cut.across), cols = begin_of(n, cut.across, i % cut.across + 1) - col;
        fgt_gemm_whole(rows, cols, k, scale, from(a, true, row), from(b, false, col), keep, c + row * stride + col,
                       stride);
    }
}

/*
 * packed_product.c - products of large matrices. 16 columns of B are copied, 256 terms at a time, into a panel that
 * stays in the L1 cache while all rows of A are multiplied with it, in tiles of 4 x 16 sums in registers. No BLAS, for
 * the reason in matrix_product.c.
 */
#include "optim/packed_product.h"

#include "recover/recover_lanes.h"

#define TILE_ROWS 4u
#define TILE_COLS 16u
#define DEPTH     256u

typedef struct tile {
    size_t i, j, rows, cols, first, depth; /* rows and columns of the result; terms first .. first + depth - 1 */
} tile;

static void pack_columns(const frugi_large_product *p, const tile *t, float *panel) {
    for (size_t d = 0; d < t->depth; d++) {
        const float *from = p->b.data + (t->first + d) * p->b.row + t->j * p->b.col;
        for (size_t x = 0; x < TILE_COLS; x++)
            panel[d * TILE_COLS + x] = x < t->cols ? from[x * p->b.col] : 0.0f;
    }
}

/* Rows past the last repeat it: their sums are not stored. */
static void sum_tile(const frugi_large_product *p, const tile *t, const float *panel,
                     float sums[TILE_ROWS * TILE_COLS]) {
    const size_t step = p->a.col;
    const float *a[TILE_ROWS];
    frugi_float4 sum[TILE_ROWS][4] = {{{0}}};
    for (size_t y = 0; y < TILE_ROWS; y++)
        a[y] = p->a.data + (t->i + (y < t->rows ? y : t->rows - 1)) * p->a.row + t->first * step;
    for (size_t d = 0; d < t->depth; d++, panel += TILE_COLS) {
        const frugi_float4 b0 = frugi_load4(panel), b1 = frugi_load4(panel + 4), b2 = frugi_load4(panel + 8),
                           b3 = frugi_load4(panel + 12);
#pragma GCC unroll 4
        for (size_t y = 0; y < TILE_ROWS; y++) {
            const frugi_float4 x = frugi_splat4(a[y][d * step]);
            sum[y][0] += x * b0;
            sum[y][1] += x * b1;
            sum[y][2] += x * b2;
            sum[y][3] += x * b3;
        }
    }
#pragma GCC unroll 4
    for (size_t y = 0; y < TILE_ROWS; y++)
#pragma GCC unroll 4
        for (size_t x = 0; x < 4; x++)
            frugi_store4(sums + y * TILE_COLS + 4 * x, sum[y][x]);
}

static void add_tile(const tile *t, const float *sums, float beta, float alpha, float *c, size_t n) {
    for (size_t y = 0; y < t->rows; y++) {
        float *row = c + (t->i + y) * n + t->j;
        for (size_t x = 0; x < t->cols; x++) {
            float product = alpha * sums[y * TILE_COLS + x];
            row[x] = beta != 0 ? beta * row[x] + product : product;
        }
    }
}

/* 16 columns of the result, or with `symmetric` the part of them on and below the diagonal. */
static void multiply_columns(const frugi_large_product *p, size_t j, float beta, float alpha, float *c) {
    float panel[DEPTH * TILE_COLS], sums[TILE_ROWS * TILE_COLS];
    tile t = {.j = j, .cols = p->n - j < TILE_COLS ? p->n - j : TILE_COLS};
    for (t.first = 0; t.first < p->k; t.first += DEPTH) {
        t.depth = p->k - t.first < DEPTH ? p->k - t.first : DEPTH;
        pack_columns(p, &t, panel);
        for (t.i = p->symmetric ? j : 0; t.i < p->m; t.i += TILE_ROWS) {
            t.rows = p->m - t.i < TILE_ROWS ? p->m - t.i : TILE_ROWS;
            sum_tile(p, &t, panel, sums);
            add_tile(&t, sums, t.first ? 1.0f : beta, alpha, c, p->n);
        }
    }
}

void frugi_multiply_large(const frugi_large_product *p, float beta, float alpha, float *c, int threads) {
    const size_t panels = (p->n + TILE_COLS - 1) / TILE_COLS;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (size_t panel = 0; panel < panels; panel++)
        multiply_columns(p, panel * TILE_COLS, beta, alpha, c);
    for (size_t i = 0; p->symmetric && i < p->m; i++)
        for (size_t j = 0; j < i; j++)
            c[j * p->n + i] = c[i * p->n + j];
    (void)threads;
}

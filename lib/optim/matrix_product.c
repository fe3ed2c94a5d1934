/*
 * matrix_product.c - the two matrix products that optimizers of whole tensors need. Tiles of 4 x 16 sums stay in
 * registers over the whole inner dimension, so a large matrix is read once for every four rows of the small one. No
 * BLAS: its bits would depend on the machine, and workers must stay identical.
 */
#include "optim/matrix_product.h"

#include "recover/recover_lanes.h"

#define TILE_ROWS 4u
#define TILE_COLS 16u
#define GROUP     8u /* rows of a large matrix that are processed together */

typedef struct output_scale {
    float beta, alpha;
} output_scale;

FRUGI_INLINED void store_four(float *c, frugi_float4 sum, output_scale scale) {
    frugi_float4 product = frugi_splat4(scale.alpha) * sum;
    if (scale.beta != 0)
        product = frugi_splat4(scale.beta) * frugi_load4(c) + product;
    frugi_store4(c, product);
}

static void full_tile(const frugi_product *p, size_t i, size_t j, output_scale scale, float *c) {
    frugi_float4 sum[TILE_ROWS][4] = {{{0}}};
    const float *a = p->a + i * p->a_row, *b = p->b + j;
    for (size_t t = 0; t < p->k; t++, a += p->a_step, b += p->b_step) {
        frugi_float4 b0 = frugi_load4(b), b1 = frugi_load4(b + 4), b2 = frugi_load4(b + 8), b3 = frugi_load4(b + 12);
        for (size_t y = 0; y < TILE_ROWS; y++) {
            frugi_float4 x = frugi_splat4(a[y * p->a_row]);
            sum[y][0] += x * b0;
            sum[y][1] += x * b1;
            sum[y][2] += x * b2;
            sum[y][3] += x * b3;
        }
    }
    for (size_t y = 0; y < TILE_ROWS; y++)
        for (size_t x = 0; x < 4; x++)
            store_four(c + (i + y) * p->n + j + 4 * x, sum[y][x], scale);
}

/* The same sums in the same order, one at a time. */
static void partial_tile(const frugi_product *p, size_t i, size_t rows_here, size_t j, size_t cols_here,
                         output_scale scale, float *c) {
    for (size_t y = i; y < i + rows_here; y++) {
        float sum[TILE_COLS] = {0};
        for (size_t t = 0; t < p->k; t++)
            for (size_t x = 0; x < cols_here; x++)
                sum[x] += p->a[y * p->a_row + t * p->a_step] * p->b[t * p->b_step + j + x];
        for (size_t x = 0; x < cols_here; x++) {
            float *at = c + y * p->n + j + x, product = scale.alpha * sum[x];
            *at = scale.beta != 0 ? scale.beta * *at + product : product;
        }
    }
}

void frugi_multiply(const frugi_product *p, float beta, float alpha, float *c, int threads) {
    const output_scale scale = {beta, alpha};
    const size_t across = (p->n + TILE_COLS - 1) / TILE_COLS, down = (p->m + TILE_ROWS - 1) / TILE_ROWS;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t tile = 0; tile < across * down; tile++) {
        size_t j = tile / down * TILE_COLS, i = tile % down * TILE_ROWS;
        size_t cols_here = p->n - j < TILE_COLS ? p->n - j : TILE_COLS,
               rows_here = p->m - i < TILE_ROWS ? p->m - i : TILE_ROWS;
        if (cols_here == TILE_COLS && rows_here == TILE_ROWS)
            full_tile(p, i, j, scale, c);
        else
            partial_tile(p, i, rows_here, j, cols_here, scale, c);
    }
    (void)threads;
}

/* Sum of the lanes, plus the products past the last whole vector. */
static float add_tail(frugi_float4 lanes, const float *x, const float *g, size_t from, size_t n) {
    float sum = frugi_sum4(lanes);
    for (size_t j = from; j < n; j++)
        sum += x[j] * g[j];
    return sum;
}

/* Products of four rows of x and two of g. */
static void dots_4x2(const float *x, const float *g, size_t cols, float *y, size_t stride) {
    frugi_float4 sum[4][2] = {{{0}}};
    const float *h = g + cols;
    size_t j = 0;
    for (; j + 4 <= cols; j += 4) {
        frugi_float4 a = frugi_load4(g + j), b = frugi_load4(h + j);
        for (size_t i = 0; i < 4; i++) {
            frugi_float4 own = frugi_load4(x + i * cols + j);
            sum[i][0] += own * a;
            sum[i][1] += own * b;
        }
    }
    for (size_t i = 0; i < 4; i++) {
        y[i * stride] = add_tail(sum[i][0], x + i * cols, g, j, cols);
        y[i * stride + 1] = add_tail(sum[i][1], x + i * cols, h, j, cols);
    }
}

static void dot_1x1(const float *x, const float *g, size_t cols, float *y) {
    frugi_float4 s = {0};
    size_t j = 0;
    for (; j + 4 <= cols; j += 4)
        s += frugi_load4(x + j) * frugi_load4(g + j);
    *y = add_tail(s, x, g, j, cols);
}

/* Four rows of x stay in L1 while a group of rows of g is read. */
static void group_dots(const float *x, size_t k, const float *g, size_t rows, size_t cols, float *y, size_t stride) {
    for (size_t i = 0; i < k; i += 4) {
        size_t row = 0;
        for (; i + 4 <= k && row + 2 <= rows; row += 2)
            dots_4x2(x + i * cols, g + row * cols, cols, y + i * stride + row, stride);
        for (; row < rows; row++)
            for (size_t e = i; e < i + 4 && e < k; e++)
                dot_1x1(x + e * cols, g + row * cols, cols, y + e * stride + row);
    }
}

void frugi_multiply_rows(const float *x, size_t k, const float *g, size_t rows, size_t cols, float *y, int threads) {
    const size_t groups = (rows + GROUP - 1) / GROUP;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t group = 0; group < groups; group++) {
        size_t row = group * GROUP, n = rows - row < GROUP ? rows - row : GROUP;
        group_dots(x, k, g + row * cols, n, cols, y + row, rows);
    }
    (void)threads;
}

/*
 * matrix_product.c - the two products that optimisers of whole tensors need. Tiles of 4 x 16 sums stay in registers
 * while the long dimension passes by, so a large matrix is read once for every four rows of the small one. No library
 * for linear algebra: its bits would depend on the machine, and workers have to stay the same.
 */
#include "optim/matrix_product.h"

#include "recover/recover_lanes.h"

#define TALL  4u
#define WIDE  16u
#define GROUP 8u /* rows of a large matrix that pass by together */

typedef struct store {
    float keep, factor;
} store;

FRUGI_INLINED void put_four(float *c, frugi_four sum, store how) {
    frugi_four scaled = frugi_spread(how.factor) * sum;
    if (how.keep != 0)
        scaled = frugi_spread(how.keep) * frugi_load(c) + scaled;
    frugi_store(c, scaled);
}

static void full_tile(const frugi_product *p, size_t i, size_t j, store how, float *c) {
    frugi_four sum[TALL][4] = {{{0}}};
    const float *a = p->a + i * p->a_row, *b = p->b + j;
    for (size_t t = 0; t < p->k; t++, a += p->a_step, b += p->b_step) {
        frugi_four b0 = frugi_load(b), b1 = frugi_load(b + 4), b2 = frugi_load(b + 8), b3 = frugi_load(b + 12);
        for (size_t y = 0; y < TALL; y++) {
            frugi_four x = frugi_spread(a[y * p->a_row]);
            sum[y][0] += x * b0;
            sum[y][1] += x * b1;
            sum[y][2] += x * b2;
            sum[y][3] += x * b3;
        }
    }
    for (size_t y = 0; y < TALL; y++)
        for (size_t x = 0; x < 4; x++)
            put_four(c + (i + y) * p->n + j + 4 * x, sum[y][x], how);
}

/* The same sums in the same order, one at a time. */
static void ragged_tile(const frugi_product *p, size_t i, size_t tall, size_t j, size_t wide, store how, float *c) {
    for (size_t y = i; y < i + tall; y++) {
        float sum[WIDE] = {0};
        for (size_t t = 0; t < p->k; t++)
            for (size_t x = 0; x < wide; x++)
                sum[x] += p->a[y * p->a_row + t * p->a_step] * p->b[t * p->b_step + j + x];
        for (size_t x = 0; x < wide; x++) {
            float *at = c + y * p->n + j + x, scaled = how.factor * sum[x];
            *at = how.keep != 0 ? how.keep * *at + scaled : scaled;
        }
    }
}

void frugi_multiply(const frugi_product *p, float keep, float factor, float *c, int threads) {
    const store how = {keep, factor};
    const size_t across = (p->n + WIDE - 1) / WIDE, down = (p->m + TALL - 1) / TALL;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t tile = 0; tile < across * down; tile++) {
        size_t j = tile / down * WIDE, i = tile % down * TALL;
        size_t wide = p->n - j < WIDE ? p->n - j : WIDE, tall = p->m - i < TALL ? p->m - i : TALL;
        if (wide == WIDE && tall == TALL)
            full_tile(p, i, j, how, c);
        else
            ragged_tile(p, i, tall, j, wide, how, c);
    }
    (void)threads;
}

/* What is past the last whole vector is added behind the lanes. */
static float finish(frugi_four lanes, const float *x, const float *g, size_t from, size_t n) {
    float sum = frugi_sum(lanes);
    for (size_t j = from; j < n; j++)
        sum += x[j] * g[j];
    return sum;
}

/* Products of four rows of x and two of g. */
static void eight_dots(const float *x, const float *g, size_t cols, float *y, size_t stride) {
    frugi_four sum[4][2] = {{{0}}};
    const float *h = g + cols;
    size_t j = 0;
    for (; j + 4 <= cols; j += 4) {
        frugi_four a = frugi_load(g + j), b = frugi_load(h + j);
        for (size_t i = 0; i < 4; i++) {
            frugi_four own = frugi_load(x + i * cols + j);
            sum[i][0] += own * a;
            sum[i][1] += own * b;
        }
    }
    for (size_t i = 0; i < 4; i++) {
        y[i * stride] = finish(sum[i][0], x + i * cols, g, j, cols);
        y[i * stride + 1] = finish(sum[i][1], x + i * cols, h, j, cols);
    }
}

static void one_dot(const float *x, const float *g, size_t cols, float *y) {
    frugi_four s = {0};
    size_t j = 0;
    for (; j + 4 <= cols; j += 4)
        s += frugi_load(x + j) * frugi_load(g + j);
    *y = finish(s, x, g, j, cols);
}

/* Four rows of x stay in the first cache while all of a group of g pass by. */
static void group_dots(const float *x, size_t k, const float *g, size_t rows, size_t cols, float *y, size_t stride) {
    for (size_t i = 0; i < k; i += 4) {
        size_t row = 0;
        for (; i + 4 <= k && row + 2 <= rows; row += 2)
            eight_dots(x + i * cols, g + row * cols, cols, y + i * stride + row, stride);
        for (; row < rows; row++)
            for (size_t e = i; e < i + 4 && e < k; e++)
                one_dot(x + e * cols, g + row * cols, cols, y + e * stride + row);
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

/*
 * packed_product_loops.h - the loops of packed_product.h; the body of their variants, which define LANES, the floats of
 * a vector, TILE_ROWS and TILE_VECTORS, the tile of sums that stays in registers, and multiply_add().
 *
 * TILE_VECTORS vectors of columns of B are copied, 256 terms at a time, into a panel that stays in the nearest caches
 * while all rows of A are multiplied with it. A product is added to its sum with one rounding, so an entry has the same
 * bits in any lane of any variant.
 */
#include "optim/packed_product.h"

#include "recover/recover_lanes.h"

#define TILE_COLS (LANES * TILE_VECTORS)
#define DEPTH     256u

typedef float lanes __attribute__((vector_size(4 * LANES)));

/** sum + a b, rounded once. */
FRUGI_INLINED lanes multiply_add(float a, lanes b, lanes sum);

typedef struct tile {
    size_t i, j, rows, cols, first, depth; /* rows and columns of the result; terms first .. first + depth - 1 */
} tile;

static void pack_columns(const frugi_large_product *p, const tile *t, float *panel) {
    for (size_t d = 0; d < t->depth; d++, panel += TILE_COLS) {
        const float *from = p->b.data + (t->first + d) * p->b.row + t->j * p->b.col;
        if (p->b.col == 1 && t->cols == TILE_COLS)
            memcpy(panel, from, TILE_COLS * sizeof *panel);
        else
            for (size_t x = 0; x < TILE_COLS; x++)
                panel[x] = x < t->cols ? from[x * p->b.col] : 0.0f;
    }
}

/* Rows past the last repeat it: their sums are not stored. `step` is p->a.col. */
FRUGI_INLINED void sum_rows(const frugi_large_product *p, const tile *t, size_t step, const float *panel, float *sums) {
    const float *a[TILE_ROWS];
    lanes sum[TILE_ROWS][TILE_VECTORS] = {{{0}}}, b[TILE_VECTORS];
    for (size_t y = 0; y < TILE_ROWS; y++)
        a[y] = p->a.data + (t->i + (y < t->rows ? y : t->rows - 1)) * p->a.row + t->first * step;
    for (size_t d = 0; d < t->depth; d++, panel += TILE_COLS) {
#pragma GCC unroll 4
        for (size_t x = 0; x < TILE_VECTORS; x++)
            memcpy(&b[x], panel + x * LANES, sizeof b[x]);
#pragma GCC unroll 16
        for (size_t y = 0; y < TILE_ROWS; y++)
#pragma GCC unroll 4
            for (size_t x = 0; x < TILE_VECTORS; x++)
                sum[y][x] = multiply_add(a[y][d * step], b[x], sum[y][x]);
    }
#pragma GCC unroll 16
    for (size_t y = 0; y < TILE_ROWS; y++)
#pragma GCC unroll 4
        for (size_t x = 0; x < TILE_VECTORS; x++)
            memcpy(sums + y * TILE_COLS + x * LANES, &sum[y][x], sizeof sum[y][x]);
}

static void sum_tile(const frugi_large_product *p, const tile *t, const float *panel, float *sums) {
    if (p->a.col == 1)
        sum_rows(p, t, 1, panel, sums);
    else
        sum_rows(p, t, p->a.col, panel, sums);
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

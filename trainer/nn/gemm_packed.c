/*
 * gemm_packed.c - a matrix product of our own, by one thread, for x86-64: in the trainer OpenBLAS reached a sixth of
 * the peak of a Xeon with AVX-512 (alone, on large matrices, two thirds; why is not known).
 *
 * The kernel is that of direct convolution (conv_tiles.h): rows of the result are its output channels, columns are its
 * pixels, and the depth is its input channels and taps. Both operands are copied into panels in the order in which the
 * kernel reads them: some hundred rows of a, which stay in the L2 cache, and one panel of columns of b at a time, of
 * 48 KiB at most. No sum depends on the sizes of the result.
 */
#include "trainer/nn/gemm.h"

#include "trainer/nn/vectors.h"
#include "trainer/nn/kernels.h"

#include <string.h>

enum {
    DEPTH = 256,       /* maximum of terms between two additions to the result */
    STEPS = 16,        /* taps: terms that the kernel adds in one inner loop; panels are padded to a multiple */
    ROWS = 512,        /* maximum of rows of a that are packed together */
    COLUMNS_MAX = 48,  /* of a tile */
    TILE_ROWS_MAX = 8, /* of a tile */
    LANES_MAX = 16
};

static _Thread_local float packed_a[ROWS * DEPTH], packed_b[COLUMNS_MAX * DEPTH];

static size_t min(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t ceil_div(size_t n, size_t by) {
    return (n + by - 1) / by;
}

/* Element (i, p) of an operand: row i of a or column i of b, term p of the sum. One of the steps is 1. */
typedef struct operand {
    const float *data;
    size_t step_i, step_p;
} operand;

/* One row of a panel: elements 0 .. count - 1 that are contiguous, and zeros up to width. */
static inline void copy_row(const float *from, size_t count, size_t width, float *to) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store(to + i, load(from + i));
    for (; i < count; i++)
        to[i] = from[i];
    for (; i < width; i++)
        to[i] = 0.0f;
}

/* Terms `term` .. depth - 1 of elements `first` .. count - 1, one by one, with zeros up to width. */
static void gather_terms(operand x, size_t first, size_t count, size_t term, size_t depth, size_t width, float *to) {
    for (size_t p = term; p < depth; p++)
        for (size_t i = first; i < width; i++)
            to[p * width + i] = i < count ? x.data[i * x.step_i + p * x.step_p] : 0.0f;
}

/* Panels of rows of a: [row / channels][depth][channels]. Where the rows are contiguous in memory, several panels are
 * written at a time, because each term may be in a page of its own. */
static void pack_a(const fgt_conv_kernel *k, operand x, size_t rows, size_t depth, size_t padded) {
    enum { TOGETHER = 8 };
    const size_t width = k->channels, together = x.step_i == 1 ? TOGETHER * width : width, whole = depth / k->lanes;
    for (size_t first = 0; first < rows; first += together) {
        size_t end = min(rows, first + together);
        for (size_t p = 0; x.step_i == 1 && p < depth; p++)
            for (size_t i = first; i < end; i += width)
                copy_row(x.data + i + p * x.step_p, min(width, end - i), width, packed_a + i * padded + p * width);
        if (x.step_i != 1) {
            operand from = {x.data + first * x.step_i, x.step_i, 1};
            float *to = packed_a + first * padded;
            for (size_t p = 0; p < whole; p++)
                k->pack(from.data + p * k->lanes, x.step_i, end - first, to + p * k->lanes * width);
            gather_terms(from, 0, end - first, whole * k->lanes, depth, width, to);
        }
        for (size_t i = first; i < end; i += width)
            memset(packed_a + i * padded + depth * width, 0, (padded - depth) * width * sizeof *packed_a);
    }
}

/* A panel of columns of b: [depth][width]. */
static void pack_b(const fgt_conv_kernel *k, operand x, size_t cols, size_t depth, size_t padded, size_t width) {
    const size_t lanes = k->lanes, whole = depth / lanes * lanes, blocks = cols / lanes * lanes;
    for (size_t p = 0; x.step_i == 1 && p < depth; p++)
        copy_row(x.data + p * x.step_p, cols, width, packed_b + p * width);
    if (x.step_i != 1) {
        for (size_t p = 0; p < whole; p += lanes)
            for (size_t i = 0; i < blocks; i += lanes) {
                float *to[LANES_MAX];
                for (size_t j = 0; j < lanes; j++)
                    to[j] = packed_b + (p + j) * width + i;
                k->transpose(x.data + i * x.step_i + p, x.step_i, to);
            }
        gather_terms(x, blocks, cols, 0, whole, width, packed_b);
        gather_terms(x, 0, cols, whole, depth, width, packed_b);
    }
    memset(packed_b + depth * width, 0, (padded - depth) * width * sizeof *packed_b);
}

/* Adds to c, or stores, rows `out` and columns `cols` of a tile `width` wide. One that has fewer columns is computed in
 * a buffer. */
static void run_tile(const fgt_conv_kernel *k, fgt_conv_pixels *s, size_t cols, size_t width, float *c, size_t stride) {
    bool whole = cols == width, add = s->add;
    float buffer[TILE_ROWS_MAX * COLUMNS_MAX];
    s->y_plane = whole ? stride : width;
    s->add = whole && add;
    for (size_t j = 0; j < s->vectors; j++)
        s->y[j] = (whole ? c : buffer) + j * k->lanes;
    k->pixels(s);
    s->add = add;
    for (size_t i = 0; !whole && i < s->out; i++)
        for (size_t j = 0; j < cols; j++)
            c[i * stride + j] = (add ? c[i * stride + j] : 0.0f) + buffer[i * width + j];
}

/* c (rows x n) = or += the product of packed_a and columns of b, over `depth` terms. */
static void multiply_block(const fgt_conv_kernel *k, size_t rows, size_t n, size_t depth, operand b, bool add, float *c,
                           size_t stride) {
    const size_t padded = ceil_div(depth, STEPS) * STEPS;
    size_t taps[STEPS], width = 0;
    fgt_conv_pixels s = {.in = (uint32_t)(padded / STEPS), .taps = STEPS, .tap = taps, .add = add};
    for (size_t col = 0; col < n; col += width) {
        s.vectors = fgt_conv_tile_vectors(k, ceil_div(n - col, k->lanes));
        width = (size_t)s.vectors * k->lanes;
        s.plane = STEPS * width;
        for (size_t t = 0; t < STEPS; t++)
            taps[t] = t * width * sizeof(float);
        for (size_t j = 0; j < s.vectors; j++)
            s.x[j] = packed_b + j * k->lanes;
        size_t cols = min(width, n - col);
        pack_b(k, (operand){b.data + col * b.step_i, b.step_i, b.step_p}, cols, depth, padded, width);
        for (size_t row = 0; row < rows; row += k->channels) {
            s.w = packed_a + row * padded;
            s.out = (uint32_t)min(k->channels, rows - row);
            run_tile(k, &s, cols, width, c + row * stride + col, stride);
        }
    }
}

static void scale_result(size_t m, size_t n, float beta, float *c, size_t stride) {
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            c[i * stride + j] = beta == 0.0f ? 0.0f : beta * c[i * stride + j];
}

void fgt_gemm_packed(const fgt_conv_kernel *k, size_t m, size_t n, size_t depth, float alpha, fgt_matrix a,
                     fgt_matrix b, float beta, float *c, size_t stride) {
    operand x = {a.data, a.transposed ? 1 : a.stride, a.transposed ? a.stride : 1};
    operand y = {b.data, b.transposed ? b.stride : 1, b.transposed ? 1 : b.stride};
    if (depth == 0 || (beta != 0.0f && beta != 1.0f))
        scale_result(m, n, beta, c, stride);
    for (size_t p = 0; p < depth; p += DEPTH) {
        size_t terms = min(DEPTH, depth - p), padded = ceil_div(terms, STEPS) * STEPS;
        operand b_part = {y.data + p * y.step_p, y.step_i, y.step_p};
        for (size_t row = 0; row < m; row += ROWS) {
            size_t rows = min(ROWS, m - row);
            pack_a(k, (operand){x.data + row * x.step_i + p * x.step_p, x.step_i, x.step_p}, rows, terms, padded);
            for (size_t i = 0; alpha != 1.0f && i < ceil_div(rows, k->channels) * k->channels * padded; i++)
                packed_a[i] *= alpha;
            multiply_block(k, rows, n, terms, b_part, p > 0 || beta != 0.0f, c + row * stride, stride);
        }
    }
}

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

#include "trainer/nn/fastmath.h"
#include "trainer/nn/kernels.h"

#include <string.h>

enum {
    DEPTH = 256,      /* maximum of terms between two additions to the result */
    STEPS = 16,       /* taps: terms that the kernel adds in one inner loop; panels are padded to a multiple */
    ROWS = 512,       /* maximum of rows of a that are packed together */
    COLUMNS_MAX = 48, /* of a tile */
    TILE_ROWS_MAX = 8 /* of a tile */
};

static _Thread_local float packed_a[ROWS * DEPTH], packed_b[COLUMNS_MAX * DEPTH];

static size_t min(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Element (i, p) of an operand: row i of a or column i of b, term p of the sum. One of the steps is 1. */
typedef struct operand {
    const float *data;
    size_t step_i, step_p;
} operand;

static void transpose4(const float *from, size_t stride, float scale, float *to, size_t width) {
    fgt_f4 a = fgt_f4_load(from) * scale, b = fgt_f4_load(from + stride) * scale;
    fgt_f4 c = fgt_f4_load(from + 2 * stride) * scale, d = fgt_f4_load(from + 3 * stride) * scale;
    for (int i = 0; i < 4; i++)
        fgt_f4_store(to + (size_t)i * width, (fgt_f4){a[i], b[i], c[i], d[i]});
}

/* A panel [depth][width] of elements 0 .. count - 1, with zeros up to width and up to whole STEPS. */
static void pack_panel(operand x, size_t count, size_t depth, size_t width, float scale, float *to) {
    size_t fours = x.step_i == 1 ? 0 : count / 4 * 4, deep = depth / 4 * 4;
    for (size_t p = 0; p < deep; p += 4)
        for (size_t i = 0; i < fours; i += 4)
            transpose4(x.data + i * x.step_i + p, x.step_i, scale, to + p * width + i, width);
    for (size_t p = 0; p < depth; p++) {
        const float *from = x.data + p * x.step_p;
        float *row = to + p * width;
        size_t i = p < deep ? fours : 0;
        for (; x.step_i == 1 && i + 4 <= count; i += 4)
            fgt_f4_store(row + i, fgt_f4_load(from + i) * scale);
        for (; i < count; i++)
            row[i] = from[i * x.step_i] * scale;
        for (; i < width; i++)
            row[i] = 0.0f;
    }
    size_t end = (depth + STEPS - 1) / STEPS * STEPS;
    memset(to + depth * width, 0, (end - depth) * width * sizeof *to);
}

/* Adds to c, or stores, rows `out` and columns `cols` of a tile. One that is narrower than the kernel's is computed in
 * a buffer. */
static void run_tile(const fgt_conv_kernel *k, fgt_conv_pixels *s, size_t cols, float *c, size_t stride) {
    size_t width = (size_t)k->lanes * k->vectors;
    bool whole = cols == width, add = s->add;
    float buffer[TILE_ROWS_MAX * COLUMNS_MAX];
    s->vectors = (uint32_t)((cols + k->lanes - 1) / k->lanes);
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
    const size_t width = (size_t)k->lanes * k->vectors, padded = (depth + STEPS - 1) / STEPS * STEPS;
    size_t taps[STEPS];
    for (size_t t = 0; t < STEPS; t++)
        taps[t] = t * width * sizeof(float);
    fgt_conv_pixels s = {.in = (uint32_t)(padded / STEPS), .taps = STEPS, .plane = STEPS * width, .tap = taps};
    s.add = add;
    for (size_t j = 0; j < k->vectors; j++)
        s.x[j] = packed_b + j * k->lanes;
    for (size_t col = 0; col < n; col += width) {
        size_t cols = min(width, n - col);
        pack_panel((operand){b.data + col * b.step_i, b.step_i, b.step_p}, cols, depth, width, 1.0f, packed_b);
        for (size_t row = 0; row < rows; row += k->channels) {
            s.w = packed_a + row * padded;
            s.out = (uint32_t)min(k->channels, rows - row);
            run_tile(k, &s, cols, c + row * stride + col, stride);
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
        size_t terms = min(DEPTH, depth - p), padded = (terms + STEPS - 1) / STEPS * STEPS;
        operand b_part = {y.data + p * y.step_p, y.step_i, y.step_p};
        for (size_t row = 0; row < m; row += ROWS) {
            size_t rows = min(ROWS, m - row);
            for (size_t i = 0; i < rows; i += k->channels) {
                operand part = {x.data + (row + i) * x.step_i + p * x.step_p, x.step_i, x.step_p};
                pack_panel(part, min(k->channels, rows - i), terms, k->channels, alpha, packed_a + i * padded);
            }
            multiply_block(k, rows, n, terms, b_part, p > 0 || beta != 0.0f, c + row * stride, stride);
        }
    }
}

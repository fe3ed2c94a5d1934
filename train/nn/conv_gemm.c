/*
 * conv_gemm.c - convolution as a matrix product: patches of the image are written out as columns (im2col), and BLAS
 * does the rest. Takes every size of kernel, stride and padding.
 *
 * One product takes a piece of the batch: some rows of a large image, so that the columns stay in the cache, or several
 * small images, so that the product is wide enough to be quick. A 1 x 1 kernel of stride 1 needs no columns where a
 * piece is one image. The columns are made again for backward: writing them costs less than keeping k * k times the
 * image.
 */
#include "nn/conv.h"

#include <cblas.h>
#include <string.h>

#define PIXELS  512u       /* of a piece, about */
#define COLUMNS (1u << 18) /* floats of its columns, at most, if one row of an image allows */

typedef struct piece {
    size_t first, images;
    uint32_t y0, y1; /* rows of the output */
    size_t pixels;   /* of all its images */
} piece;

void frugi_conv_gemm_plan(frugi_conv *v) {
    size_t each = (size_t)v->C * v->k * v->k, pixels = (size_t)v->Y * v->X;
    size_t want = COLUMNS / (each ? each : 1);
    want = want < 64 ? 64 : want > PIXELS ? PIXELS : want;
    v->group = pixels < want && pixels > 0 ? (uint32_t)(want / pixels) : 1;
    v->rows = v->group > 1 || v->X == 0 ? v->Y : (uint32_t)((want + v->X - 1) / v->X);
    v->rows = v->rows < v->Y ? v->rows : v->Y;
}

static size_t piece_pixels(const frugi_conv *v) {
    return (size_t)v->group * v->rows * v->X;
}

size_t frugi_conv_gemm_work(const frugi_conv *v) {
    return piece_pixels(v) * ((size_t)v->C * v->k * v->k + v->O);
}

static bool is_plain(const frugi_conv *v) {
    return v->k == 1 && v->stride == 1 && v->pad == 0 && v->group == 1;
}

/* The next piece of n samples; false at the end. Begins with a piece of all zeros. */
static bool next_piece(const frugi_conv *v, size_t n, piece *p) {
    if (p->images > 0 && p->y1 < v->Y) {
        p->y0 = p->y1;
    } else {
        p->first += p->images;
        p->images = n - p->first < v->group ? n - p->first : v->group;
        p->y0 = 0;
    }
    p->y1 = v->Y - p->y0 < v->rows ? v->Y : p->y0 + v->rows;
    p->pixels = p->images * (p->y1 - p->y0) * v->X;
    return p->images > 0;
}

/* One row of the output as a row of columns: x[xo * stride + kx - pad] for all xo, 0 outside. */
static void row_to_column(const frugi_conv *v, const float *x, uint32_t kx, float *col) {
    long shift = (long)kx - (long)v->pad, step = (long)v->stride;
    long from = shift < 0 ? (-shift + step - 1) / step : 0;
    long to = ((long)v->W - shift + step - 1) / step;
    to = to < 0 ? 0 : to > (long)v->X ? (long)v->X : to;
    from = from > to ? to : from;
    memset(col, 0, (size_t)from * sizeof *col);
    if (step == 1)
        memcpy(col + from, x + from + shift, (size_t)(to - from) * sizeof *col);
    else
        for (long i = from; i < to; i++)
            col[i] = x[i * step + shift];
    memset(col + to, 0, (size_t)((long)v->X - to) * sizeof *col);
}

static void column_to_row(const frugi_conv *v, const float *col, uint32_t kx, float *x) {
    long shift = (long)kx - (long)v->pad, step = (long)v->stride;
    long from = shift < 0 ? (-shift + step - 1) / step : 0;
    long to = ((long)v->W - shift + step - 1) / step;
    to = to > (long)v->X ? (long)v->X : to;
    for (long i = from; i < to; i++)
        x[i * step + shift] += col[i];
}

/* The row of the input that output row y sees through row ky of the kernel; -1: padding. */
static long row_of(const frugi_conv *v, uint32_t y, uint32_t ky) {
    long row = (long)y * (long)v->stride + (long)ky - (long)v->pad;
    return row < (long)v->H ? row : -1;
}

typedef struct span {
    uint32_t c0, c1; /* input channels */
} span;

/* Columns of a piece: (c1 - c0) k k rows of p->pixels each. */
static void to_columns(const frugi_conv *v, const piece *p, span c, const float *x, float *col) {
    for (uint32_t r = c.c0 * v->k * v->k; r < c.c1 * v->k * v->k; r++) {
        uint32_t channel = r / (v->k * v->k), ky = r / v->k % v->k, kx = r % v->k;
        for (size_t i = 0; i < p->images; i++) {
            const float *plane = x + ((p->first + i) * v->C + channel) * v->H * v->W;
            for (uint32_t y = p->y0; y < p->y1; y++, col += v->X) {
                long row = row_of(v, y, ky);
                if (row >= 0)
                    row_to_column(v, plane + (size_t)row * v->W, kx, col);
                else
                    memset(col, 0, v->X * sizeof *col);
            }
        }
    }
}

static void from_columns(const frugi_conv *v, const piece *p, const float *col, float *x) {
    for (uint32_t r = 0; r < v->C * v->k * v->k; r++) {
        uint32_t channel = r / (v->k * v->k), ky = r / v->k % v->k, kx = r % v->k;
        for (size_t i = 0; i < p->images; i++) {
            float *plane = x + ((p->first + i) * v->C + channel) * v->H * v->W;
            for (uint32_t y = p->y0; y < p->y1; y++, col += v->X) {
                long row = row_of(v, y, ky);
                if (row >= 0)
                    column_to_row(v, col, kx, plane + (size_t)row * v->W);
            }
        }
    }
}

/* Channels o0 .. o1 - 1 of a piece's output as one matrix: where it lies already, or gathered into `into`. */
static const float *output_of(const frugi_conv *v, const piece *p, uint32_t o0, uint32_t o1, const float *y,
                              float *into, size_t *ld) {
    size_t plane = (size_t)v->Y * v->X;
    *ld = p->images == 1 ? plane : p->pixels;
    if (p->images == 1)
        return y + (p->first * v->O + o0) * plane + (size_t)p->y0 * v->X;
    for (uint32_t o = o0; o < o1; o++)
        for (size_t i = 0; i < p->images; i++)
            memcpy(into + (o - o0) * p->pixels + i * plane, y + ((p->first + i) * v->O + o) * plane, plane * sizeof *y);
    return into;
}

void frugi_conv_gemm_forward(const frugi_conv *v, size_t n, const float *x, const float *w, float *y, float *work) {
    size_t plane = (size_t)v->Y * v->X, K = (size_t)v->C * v->k * v->k;
    float *col = work, *wide = work + K * piece_pixels(v);
    for (piece p = {0}; next_piece(v, n, &p);) {
        const float *b = x + p.first * v->C * plane + (size_t)p.y0 * v->X;
        if (!is_plain(v))
            to_columns(v, &p, (span){0, v->C}, x, col);
        float *out = p.images == 1 ? y + p.first * v->O * plane + (size_t)p.y0 * v->X : wide;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)v->O, (blasint)p.pixels, (blasint)K, 1.0f, w,
                    (blasint)K, is_plain(v) ? b : col, (blasint)(is_plain(v) ? plane : p.pixels), 0.0f, out,
                    (blasint)(p.images == 1 ? plane : p.pixels));
        for (size_t o = 0; out == wide && o < v->O; o++)
            for (size_t i = 0; i < p.images; i++)
                memcpy(y + ((p.first + i) * v->O + o) * plane, wide + o * p.pixels + i * plane, plane * sizeof *y);
    }
}

void frugi_conv_gemm_input(const frugi_conv *v, size_t n, const float *dy, const float *w, float *dx, bool add,
                           float *work) {
    size_t plane = (size_t)v->Y * v->X, K = (size_t)v->C * v->k * v->k, ld;
    float *col = work, *wide = work + K * piece_pixels(v);
    bool plain = is_plain(v);
    if (!add && !plain)
        memset(dx, 0, n * v->C * v->H * v->W * sizeof *dx);
    for (piece p = {0}; next_piece(v, n, &p);) {
        const float *b = output_of(v, &p, 0, v->O, dy, wide, &ld);
        float *out = plain ? dx + p.first * v->C * plane + (size_t)p.y0 * v->X : col;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)K, (blasint)p.pixels, (blasint)v->O, 1.0f, w,
                    (blasint)K, b, (blasint)ld, plain && add ? 1.0f : 0.0f, out, (blasint)(plain ? plane : p.pixels));
        if (!plain)
            from_columns(v, &p, col, dx);
    }
}

void frugi_conv_gemm_weight(const frugi_conv *v, size_t n, const float *x, const float *dy, frugi_conv_part part,
                            float *work) {
    size_t plane = (size_t)v->Y * v->X, kk = (size_t)v->k * v->k, ld;
    size_t cols = (part.c1 - part.c0) * kk;
    float *col = work, *wide = work + v->C * kk * piece_pixels(v), beta = 0.0f;
    for (piece p = {0}; next_piece(v, n, &p); beta = 1.0f) {
        const float *a = output_of(v, &p, part.o0, part.o1, dy, wide, &ld);
        const float *b = x + (p.first * v->C + part.c0) * plane + (size_t)p.y0 * v->X;
        if (!is_plain(v))
            to_columns(v, &p, (span){part.c0, part.c1}, x, col);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)(part.o1 - part.o0), (blasint)cols,
                    (blasint)p.pixels, 1.0f, a, (blasint)ld, is_plain(v) ? b : col,
                    (blasint)(is_plain(v) ? plane : p.pixels), beta, part.dw + part.c0 * kk, (blasint)(v->C * kk));
    }
}

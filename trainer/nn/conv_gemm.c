/*
 * conv_gemm.c - convolution as a matrix product: patches of the image are written out as columns (im2col), and BLAS
 * does the rest. Takes every size of kernel, stride and padding.
 *
 * One product takes a piece of the batch: some rows of a large image, so that the columns stay in the cache, or several
 * small images, so that the product is wide enough to be quick. A 1 x 1 kernel of stride 1 needs no columns where a
 * piece is one image. The columns are made again for backward: writing them costs less than keeping k * k times the
 * image.
 *
 * BLAS kernels round differently for other sizes, so the pieces, and the order in which they are summed, depend on the
 * shape and the batch alone; threads share them. The gradient of few weights is summed over groups of images into
 * several buffers, which are added at the end. That of many weights would need too much memory for this: there the
 * threads work on one piece together.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/gemm.h"
#include "trainer/nn/parallel_ranges.h"

#include <string.h>

#define PIXELS  512u       /* of a piece, about */
#define COLUMNS (1u << 18) /* floats of its columns, at most, if one row of an image allows */
#define SUMS    8u         /* buffers of a gradient, at most */
#define FEW     (1u << 16) /* weights whose gradient is summed in several buffers, at most */

typedef struct piece {
    size_t first, images;
    uint32_t y0, y1; /* rows of the output */
    size_t pixels;   /* of all its images */
} piece;

/* Of one output channel. */
static size_t weights_each(const fgt_conv *v) {
    return (size_t)v->C * v->k * v->k;
}

void fgt_conv_gemm_plan(fgt_conv *v) {
    size_t each = weights_each(v), pixels = (size_t)v->Y * v->X;
    size_t want = COLUMNS / (each ? each : 1);
    want = want < 64 ? 64 : want > PIXELS ? PIXELS : want;
    v->group = pixels < want && pixels > 0 ? (uint32_t)(want / pixels) : 1;
    v->rows = v->group > 1 || v->X == 0 ? v->Y : (uint32_t)((want + v->X - 1) / v->X);
    v->rows = v->rows < v->Y ? v->rows : v->Y;
}

static size_t piece_pixels(const fgt_conv *v) {
    return (size_t)v->group * v->rows * v->X;
}

size_t fgt_conv_gemm_work(const fgt_conv *v) {
    return piece_pixels(v) * (weights_each(v) + v->O);
}

static bool is_plain(const fgt_conv *v) {
    return v->k == 1 && v->stride == 1 && v->pad == 0 && v->group == 1;
}

/* Enough for pieces of v->group images, and a number that 2, 4 and 8 threads can share evenly. */
size_t fgt_conv_gemm_groups(const fgt_conv *v, size_t n) {
    size_t least = (n + v->group - 1) / v->group, groups = 2;
    while (groups < least)
        groups = groups < 8 ? 2 * groups : groups + 8;
    return groups < n ? groups : n;
}

/* The next rows of the piece's images, from the first; false at the end. */
static bool next_rows(const fgt_conv *v, piece *p) {
    p->y0 = p->y1;
    p->y1 = v->Y - p->y0 < v->rows ? v->Y : p->y0 + v->rows;
    p->pixels = p->images * (p->y1 - p->y0) * v->X;
    return p->y0 < v->Y;
}

/* What column kx of the kernel sees of a row: x[i * stride + shift] for from <= i < to; padding elsewhere. */
typedef struct sight {
    long shift, from, to;
} sight;

static sight sight_of(const fgt_conv *v, uint32_t kx) {
    long shift = (long)kx - (long)v->pad, step = (long)v->stride;
    long from = shift < 0 ? (-shift + step - 1) / step : 0;
    long to = ((long)v->W - shift + step - 1) / step;
    to = to < 0 ? 0 : to > (long)v->X ? (long)v->X : to;
    return (sight){shift, from > to ? to : from, to};
}

/* One row of the output as a row of columns. */
static inline void row_to_column(const fgt_conv *v, const float *x, sight s, float *col) {
    long step = (long)v->stride;
    for (long i = 0; i < s.from; i++)
        col[i] = 0.0f;
    if (step == 1)
        memcpy(col + s.from, x + s.from + s.shift, (size_t)(s.to - s.from) * sizeof *col);
    else
        for (long i = s.from; i < s.to; i++)
            col[i] = x[i * step + s.shift];
    for (long i = s.to; i < (long)v->X; i++)
        col[i] = 0.0f;
}

static inline void column_to_row(const fgt_conv *v, const float *col, sight s, float *x) {
    for (long i = s.from; i < s.to; i++)
        x[i * (long)v->stride + s.shift] += col[i];
}

/* The row of the input that output row y sees through row ky of the kernel; -1: padding. */
static long row_of(const fgt_conv *v, uint32_t y, uint32_t ky) {
    long row = (long)y * (long)v->stride + (long)ky - (long)v->pad;
    return row < (long)v->H ? row : -1;
}

typedef struct span {
    uint32_t c0, c1; /* input channels */
} span;

/* Columns of a piece: (c1 - c0) k k rows of p->pixels each. */
static void to_columns(const fgt_conv *v, const piece *p, span c, const float *x, float *col) {
    for (uint32_t r = c.c0 * v->k * v->k; r < c.c1 * v->k * v->k; r++) {
        uint32_t channel = r / (v->k * v->k), ky = r / v->k % v->k;
        sight s = sight_of(v, r % v->k);
        for (size_t i = 0; i < p->images; i++) {
            const float *plane = x + ((p->first + i) * v->C + channel) * v->H * v->W;
            for (uint32_t y = p->y0; y < p->y1; y++, col += v->X) {
                long row = row_of(v, y, ky);
                if (row >= 0)
                    row_to_column(v, plane + (size_t)row * v->W, s, col);
                else
                    memset(col, 0, v->X * sizeof *col);
            }
        }
    }
}

static void from_columns(const fgt_conv *v, const piece *p, const float *col, float *x) {
    for (uint32_t r = 0; r < v->C * v->k * v->k; r++) {
        uint32_t channel = r / (v->k * v->k), ky = r / v->k % v->k;
        sight s = sight_of(v, r % v->k);
        for (size_t i = 0; i < p->images; i++) {
            float *plane = x + ((p->first + i) * v->C + channel) * v->H * v->W;
            for (uint32_t y = p->y0; y < p->y1; y++, col += v->X) {
                long row = row_of(v, y, ky);
                if (row >= 0)
                    column_to_row(v, col, s, plane + (size_t)row * v->W);
            }
        }
    }
}

/* Channels from o0 on of a piece's output as one matrix: where it lies already, or as gathered in `into`. */
static fgt_matrix gathered(const fgt_conv *v, const piece *p, uint32_t o0, const float *y, const float *into) {
    size_t plane = (size_t)v->Y * v->X;
    if (p->images == 1)
        return (fgt_matrix){y + (p->first * v->O + o0) * plane + (size_t)p->y0 * v->X, plane, false};
    return (fgt_matrix){into, p->pixels, false};
}

/* Channels o0 .. o1 - 1 as one matrix; those of several images are gathered. */
static fgt_matrix output_of(const fgt_conv *v, const piece *p, uint32_t o0, uint32_t o1, const float *y, float *into) {
    size_t plane = (size_t)v->Y * v->X;
    for (uint32_t o = o0; p->images > 1 && o < o1; o++)
        for (size_t i = 0; i < p->images; i++)
            memcpy(into + (o - o0) * p->pixels + i * plane, y + ((p->first + i) * v->O + o) * plane, plane * sizeof *y);
    return gathered(v, p, o0, y, into);
}

void fgt_conv_gemm_forward(const fgt_conv *v, size_t n, const float *x, const float *w, float *y, float *work) {
    size_t plane = (size_t)v->Y * v->X, K = weights_each(v);
    float *col = work, *wide = work + K * piece_pixels(v);
    bool plain = is_plain(v), one = n == 1;
    for (piece p = {.images = n}; next_rows(v, &p);) {
        size_t at = (size_t)p.y0 * v->X;
        if (!plain)
            to_columns(v, &p, (span){0, v->C}, x, col);
        fgt_matrix b = {plain ? x + at : col, plain ? plane : p.pixels, false};
        fgt_gemm_whole(v->O, p.pixels, K, 1.0f, (fgt_matrix){w, K, false}, b, 0.0f, one ? y + at : wide,
                       one ? plane : p.pixels);
        for (size_t o = 0; !one && o < v->O; o++)
            for (size_t i = 0; i < n; i++)
                memcpy(y + (i * v->O + o) * plane, wide + o * p.pixels + i * plane, plane * sizeof *y);
    }
}

void fgt_conv_gemm_input(const fgt_conv *v, size_t n, const float *dy, const float *w, float *dx, bool add,
                         float *work) {
    size_t plane = (size_t)v->Y * v->X, K = weights_each(v);
    float *col = work, *wide = work + K * piece_pixels(v);
    bool plain = is_plain(v);
    if (!add && !plain)
        memset(dx, 0, n * v->C * v->H * v->W * sizeof *dx);
    for (piece p = {.images = n}; next_rows(v, &p);) {
        fgt_matrix b = output_of(v, &p, 0, v->O, dy, wide);
        fgt_gemm_whole(K, p.pixels, v->O, 1.0f, (fgt_matrix){w, K, true}, b, plain && add ? 1.0f : 0.0f,
                       plain ? dx + (size_t)p.y0 * v->X : col, plain ? plane : p.pixels);
        if (!plain)
            from_columns(v, &p, col, dx);
    }
}

/* ---- the gradient of the weights ---- */

/* What all of it needs: the batch, and where the gradient of output channels o0 .. o1 - 1 goes. */
typedef struct batch {
    const fgt_conv *v;
    size_t n, groups;
    const float *x, *dy;
    fgt_conv_part part;
} batch;

static piece group_at(const batch *b, size_t i) {
    size_t first = b->n * i / b->groups;
    return (piece){.first = first, .images = b->n * (i + 1) / b->groups - first};
}

/* The input of a piece as a matrix of columns (pixels x K): where it lies already, or written to col. */
static fgt_matrix columns_of(const batch *b, const piece *p, float *col) {
    const fgt_conv *v = b->v;
    size_t plane = (size_t)v->Y * v->X;
    if (is_plain(v))
        return (fgt_matrix){b->x + p->first * v->C * plane + (size_t)p->y0 * v->X, plane, true};
    return (fgt_matrix){col, p->pixels, true};
}

static bool has_few_weights(const fgt_conv *v) {
    return v->O * weights_each(v) <= FEW;
}

size_t fgt_conv_gemm_shared(const fgt_conv *v) {
    return has_few_weights(v) ? (SUMS - 1) * v->O * weights_each(v) : 0;
}

static size_t sums_of(const batch *b) {
    size_t pixels = b->n * b->v->Y * b->v->X, sums = b->groups > 1 ? 2 : 1;
    while (sums < SUMS && 2 * sums <= b->groups && pixels >= 2 * sums * PIXELS)
        sums *= 2;
    return sums;
}

/* The sum over groups first .. end - 1, by one thread. */
static void sum_groups(const batch *b, size_t first, size_t end, float *dw, float *work) {
    const fgt_conv *v = b->v;
    size_t K = weights_each(v);
    float *col = work, *wide = work + K * piece_pixels(v), keep = 0.0f;
    for (size_t i = first; i < end; i++)
        for (piece p = group_at(b, i); next_rows(v, &p); keep = 1.0f) {
            if (!is_plain(v))
                to_columns(v, &p, (span){0, v->C}, b->x, col);
            fgt_matrix dy = output_of(v, &p, b->part.o0, b->part.o1, b->dy, wide);
            fgt_gemm_whole(b->part.o1 - b->part.o0, K, p.pixels, 1.0f, dy, columns_of(b, &p, col), keep, dw, K);
        }
}

static void add_sums(int threads, size_t count, size_t sums, const float *from, float *dw) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        for (size_t s = 0; s < sums; s++)
            for (size_t i = fgt_share_begin(count, t, threads); i < fgt_share_begin(count, t + 1, threads); i++)
                dw[i] += from[s * count + i];
}

static void weight_by_groups(fgt_graph *g, const batch *b) {
    size_t sums = sums_of(b), count = (b->part.o1 - b->part.o0) * weights_each(b->v);
    float *shared = fgt_work_shared(g);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++)
        for (size_t s = fgt_share_begin(sums, t, g->threads); s < fgt_share_begin(sums, t + 1, g->threads); s++)
            sum_groups(b, b->groups * s / sums, b->groups * (s + 1) / sums,
                       s == 0 ? b->part.dw : shared + (s - 1) * count, fgt_work(g, t));
    add_sums(g->threads, count, sums - 1, shared, b->part.dw);
}

/* Every thread makes columns of some input channels, and gathers some output channels. */
static void prepare_piece(const fgt_graph *g, const batch *b, const piece *p, float *col, float *wide) {
    const fgt_conv *v = b->v;
    size_t rows = b->part.o1 - b->part.o0;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        span c = {(uint32_t)fgt_share_begin(v->C, t, g->threads), (uint32_t)fgt_share_begin(v->C, t + 1, g->threads)};
        uint32_t from = (uint32_t)fgt_share_begin(rows, t, g->threads);
        uint32_t to = (uint32_t)fgt_share_begin(rows, t + 1, g->threads);
        if (!is_plain(v))
            to_columns(v, p, c, b->x, col + (size_t)c.c0 * v->k * v->k * p->pixels);
        output_of(v, p, b->part.o0 + from, b->part.o0 + to, b->dy, wide + from * p->pixels);
    }
}

static void weight_by_pieces(fgt_graph *g, const batch *b) {
    const fgt_conv *v = b->v;
    size_t K = weights_each(v);
    float *col = fgt_work(g, 0), *wide = col + K * piece_pixels(v), keep = 0.0f;
    for (size_t i = 0; i < b->groups; i++)
        for (piece p = group_at(b, i); next_rows(v, &p); keep = 1.0f) {
            prepare_piece(g, b, &p, col, wide);
            fgt_matrix dy = gathered(v, &p, b->part.o0, b->dy, wide);
            fgt_gemm(g->threads, b->part.o1 - b->part.o0, K, p.pixels, 1.0f, dy, columns_of(b, &p, col), keep,
                     b->part.dw, K);
        }
}

void fgt_conv_gemm_weight(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_part part) {
    batch b = {v, g->n, fgt_conv_gemm_groups(v, g->n), x, dy, part};
    (has_few_weights(v) ? weight_by_groups : weight_by_pieces)(g, &b);
}

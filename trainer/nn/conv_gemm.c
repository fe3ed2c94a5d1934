/*
 * conv_gemm.c - convolution as a matrix product: im2col writes the patches of the image as columns, and BLAS
 * multiplies. Supports every kernel size, stride and padding.
 *
 * One product covers a chunk of the batch: some rows of a large image, so that the columns stay in the cache, or
 * several small images, so that the product is wide enough to be fast. A 1 x 1 kernel of stride 1 needs no columns
 * where a chunk is one image. Backward writes the columns again: that costs less than storing k * k times the image.
 *
 * BLAS kernels round differently for other sizes, so the chunks, and the order in which they are summed, depend on the
 * shape and the batch alone, not on the number of threads. The gradient of few weights is summed over groups of images
 * into several buffers, which are added at the end. For many weights the buffers would be too large: there the threads
 * compute one chunk together.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/gemm.h"
#include "trainer/nn/parallel_ranges.h"

#include <string.h>

#define CHUNK_PIXELS     512u       /* of a chunk, approximately */
#define COLUMNS_MAX      (1u << 18) /* maximum of floats of its columns, if one row of an image fits */
#define PARTIAL_SUMS_MAX 8u         /* maximum of partial sums of a gradient */
#define FEW_WEIGHTS_MAX  (1u << 16) /* maximum of weights whose gradient has several partial sums */

typedef struct chunk {
    size_t first, images;
    uint32_t y0, y1; /* rows of the output */
    size_t pixels;   /* of all its images */
} chunk;

/* Of one output channel. */
static size_t weights_per_output(const fgt_conv *v) {
    return (size_t)v->C * v->k * v->k;
}

void fgt_conv_gemm_plan(fgt_conv *v) {
    size_t each = weights_per_output(v), pixels = (size_t)v->Y * v->X;
    size_t want = COLUMNS_MAX / (each ? each : 1);
    want = want < 64 ? 64 : want > CHUNK_PIXELS ? CHUNK_PIXELS : want;
    v->group = pixels < want && pixels > 0 ? (uint32_t)(want / pixels) : 1;
    v->rows = v->group > 1 || v->X == 0 ? v->Y : (uint32_t)((want + v->X - 1) / v->X);
    v->rows = v->rows < v->Y ? v->rows : v->Y;
}

static size_t chunk_pixels(const fgt_conv *v) {
    return (size_t)v->group * v->rows * v->X;
}

size_t fgt_conv_gemm_work(const fgt_conv *v) {
    return chunk_pixels(v) * (weights_per_output(v) + v->O);
}

static bool needs_no_columns(const fgt_conv *v) {
    return v->k == 1 && v->stride == 1 && v->pad == 0 && v->group == 1;
}

/* Enough for chunks of v->group images, and a number that 2, 4 and 8 threads can divide evenly. */
static size_t group_count(const fgt_conv *v, size_t n) {
    size_t least = (n + v->group - 1) / v->group, groups = 2;
    while (groups < least)
        groups = groups < 8 ? 2 * groups : groups + 8;
    return groups < n ? groups : n;
}

/* The next rows of the images of a chunk, from the first; false at the end. */
static bool chunk_next_rows(const fgt_conv *v, chunk *p) {
    p->y0 = p->y1;
    p->y1 = v->Y - p->y0 < v->rows ? v->Y : p->y0 + v->rows;
    p->pixels = p->images * (p->y1 - p->y0) * v->X;
    return p->y0 < v->Y;
}

/* The outputs of a row that column kx of the kernel reads from inside the image: x[i * stride + shift] for from <= i <
 * to; padding elsewhere. */
typedef struct visible_range {
    long shift, from, to;
} visible_range;

static visible_range visible_range_of(const fgt_conv *v, uint32_t kx) {
    long shift = (long)kx - (long)v->pad, step = (long)v->stride;
    long from = shift < 0 ? (-shift + step - 1) / step : 0;
    long to = ((long)v->W - shift + step - 1) / step;
    to = to < 0 ? 0 : to > (long)v->X ? (long)v->X : to;
    return (visible_range){shift, from > to ? to : from, to};
}

/* One row of the output in column format. */
static inline void im2col_row(const fgt_conv *v, const float *x, visible_range s, float *col) {
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

static inline void col2im_row(const fgt_conv *v, const float *col, visible_range s, float *x) {
    for (long i = s.from; i < s.to; i++)
        x[i * (long)v->stride + s.shift] += col[i];
}

/* The row of the input that output row y reads through row ky of the kernel; -1: padding. */
static long input_row(const fgt_conv *v, uint32_t y, uint32_t ky) {
    long row = (long)y * (long)v->stride + (long)ky - (long)v->pad;
    return row < (long)v->H ? row : -1;
}

typedef struct channel_range {
    uint32_t c0, c1; /* input channels */
} channel_range;

/* Columns of a chunk: (c1 - c0) k k rows of p->pixels each. */
static void im2col(const fgt_conv *v, const chunk *p, channel_range c, const float *x, float *col) {
    for (uint32_t r = c.c0 * v->k * v->k; r < c.c1 * v->k * v->k; r++) {
        uint32_t channel = r / (v->k * v->k), ky = r / v->k % v->k;
        visible_range s = visible_range_of(v, r % v->k);
        for (size_t i = 0; i < p->images; i++) {
            const float *plane = x + ((p->first + i) * v->C + channel) * v->H * v->W;
            for (uint32_t y = p->y0; y < p->y1; y++, col += v->X) {
                long row = input_row(v, y, ky);
                if (row >= 0)
                    im2col_row(v, plane + (size_t)row * v->W, s, col);
                else
                    memset(col, 0, v->X * sizeof *col);
            }
        }
    }
}

static void col2im(const fgt_conv *v, const chunk *p, const float *col, float *x) {
    for (uint32_t r = 0; r < v->C * v->k * v->k; r++) {
        uint32_t channel = r / (v->k * v->k), ky = r / v->k % v->k;
        visible_range s = visible_range_of(v, r % v->k);
        for (size_t i = 0; i < p->images; i++) {
            float *plane = x + ((p->first + i) * v->C + channel) * v->H * v->W;
            for (uint32_t y = p->y0; y < p->y1; y++, col += v->X) {
                long row = input_row(v, y, ky);
                if (row >= 0)
                    col2im_row(v, col, s, plane + (size_t)row * v->W);
            }
        }
    }
}

/* Output channels of a chunk from o0 as one matrix: in place, or as gathered in `into`. */
static fgt_matrix output_matrix(const fgt_conv *v, const chunk *p, uint32_t o0, const float *y, const float *into) {
    size_t plane = (size_t)v->Y * v->X;
    if (p->images == 1)
        return (fgt_matrix){y + (p->first * v->O + o0) * plane + (size_t)p->y0 * v->X, plane, false};
    return (fgt_matrix){into, p->pixels, false};
}

/* Channels o0 .. o1 - 1 as one matrix; those of several images are gathered. */
static fgt_matrix gather_output(const fgt_conv *v, const chunk *p, uint32_t o0, uint32_t o1, const float *y,
                                float *into) {
    size_t plane = (size_t)v->Y * v->X;
    for (uint32_t o = o0; p->images > 1 && o < o1; o++)
        for (size_t i = 0; i < p->images; i++)
            memcpy(into + (o - o0) * p->pixels + i * plane, y + ((p->first + i) * v->O + o) * plane, plane * sizeof *y);
    return output_matrix(v, p, o0, y, into);
}

static void forward_group(const fgt_conv *v, size_t n, const float *x, const float *w, float *y, float *work) {
    size_t plane = (size_t)v->Y * v->X, K = weights_per_output(v);
    float *col = work, *wide = work + K * chunk_pixels(v);
    bool plain = needs_no_columns(v), one = n == 1;
    for (chunk p = {.images = n}; chunk_next_rows(v, &p);) {
        size_t at = (size_t)p.y0 * v->X;
        if (!plain)
            im2col(v, &p, (channel_range){0, v->C}, x, col);
        fgt_matrix b = {plain ? x + at : col, plain ? plane : p.pixels, false};
        fgt_gemm_single(v->O, p.pixels, K, 1.0f, (fgt_matrix){w, K, false}, b, 0.0f, one ? y + at : wide,
                        one ? plane : p.pixels);
        for (size_t o = 0; !one && o < v->O; o++)
            for (size_t i = 0; i < n; i++)
                memcpy(y + (i * v->O + o) * plane, wide + o * p.pixels + i * plane, plane * sizeof *y);
    }
}

static void input_grad_group(const fgt_conv *v, size_t n, const float *dy, const float *w, float *dx, bool add,
                             float *work) {
    size_t plane = (size_t)v->Y * v->X, K = weights_per_output(v);
    float *col = work, *wide = work + K * chunk_pixels(v);
    bool plain = needs_no_columns(v);
    if (!add && !plain)
        memset(dx, 0, n * v->C * v->H * v->W * sizeof *dx);
    for (chunk p = {.images = n}; chunk_next_rows(v, &p);) {
        fgt_matrix b = gather_output(v, &p, 0, v->O, dy, wide);
        fgt_gemm_single(K, p.pixels, v->O, 1.0f, (fgt_matrix){w, K, true}, b, plain && add ? 1.0f : 0.0f,
                        plain ? dx + (size_t)p.y0 * v->X : col, plain ? plane : p.pixels);
        if (!plain)
            col2im(v, &p, col, dx);
    }
}

static void forward(fgt_graph *g, const fgt_conv *v, const float *x, const float *w, float *y) {
    size_t groups = group_count(v, g->n), in = (size_t)v->C * v->H * v->W, out = (size_t)v->O * v->Y * v->X;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++)
        for (size_t i = fgt_range_begin(groups, t, g->threads); i < fgt_range_begin(groups, t + 1, g->threads); i++) {
            size_t first = g->n * i / groups, n = g->n * (i + 1) / groups - first;
            forward_group(v, n, x + first * in, w, y + first * out, fgt_work(g, t));
        }
}

static void input_grad(fgt_graph *g, const fgt_conv *v, const float *dy, const float *w, float *dx, bool add) {
    size_t groups = group_count(v, g->n), in = (size_t)v->C * v->H * v->W, out = (size_t)v->O * v->Y * v->X;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++)
        for (size_t i = fgt_range_begin(groups, t, g->threads); i < fgt_range_begin(groups, t + 1, g->threads); i++) {
            size_t first = g->n * i / groups, n = g->n * (i + 1) / groups - first;
            input_grad_group(v, n, dy + first * out, w, dx + first * in, add, fgt_work(g, t));
        }
}

/* ---- the gradient of the weights ---- */

/* Inputs of the weight gradient: the batch, and the tile of output channels o0 .. o1 - 1. */
typedef struct weight_job {
    const fgt_conv *v;
    size_t n, groups;
    const float *x, *dy;
    fgt_conv_tile tile;
} weight_job;

static chunk group_at(const weight_job *b, size_t i) {
    size_t first = b->n * i / b->groups;
    return (chunk){.first = first, .images = b->n * (i + 1) / b->groups - first};
}

/* The input of a chunk as a matrix of columns (pixels x K): in place, or as written to col. */
static fgt_matrix column_matrix(const weight_job *b, const chunk *p, float *col) {
    const fgt_conv *v = b->v;
    size_t plane = (size_t)v->Y * v->X;
    if (needs_no_columns(v))
        return (fgt_matrix){b->x + p->first * v->C * plane + (size_t)p->y0 * v->X, plane, true};
    return (fgt_matrix){col, p->pixels, true};
}

static bool has_few_weights(const fgt_conv *v) {
    return v->O * weights_per_output(v) <= FEW_WEIGHTS_MAX;
}

size_t fgt_conv_gemm_shared_work(const fgt_conv *v) {
    return has_few_weights(v) ? (PARTIAL_SUMS_MAX - 1) * v->O * weights_per_output(v) : 0;
}

static size_t partial_sum_count(const weight_job *b) {
    size_t pixels = b->n * b->v->Y * b->v->X, sums = b->groups > 1 ? 2 : 1;
    while (sums < PARTIAL_SUMS_MAX && 2 * sums <= b->groups && pixels >= 2 * sums * CHUNK_PIXELS)
        sums *= 2;
    return sums;
}

/* The sum over groups first .. end - 1, by one thread. */
static void accumulate_groups(const weight_job *b, size_t first, size_t end, float *dw, float *work) {
    const fgt_conv *v = b->v;
    size_t K = weights_per_output(v);
    float *col = work, *wide = work + K * chunk_pixels(v), beta = 0.0f;
    for (size_t i = first; i < end; i++)
        for (chunk p = group_at(b, i); chunk_next_rows(v, &p); beta = 1.0f) {
            if (!needs_no_columns(v))
                im2col(v, &p, (channel_range){0, v->C}, b->x, col);
            fgt_matrix dy = gather_output(v, &p, b->tile.o0, b->tile.o1, b->dy, wide);
            fgt_gemm_single(b->tile.o1 - b->tile.o0, K, p.pixels, 1.0f, dy, column_matrix(b, &p, col), beta, dw, K);
        }
}

static void add_partial_sums(int threads, size_t count, size_t sums, const float *from, float *dw) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        for (size_t s = 0; s < sums; s++)
            for (size_t i = fgt_range_begin(count, t, threads); i < fgt_range_begin(count, t + 1, threads); i++)
                dw[i] += from[s * count + i];
}

static void weight_grad_by_groups(fgt_graph *g, const weight_job *b) {
    size_t sums = partial_sum_count(b), count = (b->tile.o1 - b->tile.o0) * weights_per_output(b->v);
    float *shared = fgt_work_shared(g);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++)
        for (size_t s = fgt_range_begin(sums, t, g->threads); s < fgt_range_begin(sums, t + 1, g->threads); s++)
            accumulate_groups(b, b->groups * s / sums, b->groups * (s + 1) / sums,
                              s == 0 ? b->tile.dw : shared + (s - 1) * count, fgt_work(g, t));
    add_partial_sums(g->threads, count, sums - 1, shared, b->tile.dw);
}

/* Every thread writes the columns of some input channels, and gathers some output channels. */
static void prepare_chunk(const fgt_graph *g, const weight_job *b, const chunk *p, float *col, float *wide) {
    const fgt_conv *v = b->v;
    size_t rows = b->tile.o1 - b->tile.o0;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        channel_range c = {(uint32_t)fgt_range_begin(v->C, t, g->threads),
                           (uint32_t)fgt_range_begin(v->C, t + 1, g->threads)};
        uint32_t from = (uint32_t)fgt_range_begin(rows, t, g->threads);
        uint32_t to = (uint32_t)fgt_range_begin(rows, t + 1, g->threads);
        if (!needs_no_columns(v))
            im2col(v, p, c, b->x, col + (size_t)c.c0 * v->k * v->k * p->pixels);
        gather_output(v, p, b->tile.o0 + from, b->tile.o0 + to, b->dy, wide + from * p->pixels);
    }
}

static void weight_grad_by_chunks(fgt_graph *g, const weight_job *b) {
    const fgt_conv *v = b->v;
    size_t K = weights_per_output(v);
    float *col = fgt_work(g, 0), *wide = col + K * chunk_pixels(v), beta = 0.0f;
    for (size_t i = 0; i < b->groups; i++)
        for (chunk p = group_at(b, i); chunk_next_rows(v, &p); beta = 1.0f) {
            prepare_chunk(g, b, &p, col, wide);
            fgt_matrix dy = output_matrix(v, &p, b->tile.o0, b->dy, wide);
            fgt_gemm(g->threads, b->tile.o1 - b->tile.o0, K, p.pixels, 1.0f, dy, column_matrix(b, &p, col), beta,
                     b->tile.dw, K);
        }
}

static void weight_grad(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    weight_job b = {v, g->n, group_count(v, g->n), x, dy, tile};
    (has_few_weights(v) ? weight_grad_by_groups : weight_grad_by_chunks)(g, &b);
}

const fgt_conv_passes fgt_conv_gemm = {forward, input_grad, weight_grad};

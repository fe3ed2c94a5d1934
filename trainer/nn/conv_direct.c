/*
 * conv_direct.c - convolution without im2col: writing columns and packing them for BLAS would cost as much as the
 * product where images have few channels.
 *
 * An image is copied once with zeros around (framed). An input pixel of an output pixel is then at a constant offset, a
 * tap, for all output pixels, and the kernels (kernels.h) sum over channels and taps in registers. With a stride,
 * the framed image is divided into stride x stride images of every stride-th pixel, so that neighbors in the output
 * have neighbors in memory as their inputs. The gradient of the input is one such pass over the framed output gradient
 * for each of these images, by the taps that reach it. The gradient of the weights is a sum over pixels for each tap.
 *
 * Vectors are parts of rows where the width is a multiple of their length. Otherwise they run over the whole framed
 * plane, and what they compute between the rows is dropped; the zeros after a row are also those before the next, so
 * that is one column of 9 for images of 8 x 8. No sum depends on the number of images or channels of a call.
 */
#include "trainer/nn/conv.h"

#include <string.h>

enum {
    KERNEL_MAX = 7,
    TAPS_MAX = KERNEL_MAX * KERNEL_MAX,
    TAIL = 64,             /* floats after a framed image, because vectors and taps reach past its end */
    NEAR_FLOATS = 1 << 16, /* framed images or channels that are used several times in turn, if one fits: 256 KiB */
    FAR_FLOATS = 1 << 18,  /* so too, where the weights do not fit into the L2 cache, and at least so many weights */
    PIXELS_MIN = 2048      /* minimum of pixels over which the gradient of a weight stays in registers */
};

static size_t max(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t min(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t ceil_div(size_t n, size_t by) {
    return (n + by - 1) / by;
}

/* ---- framed images ---- */

/* Pixel (y, x) of the divided image (a, b) is pixel (split y + a, split x + b) of the padded image. */
typedef struct frame {
    uint32_t H, W; /* of the image */
    uint32_t split, pad;
    size_t rows, pitch; /* of a divided image */
} frame;

static size_t frame_part(const frame *f) {
    return f->rows * f->pitch;
}

static size_t frame_plane(const frame *f) {
    return f->split * f->split * frame_part(f);
}

/* Zeros for so many images: framing writes the pixels only. */
static void clear_frames(const frame *f, size_t planes, size_t images, float *framed) {
    memset(framed, 0, (images * planes * frame_plane(f) + TAIL) * sizeof *framed);
}

/* A row of the image to its row in a divided image (a, b). */
static void frame_row(const frame *f, uint32_t b, const float *x, float *to) {
    size_t first = b < f->pad ? ceil_div(f->pad - b, f->split) : 0, column = first * f->split + b - f->pad;
    size_t count = column < f->W ? ceil_div(f->W - column, f->split) : 0;
    x += column;
    to += first;
    if (f->split == 1)
        for (size_t i = 0; i < count; i++)
            to[i] = x[i];
    else
        for (size_t i = 0; i < count; i++)
            to[i] = x[i * f->split];
}

/* Frames the planes of an image; returns the end. */
static float *frame_image(const frame *f, size_t planes, const float *x, float *to) {
    for (size_t c = 0; c < planes; c++, x += (size_t)f->H * f->W)
        for (uint32_t part = 0; part < f->split * f->split; part++)
            for (size_t row = 0; row < f->rows; row++, to += f->pitch) {
                size_t y = row * f->split + part / f->split - f->pad; /* above the image: wraps round to far below */
                if (y < f->H)
                    frame_row(f, part % f->split, x + y * f->W, to);
            }
    return to;
}

/* Several images of which x points to the first plane to be framed. */
static void frame_images(const frame *f, size_t planes, size_t images, const float *x, size_t x_image, float *to) {
    for (size_t i = 0; i < images; i++)
        to = frame_image(f, planes, x + i * x_image, to);
}

/* ---- passes: forward, or the gradient of a divided image ---- */

typedef struct conv_pass {
    const fgt_conv_kernel *k;
    frame f;
    uint32_t in, out;        /* channels */
    size_t w_in, w_out;      /* floats from the weights of a channel to those of the next */
    uint32_t H, W;           /* of the result: its pixel (y, x) is ... */
    uint32_t y0, x0, step;   /* ... pixel (y0 + y step, x0 + x step) of the output */
    uint32_t taps;           /* offsets of inputs, and their numbers in the kernel */
    size_t tap[TAPS_MAX];    /* bytes from the framed pixel (y, x) */
    uint32_t part[TAPS_MAX]; /* k * row + column */
} conv_pass;

/* The zeros before a row serve as those after the row before. */
static frame forward_frame(const fgt_conv *v) {
    frame f = {v->H, v->W, v->stride, v->pad, v->Y + (v->k - 1) / v->stride, 0};
    f.pitch = max((v->pad + v->W - 1) / v->stride + 1, v->X + (v->k - 1) / v->stride - min(v->pad / v->stride, v->X));
    f.pitch = max(f.pitch, v->X);
    return f;
}

static conv_pass forward_pass(const fgt_conv *v) {
    conv_pass p = {.k = v->direct, .f = forward_frame(v), .in = v->C, .out = v->O, .H = v->Y, .W = v->X, .step = 1};
    p.w_in = (size_t)v->k * v->k;
    p.w_out = v->C * p.w_in;
    for (uint32_t i = 0; i < v->k * v->k; i++) {
        uint32_t ky = i / v->k, kx = i % v->k;
        size_t part = (size_t)(ky % v->stride) * v->stride + kx % v->stride;
        p.tap[p.taps] = (part * frame_part(&p.f) + ky / v->stride * p.f.pitch + kx / v->stride) * sizeof(float);
        p.part[p.taps++] = i;
    }
    return p;
}

/* One side of the divided input gradient a: its pixel i is pixel stride (i + skip) + a of the padded input, and gets
 * that of output i + skip - m by tap stride m + a. */
typedef struct side {
    uint32_t first, count; /* its first pixel in the image, and how many it has */
    uint32_t skip, taps;
} side;

static side gradient_side(const fgt_conv *v, uint32_t length, uint32_t a) {
    side s = {.skip = a < v->pad ? (v->pad - a + v->stride - 1) / v->stride : 0};
    s.first = s.skip * v->stride + a - v->pad;
    s.count = s.first < length ? (length - s.first + v->stride - 1) / v->stride : 0;
    s.taps = a < v->k ? (v->k - a + v->stride - 1) / v->stride : 0;
    return s;
}

/* Rows of zeros above the output gradient, and columns before it. */
static frame gradient_frame(const fgt_conv *v) {
    frame f = {.H = v->Y, .W = v->X, .split = 1};
    for (uint32_t a = 0; a < v->stride; a++) {
        side s = gradient_side(v, v->H, a);
        f.pad = (uint32_t)max(f.pad, s.taps > s.skip ? s.taps - 1 - s.skip : 0);
    }
    f.pitch = f.pad + v->X;
    for (uint32_t a = 0; a < v->stride; a++) {
        side down = gradient_side(v, v->H, a), across = gradient_side(v, v->W, a);
        f.rows = max(f.rows, down.count + f.pad + down.skip);
        f.pitch = max(f.pitch, across.count + across.skip);
    }
    return f;
}

static conv_pass gradient_pass(const fgt_conv *v, uint32_t part) {
    uint32_t a = part / v->stride, b = part % v->stride;
    side down = gradient_side(v, v->H, a), across = gradient_side(v, v->W, b);
    conv_pass p = {.k = v->direct, .f = gradient_frame(v), .in = v->O, .out = v->C, .step = v->stride};
    p.w_out = (size_t)v->k * v->k;
    p.w_in = v->C * p.w_out;
    p.H = down.count;
    p.W = across.count;
    p.y0 = down.first;
    p.x0 = across.first;
    for (uint32_t i = 0; i < down.taps * across.taps; i++) {
        uint32_t m = i / across.taps, n = i % across.taps;
        p.tap[p.taps] = ((p.f.pad + down.skip - m) * p.f.pitch + p.f.pad + across.skip - n) * sizeof(float);
        p.part[p.taps++] = (a + v->stride * m) * v->k + b + v->stride * n;
    }
    return p;
}

/* ---- running a pass ---- */

/* Vectors of the result: parts of its rows, or of the framed plane. */
static bool vectors_are_in_rows(const conv_pass *p) {
    return p->step == 1 && p->W % p->k->lanes == 0;
}

static size_t vector_count(const conv_pass *p) {
    if (p->H == 0 || p->W == 0)
        return 0;
    return vectors_are_in_rows(p) ? (size_t)p->H * p->W / p->k->lanes
                                  : ceil_div((p->H - 1) * p->f.pitch + p->W, p->k->lanes);
}

/* Images that are framed together, and multiplied by the weights of one tile of channels after the other. */
static size_t images_per_group(const conv_pass *p) {
    bool far = (size_t)p->in * p->out * p->taps >= FAR_FLOATS;
    return max(1, (far ? FAR_FLOATS : NEAR_FLOATS) / (p->in * frame_plane(&p->f)));
}

static size_t pass_work(const conv_pass *p) {
    size_t framed = images_per_group(p) * p->in * frame_plane(&p->f) + TAIL;
    return framed + p->k->channels * vector_count(p) * p->k->lanes;
}

/* Copies results from a plane of rows of p->f.pitch into the output, an image `width` wide. */
static void copy_result(const conv_pass *p, const float *from, uint32_t width, float *y, bool add) {
    for (size_t row = 0; row < p->H; row++, from += p->f.pitch) {
        float *restrict to = y + (p->y0 + row * p->step) * width + p->x0;
        if (p->step == 1 && !add)
            memcpy(to, from, p->W * sizeof *to);
        else
            for (size_t i = 0; i < p->W; i++)
                to[i * p->step] = (add ? to[i * p->step] : 0.0f) + from[i];
    }
}

/* The images of one call: framed ones, and where their results go. */
typedef struct pass_images {
    size_t count;
    const float *framed, *packed;
    float *y;
    uint32_t height, width; /* of y */
    bool add;
    float *plane; /* work space: the results of one tile of channels where vectors are not in rows */
} pass_images;

/* Output channels from o, of one image. */
static void run_tile(const conv_pass *p, const pass_images *g, uint32_t o, size_t image) {
    bool in_rows = vectors_are_in_rows(p);
    size_t count = vector_count(p), per_row = p->W / p->k->lanes, y_plane = (size_t)g->height * g->width;
    float *y = g->y + (image * p->out + o) * y_plane;
    const float *x = g->framed + image * p->in * frame_plane(&p->f);
    fgt_conv_pixels s = {.in = p->in, .taps = p->taps, .plane = frame_plane(&p->f), .tap = p->tap};
    s.out = (uint32_t)min(p->out - o, p->k->channels);
    s.w = g->packed + (size_t)o * p->in * p->taps;
    s.add = in_rows && g->add;
    s.y_plane = in_rows ? y_plane : count * p->k->lanes;
    for (size_t q = 0; q < count; q += s.vectors) {
        size_t left = count - q; /* the last two tiles are equal, because small ones are slow */
        s.vectors =
            (uint32_t)(left < 2 * p->k->vectors && left > p->k->vectors ? (left + 1) / 2 : min(p->k->vectors, left));
        for (size_t j = 0; j < s.vectors; j++) {
            size_t row = in_rows ? (q + j) / per_row : 0, column = (q + j - row * per_row) * p->k->lanes;
            s.x[j] = x + row * p->f.pitch + column;
            s.y[j] = in_rows ? y + row * g->width + column : g->plane + column;
        }
        p->k->pixels(&s);
    }
    for (size_t i = 0; !in_rows && i < s.out; i++)
        copy_result(p, g->plane + i * s.y_plane, g->width, y + i * y_plane, g->add);
}

/* Weights are read once for all images. */
static void run_pass(const conv_pass *p, const pass_images *g) {
    for (uint32_t o = 0; o < p->out; o += p->k->channels)
        for (size_t i = 0; i < g->count; i++)
            run_tile(p, g, o, i);
}

/* ---- weights, as tiles of output channels: [out / channels][in][taps][channels] ---- */

static size_t packed_floats(const conv_pass *p) {
    return ceil_div(p->out, p->k->channels) * p->k->channels * p->in * p->taps;
}

static void pack_tile(const conv_pass *p, uint32_t o, const float *w, float *packed) {
    uint32_t channels = p->k->channels;
    for (uint32_t i = 0; i < p->in; i++)
        for (uint32_t t = 0; t < p->taps; t++)
            for (uint32_t c = o; c < o + channels; c++)
                *packed++ = c < p->out ? w[c * p->w_out + i * p->w_in + p->part[t]] : 0.0f;
}

static void pack_pass(const fgt_graph *g, const conv_pass *p, const float *w, float *packed) {
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (uint32_t o = 0; o < p->out; o += p->k->channels)
        pack_tile(p, o, w, packed + (size_t)o * p->in * p->taps);
}

void fgt_conv_direct_pack(fgt_graph *g, const fgt_conv *v, const float *w) {
    conv_pass p = forward_pass(v);
    pack_pass(g, &p, w, fgt_work_shared(g));
}

void fgt_conv_direct_pack_reversed(fgt_graph *g, const fgt_conv *v, const float *w) {
    float *packed = fgt_work_shared(g);
    for (uint32_t part = 0; part < v->stride * v->stride; part++) {
        conv_pass p = gradient_pass(v, part);
        pack_pass(g, &p, w, packed);
        packed += packed_floats(&p);
    }
}

size_t fgt_conv_direct_shared_work(const fgt_conv *v) {
    size_t kk = (size_t)v->k * v->k, channels = v->direct->channels;
    return kk * max(ceil_div(v->O, channels) * channels * v->C, ceil_div(v->C, channels) * channels * v->O);
}

/* ---- forward and the gradient of the input ---- */

const fgt_conv_kernel *fgt_conv_direct_kernel(const fgt_conv *v) {
    const fgt_conv_kernel *k = fgt_kernels_chosen()->conv;
    bool supported = v->k > 1 && v->k <= KERNEL_MAX && v->stride <= v->k && v->pad < v->k && v->Y > 0 && v->X > 0;
    return k && supported && (k->channels_max == 0 || max(v->C, v->O) <= k->channels_max) ? k : NULL;
}

/* All images, in groups. */
static void run_images(const conv_pass *p, size_t passes, size_t n, const float *x, pass_images g, float *work) {
    size_t most = images_per_group(p), each = (size_t)p->f.H * p->f.W * p->in;
    const float *packed = g.packed;
    g.framed = work;
    g.plane = work + most * p->in * frame_plane(&p->f) + TAIL;
    clear_frames(&p->f, p->in, min(most, n), work);
    for (size_t i = 0; i < n; i += g.count) {
        g.count = min(most, n - i);
        frame_images(&p->f, p->in, g.count, x + i * each, each, work);
        g.packed = packed;
        for (size_t k = 0; k < passes; k++) {
            run_pass(&p[k], &g);
            g.packed += packed_floats(&p[k]);
        }
        g.y += g.count * p->out * g.height * g.width;
    }
}

void fgt_conv_direct_forward(const fgt_conv *v, size_t n, const float *x, const float *packed, float *y, float *work) {
    conv_pass p = forward_pass(v);
    run_images(&p, 1, n, x, (pass_images){.packed = packed, .y = y, .height = v->Y, .width = v->X}, work);
}

void fgt_conv_direct_input_grad(const fgt_conv *v, size_t n, const float *dy, const float *packed, float *dx, bool add,
                                float *work) {
    conv_pass p[KERNEL_MAX * KERNEL_MAX];
    for (uint32_t part = 0; part < v->stride * v->stride; part++)
        p[part] = gradient_pass(v, part);
    pass_images g = {.packed = packed, .y = dx, .height = v->H, .width = v->W, .add = add};
    run_images(p, (size_t)v->stride * v->stride, n, dy, g, work);
}

/* ---- the gradient of the weights ---- */

static size_t images_per_block(const fgt_conv *v) {
    return ceil_div(PIXELS_MIN, (size_t)v->Y * v->X);
}

size_t fgt_conv_direct_work(const fgt_conv *v) {
    conv_pass p = forward_pass(v);
    size_t work = pass_work(&p), plane = vector_count(&p) * p.k->lanes;
    for (uint32_t part = 0; part < v->stride * v->stride; part++) {
        conv_pass q = gradient_pass(v, part);
        work = max(work, pass_work(&q));
    }
    return max(work, images_per_block(v) * (v->C * frame_plane(&p.f) + v->O * plane) + TAIL);
}

/* Output gradients with zeros between the rows, as the vectors of a pass have them. */
static void space_rows(const conv_pass *p, size_t planes, const float *dy, float *to) {
    size_t plane = vector_count(p) * p->k->lanes, pitch = p->f.pitch;
    for (size_t i = 0; i < planes; i++, to += plane) {
        memset(to, 0, plane * sizeof *to);
        for (size_t row = 0; row < p->H; row++, dy += p->W)
            memcpy(to + row * pitch, dy, p->W * sizeof *to);
    }
}

/* The sums of the k->rows output channels from o and the k->cols taps from tap t of channel c (both in the tile), over
 * a block of images; past the end: of the last ones again. */
static void sum_tile(const conv_pass *p, fgt_conv_weights *s, size_t dy_plane, fgt_conv_tile tile, size_t o, size_t c,
                     size_t t) {
    size_t rows = tile.o1 - tile.o0, channels = tile.c1 - tile.c0, plane = frame_plane(&p->f);
    for (size_t i = 0; i < p->k->rows; i++)
        s->row[i] = min(o + i, rows - 1) * dy_plane;
    for (size_t j = 0; j < p->k->cols; j++) {
        s->col[j] = c * plane + p->tap[t] / sizeof(float);
        if (t + 1 < p->taps)
            t++;
        else if (c + 1 < channels) {
            t = 0;
            c++;
        }
    }
    p->k->weights(s);
}

/* Adds the sums of channels c0 .. c1 - 1 of the tile over a block of images, or begins them. */
static void add_channels(const conv_pass *p, fgt_conv_weights *s, size_t dy_plane, fgt_conv_tile tile, size_t c0,
                         size_t c1, bool first) {
    size_t rows = tile.o1 - tile.o0, end = c1 * p->taps;
    for (size_t o = 0; o < rows; o += p->k->rows)
        for (size_t at = c0 * p->taps, c = c0, t = 0; at < end; at += p->k->cols) {
            sum_tile(p, s, dy_plane, tile, o, c, t);
            for (size_t i = 0; i < p->k->rows && o + i < rows; i++) {
                float *to = tile.dw + (o + i) * p->w_out + tile.c0 * p->w_in + at;
                for (size_t j = 0; j < min(p->k->cols, end - at); j++)
                    to[j] = (first ? 0.0f : to[j]) + s->sums[i][j];
            }
            for (t += p->k->cols; t >= p->taps; t -= p->taps)
                c++;
        }
}

void fgt_conv_direct_weight_grad(const fgt_conv *v, size_t n, const float *x, const float *dy, fgt_conv_tile tile,
                                 float *work) {
    conv_pass p = forward_pass(v);
    bool in_rows = vectors_are_in_rows(&p);
    size_t ins = tile.c1 - tile.c0, outs = tile.o1 - tile.o0, most = images_per_block(v);
    size_t pixels = (size_t)v->Y * v->X, dy_plane = in_rows ? pixels : vector_count(&p) * p.k->lanes;
    fgt_conv_weights s = {.height = in_rows ? v->Y : 1, .width = in_rows ? v->X : dy_plane};
    s.x_image = ins * frame_plane(&p.f);
    s.x_pitch = p.f.pitch;
    s.dy_image = in_rows ? v->O * pixels : outs * dy_plane;
    s.dy_pitch = v->X;
    float *spaced = work + most * s.x_image + TAIL;
    size_t step = max(2, NEAR_FLOATS / (most * frame_plane(&p.f)) / 2 * 2); /* channels */
    clear_frames(&p.f, ins, most, work);
    for (size_t i = 0; i < n; i += s.images) {
        const float *grad = dy + (i * v->O + tile.o0) * pixels;
        s.images = min(most, n - i);
        frame_images(&p.f, ins, s.images, x + (i * v->C + tile.c0) * v->H * v->W, (size_t)v->C * v->H * v->W, work);
        for (size_t j = 0; !in_rows && j < s.images; j++)
            space_rows(&p, outs, grad + j * v->O * pixels, spaced + j * s.dy_image);
        s.x = work;
        s.dy = in_rows ? grad : spaced;
        for (size_t c = 0; c < ins; c += step)
            add_channels(&p, &s, dy_plane, tile, c, min(c + step, ins), i == 0);
    }
}

/*
 * conv_direct.c - convolution without im2col: writing columns and packing them for BLAS would cost as much as the
 * product where images have few channels.
 *
 * An image is copied once with zeros around (framed). An input pixel of an output pixel is then at a constant offset, a
 * tap, for all output pixels, and the kernels (kernels.h) sum over channels and taps in registers. With a stride,
 * the framed image is divided into stride x stride images of every stride-th pixel, so that neighbors in the output
 * have neighbors in memory as their inputs. The gradient of the input is one such pass over the framed output gradient
 * for each of these images, by the taps that reach it. The gradient of the weights is in conv_weight_grad.c.
 *
 * Vectors are parts of rows where the width is a multiple of their length. Otherwise they run over the whole framed
 * plane, and what they compute between the rows is dropped; the zeros after a row are also those before the next, so
 * that is one column of 9 for images of 8 x 8. No sum depends on the number of images or channels of a call.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/parallel_ranges.h"

#include <string.h>

enum {
    KERNEL_MAX = 7,
    TAPS_MAX = KERNEL_MAX * KERNEL_MAX,
    TAIL = 64,             /* floats after a framed image, because vectors and taps reach past its end */
    NEAR_FLOATS = 1 << 16, /* framed images or channels that are used several times in turn, if one fits: 256 KiB */
    LANES_MAX = 16,
    FAR_FLOATS = 1 << 18 /* so too, where the weights do not fit into the L2 cache, and at least so many weights */
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
        s.vectors = fgt_conv_tile_vectors(p->k, count - q);
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

size_t fgt_conv_direct_shared_work(const fgt_conv *v) {
    size_t kk = (size_t)v->k * v->k, channels = v->direct->channels;
    size_t packed = kk * max(ceil_div(v->O, channels) * channels * v->C, ceil_div(v->C, channels) * channels * v->O);
    return max(packed, fgt_conv_direct_weight_shared_work(v));
}

/* ---- images in lanes ---- */

static size_t lane_frame_floats(const conv_pass *p) {
    return (p->in * frame_plane(&p->f) + TAIL) * p->k->lanes;
}

/* Whether to use them: where vectors of pixels would have many lanes that are dropped. */
static bool fits_lanes(const conv_pass *p) {
    size_t pixels = (size_t)p->H * p->W, lanes = vector_count(p) * p->k->lanes;
    return p->step == 1 && 8 * lanes > 9 * pixels && lane_frame_floats(p) <= p->k->frame_max;
}

static size_t lane_work(const conv_pass *p) {
    size_t table = (size_t)p->f.H * p->f.W * sizeof(size_t) / sizeof(float);
    return lane_frame_floats(p) + (size_t)p->k->channels * p->H * p->W * p->k->lanes + table;
}

/* Of each pixel of the image: its position in a framed plane. */
static void list_positions(const frame *f, size_t *position) {
    for (size_t i = 0; i < (size_t)f->H * f->W; i++) {
        size_t y = i / f->W + f->pad, x = i % f->W + f->pad, part = y % f->split * f->split + x % f->split;
        position[i] = part * frame_part(f) + y / f->split * f->pitch + x / f->split;
    }
}

/* Frames as many images as a vector has lanes: every pixel is a vector. */
static void frame_lanes(const conv_pass *p, const size_t *position, const float *x, float *framed) {
    size_t lanes = p->k->lanes, plane = (size_t)p->f.H * p->f.W, image = p->in * plane, q = 0;
    for (size_t c = 0; c < p->in; c++, x += plane, framed += frame_plane(&p->f) * lanes) {
        for (q = 0; q + lanes <= plane; q += lanes) {
            float *to[LANES_MAX];
            for (size_t i = 0; i < lanes; i++)
                to[i] = framed + position[q + i] * lanes;
            p->k->transpose(x + q, image, to);
        }
        for (; q < plane; q++)
            for (size_t i = 0; i < lanes; i++)
                framed[position[q] * lanes + i] = x[i * image + q];
    }
}

/* Copies a plane of vectors to the planes of the images, y and so on. */
static void copy_lanes(const conv_pass *p, const float *from, float *y, bool add) {
    size_t lanes = p->k->lanes, plane = (size_t)p->H * p->W, image = p->out * plane, q = 0;
    for (; q + lanes <= plane; q += lanes) {
        float sums[LANES_MAX * LANES_MAX], *to[LANES_MAX];
        for (size_t i = 0; i < lanes; i++)
            to[i] = add ? sums + i * lanes : y + i * image + q;
        p->k->transpose(from + q * lanes, lanes, to);
        for (size_t i = 0; add && i < lanes; i++)
            for (size_t j = 0; j < lanes; j++)
                y[i * image + q + j] += sums[i * lanes + j];
    }
    for (; q < plane; q++)
        for (size_t i = 0; i < lanes; i++)
            y[i * image + q] = (add ? y[i * image + q] : 0.0f) + from[q * lanes + i];
}

/* Output channels from o of the images in the lanes. */
static void run_lane_tile(const conv_pass *p, const pass_images *g, uint32_t o, float *y) {
    size_t lanes = p->k->lanes, count = (size_t)p->H * p->W;
    size_t taps[TAPS_MAX];
    for (uint32_t i = 0; i < p->taps; i++)
        taps[i] = p->tap[i] * lanes;
    fgt_conv_pixels s = {.in = p->in, .taps = p->taps, .plane = frame_plane(&p->f) * lanes, .tap = taps};
    s.out = (uint32_t)min(p->out - o, p->k->channels);
    s.w = g->packed + (size_t)o * p->in * p->taps;
    s.y_plane = count * lanes;
    for (size_t q = 0; q < count; q += s.vectors) {
        s.vectors = fgt_conv_tile_vectors(p->k, count - q);
        for (size_t j = 0; j < s.vectors; j++) {
            s.x[j] = g->framed + ((q + j) / p->W * p->f.pitch + (q + j) % p->W) * lanes;
            s.y[j] = g->plane + (q + j) * lanes;
        }
        p->k->pixels(&s);
    }
    for (size_t i = 0; i < s.out; i++)
        copy_lanes(p, g->plane + i * s.y_plane, y + (o + i) * count, g->add);
}

/* The share of thread t: groups of images, or tiles of output channels where the groups cannot be divided evenly. */
static void run_lanes(const conv_pass *p, size_t groups, const float *x, pass_images g, int t, int threads,
                      float *work) {
    bool by_groups = groups % (size_t)threads == 0;
    size_t tiles = ceil_div(p->out, p->k->channels), lanes = p->k->lanes;
    size_t from = by_groups ? fgt_range_begin(groups, t, threads) : 0;
    size_t to = by_groups ? fgt_range_begin(groups, t + 1, threads) : groups;
    size_t first = by_groups ? 0 : fgt_range_begin(tiles, t, threads);
    size_t end = by_groups ? tiles : fgt_range_begin(tiles, t + 1, threads);
    size_t *position = (size_t *)(void *)(work + lane_frame_floats(p) + p->k->channels * p->H * p->W * lanes);
    g.framed = work;
    g.plane = work + lane_frame_floats(p);
    list_positions(&p->f, position);
    memset(work, 0, lane_frame_floats(p) * sizeof *work);
    for (size_t i = from; i < to && first < end; i++) {
        frame_lanes(p, position, x + i * lanes * p->f.H * p->f.W * p->in, work);
        for (size_t tile = first; tile < end; tile++)
            run_lane_tile(p, &g, (uint32_t)(tile * p->k->channels), g.y + i * lanes * p->out * p->H * p->W);
    }
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

/* Divides the images among threads, after those that are in lanes. */
static void run_all(fgt_graph *g, const conv_pass *p, size_t passes, const float *x, const float *w, pass_images to) {
    size_t groups = fits_lanes(p) ? g->n / p->k->lanes : 0, done = groups * p->k->lanes, left = g->n - done;
    size_t x_image = (size_t)p->f.H * p->f.W * p->in, y_image = (size_t)to.height * to.width * p->out;
    float *packed = fgt_work_shared(g);
    to.packed = packed;
    for (size_t k = 0; k < passes; k++) {
        pack_pass(g, &p[k], w, packed);
        packed += packed_floats(&p[k]);
    }
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        size_t first = done + fgt_range_begin(left, t, g->threads),
               end = done + fgt_range_begin(left, t + 1, g->threads);
        pass_images part = to;
        if (groups)
            run_lanes(p, groups, x, to, t, g->threads, fgt_work(g, t));
        part.y += first * y_image;
        if (first < end)
            run_images(p, passes, end - first, x + first * x_image, part, fgt_work(g, t));
    }
}

static void forward(fgt_graph *g, const fgt_conv *v, const float *x, const float *w, float *y) {
    conv_pass p = forward_pass(v);
    run_all(g, &p, 1, x, w, (pass_images){.y = y, .height = v->Y, .width = v->X});
}

static void input_grad(fgt_graph *g, const fgt_conv *v, const float *dy, const float *w, float *dx, bool add) {
    conv_pass p[KERNEL_MAX * KERNEL_MAX];
    for (uint32_t part = 0; part < v->stride * v->stride; part++)
        p[part] = gradient_pass(v, part);
    run_all(g, p, (size_t)v->stride * v->stride, dy, w,
            (pass_images){.y = dx, .height = v->H, .width = v->W, .add = add});
}

const fgt_conv_passes fgt_conv_direct = {forward, input_grad, fgt_conv_direct_weight_grad};

/* ---- work space ---- */

size_t fgt_conv_direct_work(const fgt_conv *v) {
    conv_pass p = forward_pass(v);
    size_t work = max(fgt_conv_direct_weight_work(v), max(pass_work(&p), fits_lanes(&p) ? lane_work(&p) : 0));
    for (uint32_t part = 0; part < v->stride * v->stride; part++) {
        conv_pass q = gradient_pass(v, part);
        work = max(work, max(pass_work(&q), fits_lanes(&q) ? lane_work(&q) : 0));
    }
    return work;
}

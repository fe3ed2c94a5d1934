/*
 * conv_direct.c - 3 x 3 convolution of stride 1 and padding 1 without im2col, for images with few channels, where
 * writing columns and packing them for BLAS would cost as much as the product.
 *
 * An image is copied once into a zero-padded buffer (framed). Forward then computes 4 output channels x 4 vectors of 4
 * pixels at a time in registers: a step loads 4 vectors of the framed image, shifted by one of the 9 taps, and 4
 * weights. The gradient of the input is the same with the kernel rotated by 180 degrees. The gradient of the weights
 * sums 4 output channels x 2 input channels x 3 taps over the pixels of some images, again in registers. Rows whose
 * width is no multiple of 4 end with a vector that overlaps the one before (forward) or with zeros (weights).
 *
 * This file is compiled with fused multiply-add allowed; the bits of a training step are not guaranteed to be the same
 * on all machines.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/fastmath.h"

#include <string.h>

typedef fgt_f4 vec4;

/* A vec4 without alignment: where memcpy() fills a vector whose lanes are used, gcc splits it into scalars. */
typedef float unaligned_vec4 __attribute__((vector_size(16), aligned(4), may_alias));

enum {
    LANES = 4,
    VECTORS = 4,
    TAPS = 9,
    PIXELS_MIN = 1024
}; /* PIXELS_MIN: minimum of pixels over which a sum stays in registers */

static size_t round_up4(size_t n) {
    return (n + 3) / 4 * 4;
}

/* A framed image has rows of `pitch` floats: a zero, the row, zeros. */
static size_t pitch_of(const fgt_conv *v) {
    return round_up4(v->W) + 2;
}

static size_t plane_of(const fgt_conv *v) {
    return ((size_t)v->H + 2) * pitch_of(v) + 2;
}

static size_t images_per_block(const fgt_conv *v) {
    size_t pixels = (size_t)v->H * v->W;
    return pixels >= PIXELS_MIN ? 1 : (PIXELS_MIN + pixels - 1) / pixels;
}

bool fgt_conv_direct_supported(const fgt_conv *v) {
#if defined(__aarch64__)
    return v->k == 3 && v->stride == 1 && v->pad == 1 && v->W >= LANES && v->C <= 128 && v->O <= 128;
#else
    (void)v; /* baseline x86-64 has too few and too short vectors: BLAS, which dispatches at run time, is faster */
    return false;
#endif
}

size_t fgt_conv_direct_work(const fgt_conv *v) {
    size_t wide = v->C > v->O ? v->C : v->O, frame = round_up4(wide) * plane_of(v);
    size_t one = frame + round_up4(v->C) * round_up4(v->O) * TAPS + round_up4(wide) * v->H * v->W;
    size_t weights = images_per_block(v) * (round_up4(v->C) * plane_of(v) + round_up4(v->O) * v->H * round_up4(v->W));
    return one > weights ? one : weights;
}

static void frame_image(const fgt_conv *v, uint32_t channels, const float *x, float *framed) {
    size_t pitch = pitch_of(v), plane = plane_of(v);
    for (uint32_t c = 0; c < channels; c++, framed += plane) {
        float *to = framed + pitch;
        memset(framed, 0, pitch * sizeof *framed);
        for (uint32_t y = 0; y < v->H; y++, to += pitch, x += v->W) {
            to[0] = 0.0f;
            memcpy(to + 1, x, v->W * sizeof *x);
            memset(to + 1 + v->W, 0, (pitch - 1 - v->W) * sizeof *to);
        }
        memset(to, 0, (plane - (size_t)(to - framed)) * sizeof *to);
    }
}

/* ---- forward and the gradient of the input ---- */

/* Forward or input gradient: `in` channels of a framed image to `out` channels. Weights are packed as vectors of 4
 * output channels: [out / 4][in][9][4]. */
typedef struct conv_pass {
    const fgt_conv *v;
    uint32_t in, out;
    const float *framed, *packed;
    float *y;
} conv_pass;

/* Offset of the q-th vector of pixels in the plain and in the framed image. */
static void vector_offset(const fgt_conv *v, size_t q, size_t *plain, size_t *framed) {
    size_t per_row = round_up4(v->W) / LANES, last = per_row * v->H - 1;
    q = q < last ? q : last;
    size_t y = q / per_row, x = q % per_row * LANES;
    x = x + LANES <= v->W ? x : v->W - LANES;
    *plain = y * v->W + x;
    *framed = y * pitch_of(v) + x;
}

/* All products of one vector together: in the other order gcc moves registers and loses a quarter of the speed. */
static inline void add_tap(vec4 acc[4][VECTORS], const float *const x[VECTORS], size_t at, const float *w) {
    vec4 weights = *(const unaligned_vec4 *)w;
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; j++) {
        vec4 a = fgt_f4_load(x[j] + at);
        acc[0][j] += a * weights[0];
        acc[1][j] += a * weights[1];
        acc[2][j] += a * weights[2];
        acc[3][j] += a * weights[3];
    }
}

/* Output channels o .. o + 3 of VECTORS vectors of pixels. */
static void forward_tile(const conv_pass *s, uint32_t o, const size_t plain[VECTORS], const size_t framed[VECTORS]) {
    size_t pitch = pitch_of(s->v), plane = plane_of(s->v), pixels = (size_t)s->v->H * s->v->W;
    const float *w = s->packed + (size_t)o * s->in * TAPS;
    const float *x[VECTORS];
    for (int j = 0; j < VECTORS; j++)
        x[j] = s->framed + framed[j];
    vec4 acc[4][VECTORS] = {{{0}}};
    for (uint32_t c = 0; c < s->in; c++) {
        size_t at = c * plane;
        for (int ky = 0; ky < 3; ky++, at += pitch, w += 3 * LANES) {
            add_tap(acc, x, at, w);
            add_tap(acc, x, at + 1, w + LANES);
            add_tap(acc, x, at + 2, w + 2 * LANES);
        }
    }
    uint32_t channels = s->out - o < 4 ? s->out - o : 4;
    for (uint32_t i = 0; i < channels; i++)
        for (int j = 0; j < VECTORS; j++)
            fgt_f4_store(s->y + (o + i) * pixels + plain[j], acc[i][j]);
}

/* The inner loop runs over the framed image or the weights, whichever is smaller. */
static void forward_image(const conv_pass *s) {
    const fgt_conv *v = s->v;
    size_t quads = round_up4(v->W) / LANES * v->H, weights = (size_t)s->in * round_up4(s->out) * TAPS;
    bool weights_inside = weights < s->in * plane_of(v);
    size_t outer = weights_inside ? 1 : round_up4(s->out) / LANES;
    for (size_t i = 0; i < outer; i++)
        for (size_t q = 0; q < quads; q += VECTORS) {
            size_t plain[VECTORS], framed[VECTORS];
            for (size_t j = 0; j < VECTORS; j++)
                vector_offset(v, q + j, &plain[j], &framed[j]);
            if (!weights_inside)
                forward_tile(s, (uint32_t)i * LANES, plain, framed);
            for (uint32_t o = 0; weights_inside && o < s->out; o += LANES)
                forward_tile(s, o, plain, framed);
        }
}

/* Packs the weight (O, C, 3, 3); rotated: as the kernel of the input gradient. */
static void pack_weights(const fgt_conv *v, const float *w, bool rotated, float *packed) {
    uint32_t in = rotated ? v->O : v->C, out = rotated ? v->C : v->O;
    for (uint32_t o = 0; o < round_up4(out); o++)
        for (uint32_t i = 0; i < in; i++)
            for (uint32_t t = 0; t < TAPS; t++) {
                size_t from =
                    rotated ? ((size_t)i * v->C + o) * TAPS + (TAPS - 1 - t) : ((size_t)o * in + i) * TAPS + t;
                packed[((size_t)(o / LANES) * in + i) * TAPS * LANES + t * LANES + o % LANES] =
                    o < out ? w[from] : 0.0f;
            }
}

void fgt_conv_direct_forward(const fgt_conv *v, size_t n, const float *x, const float *w, float *y, float *work) {
    float *packed = work, *framed = work + round_up4(v->C) * round_up4(v->O) * TAPS;
    size_t pixels = (size_t)v->H * v->W;
    pack_weights(v, w, false, packed);
    for (size_t i = 0; i < n; i++) {
        frame_image(v, v->C, x + i * v->C * pixels, framed);
        forward_image(&(conv_pass){v, v->C, v->O, framed, packed, y + i * v->O * pixels});
    }
}

void fgt_conv_direct_input_grad(const fgt_conv *v, size_t n, const float *dy, const float *w, float *dx, bool add,
                                float *work) {
    float *packed = work, *framed = work + round_up4(v->C) * round_up4(v->O) * TAPS;
    float *image = framed + round_up4(v->O) * plane_of(v);
    size_t each = (size_t)v->C * v->H * v->W;
    pack_weights(v, w, true, packed);
    for (size_t i = 0; i < n; i++, dx += each) {
        frame_image(v, v->O, dy + i * v->O * v->H * v->W, framed);
        forward_image(&(conv_pass){v, v->O, v->C, framed, packed, add ? image : dx});
        for (size_t j = 0; add && j < each; j++)
            dx[j] += image[j];
    }
}

/* ---- the gradient of the weights ---- */

/* Some images: framed inputs, and output gradients in rows of whole vectors. */
typedef struct image_block {
    const fgt_conv *v;
    size_t images;
    const float *x, *dy;
    size_t x_each, dy_each; /* floats of one image */
} image_block;

/* One vector of pixels for 4 output channels, 2 input channels (a plane apart) and 3 taps. */
static inline void add_pixels(vec4 acc[4][6], const float *dy, size_t area, const float *x, size_t plane) {
    vec4 y[4] = {fgt_f4_load(dy), fgt_f4_load(dy + area), fgt_f4_load(dy + 2 * area), fgt_f4_load(dy + 3 * area)};
#pragma GCC unroll 6
    for (size_t j = 0; j < 6; j++) {
        vec4 tap = fgt_f4_load(x + j / 3 * plane + j % 3);
        acc[0][j] += y[0] * tap;
        acc[1][j] += y[1] * tap;
        acc[2][j] += y[2] * tap;
        acc[3][j] += y[3] * tap;
    }
}

/* Sums for output channels o .. o + 3 and input channels c, c + 1 (both relative to the tile), kernel row ky. */
static void weight_tile(const image_block *b, size_t o, size_t c, size_t ky, float sums[4][6]) {
    size_t pitch = pitch_of(b->v), plane = plane_of(b->v), width = round_up4(b->v->W), area = width * b->v->H;
    vec4 acc[4][6] = {{{0}}};
    for (size_t i = 0; i < b->images; i++) {
        const float *x = b->x + i * b->x_each + c * plane + ky * pitch, *y = b->dy + i * b->dy_each + o * area;
        const float *end = y + area;
        for (; y < end; x += pitch - width)
            for (const float *row = y + width; y < row; y += LANES, x += LANES)
                add_pixels(acc, y, area, x, plane);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 6; j++)
            sums[i][j] = fgt_f4_sum(acc[i][j]);
}

static void weight_block(const image_block *b, fgt_conv_tile tile, bool first) {
    size_t outs = tile.o1 - tile.o0, ins = tile.c1 - tile.c0, cols = (size_t)b->v->C * TAPS;
    float sums[4][6];
    for (size_t c = 0; c < ins; c += 2)
        for (size_t o = 0; o < outs; o += LANES)
            for (size_t ky = 0; ky < 3; ky++) {
                weight_tile(b, o, c, ky, sums);
                for (size_t i = 0; i < 4 && o + i < outs; i++)
                    for (size_t j = 0; j < 6 && c + j / 3 < ins; j++) {
                        float *to = tile.dw + (o + i) * cols + (tile.c0 + c + j / 3) * TAPS + ky * 3 + j % 3;
                        *to = (first ? 0.0f : *to) + sums[i][j];
                    }
            }
}

/* Output gradients of some channels in rows of whole vectors, zero-padded to a multiple of 4 channels. */
static void pad_rows(const fgt_conv *v, size_t channels, const float *dy, float *to) {
    size_t width = round_up4(v->W), rows = channels * v->H;
    for (size_t i = 0; i < rows; i++, to += width, dy += v->W) {
        memcpy(to, dy, v->W * sizeof *dy);
        memset(to + v->W, 0, (width - v->W) * sizeof *to);
    }
    memset(to, 0, (round_up4(channels) - channels) * v->H * width * sizeof *to);
}

void fgt_conv_direct_weight_grad(const fgt_conv *v, size_t n, const float *x, const float *dy, fgt_conv_tile tile,
                                 float *work) {
    size_t ins = tile.c1 - tile.c0, outs = tile.o1 - tile.o0, pixels = (size_t)v->H * v->W, most = images_per_block(v);
    size_t x_each = (ins + ins % 2) * plane_of(v), dy_each = round_up4(outs) * round_up4(v->W) * v->H;
    float *framed = work, *wide = work + most * x_each;
    for (size_t i = 0; i < n; i += most) {
        size_t images = n - i < most ? n - i : most;
        for (size_t j = 0; j < images; j++) {
            frame_image(v, (uint32_t)ins, x + ((i + j) * v->C + tile.c0) * pixels, framed + j * x_each);
            memset(framed + j * x_each + ins * plane_of(v), 0, (ins % 2) * plane_of(v) * sizeof *framed);
            pad_rows(v, outs, dy + ((i + j) * v->O + tile.o0) * pixels, wide + j * dy_each);
        }
        weight_block(&(image_block){v, images, framed, wide, x_each, dy_each}, tile, i == 0);
    }
}

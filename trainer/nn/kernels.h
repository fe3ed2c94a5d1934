/*
 * kernels.h - innermost loops of operations on images and of softmax, one table for each variant of the instruction
 * set. Their sums round differently from variant to variant.
 *
 * kernels_VARIANT.c instantiates conv_tiles.h, norm_planes.h and fastmath.h with the vectors of the variant.
 */
#ifndef FGT_KERNELS_H
#define FGT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- direct convolution ----
 * An image is in memory as planes with zeros around (framed). A tap is the offset in bytes of an input pixel from the
 * pixel of the framed plane that belongs to an output pixel, so strides, padding and kernel sizes are all in the
 * offsets. */

enum {
    FGT_CONV_VECTORS_MAX = 6 /* of a tile of pixels */
};

/** Some vectors of pixels of some output channels: y[j][o * y_plane] = sum over c, t of w[c][t][o] * x[j][c * plane +
 * tap[t]]. */
typedef struct fgt_conv_pixels {
    uint32_t in, taps;     /* input channels; taps of each */
    uint32_t out, vectors; /* output channels and vectors to be stored, at most those of the kernel */
    size_t plane, y_plane; /* floats of a channel */
    const size_t *tap;
    const float *w; /* in x taps x channels of the kernel */
    bool add;       /* to y */
    const float *x[FGT_CONV_VECTORS_MAX];
    float *y[FGT_CONV_VECTORS_MAX];
} fgt_conv_pixels;

typedef struct fgt_conv_kernel {
    uint32_t lanes;             /* floats of a vector */
    uint32_t channels, vectors; /* of a tile of pixels */
    uint32_t channels_max;      /* with more channels BLAS is faster; 0: never */
    uint32_t frame_max;         /* maximum of floats of framed images in lanes, which are read again and again */
    void (*pixels)(const fgt_conv_pixels *tile);
    /** One vector of each of `channels` planes, of which there are `rows`, as [lane][plane]. */
    void (*pack)(const float *from, size_t plane, size_t rows, float *to);
    /** One vector of each of `lanes` planes: lane i of all of them to to[i]. */
    void (*transpose)(const float *from, size_t plane, float *const *to);
} fgt_conv_kernel;

/** Vectors of the next tile of pixels where `left` are left: the last two tiles are equal, because small ones are slow.
 */
static inline uint32_t fgt_conv_tile_vectors(const fgt_conv_kernel *k, size_t left) {
    return left >= 2 * k->vectors ? k->vectors : (uint32_t)(left > k->vectors ? (left + 1) / 2 : left);
}

/* ---- batch norm ---- */

/** What follows batch norm in the same pass: nothing, ReLU, or the sum with another value and ReLU. */
typedef enum fgt_norm_end { FGT_NORM_ONLY, FGT_NORM_RELU, FGT_NORM_ADD_RELU } fgt_norm_end;

/** A plane: n pixels of one channel of one image. y = (x - mean) scale + bias, then `end`. */
typedef struct fgt_norm_plane {
    fgt_norm_end end;
    size_t n;
    float mean, scale, bias;
    const float *x, *other; /* other: the value that is added */
    float *y;
} fgt_norm_plane;

/** Its gradients. g is dy where the result is positive, 0 elsewhere; dy without ReLU. */
typedef struct fgt_norm_grads {
    const float *dy;
    float factor, slope, shift; /* dx = factor g + slope (x - mean) + shift */
    float *dx, *d_other;        /* d_other = g; NULL: not needed */
    bool dx_add, d_other_add;   /* add to their contents */
} fgt_norm_grads;

typedef struct fgt_norm_kernel {
    /** Sums of x - p->mean and of its square. */
    void (*sums)(const fgt_norm_plane *p, double sum[2]);
    void (*apply)(const fgt_norm_plane *p);
    /** Sums of g and g (x - mean). */
    void (*grad_sums)(const fgt_norm_plane *p, const fgt_norm_grads *d, double sum[2]);
    void (*grads)(const fgt_norm_plane *p, const fgt_norm_grads *d);
} fgt_norm_kernel;

/* ---- softmax ---- */

typedef struct fgt_row_kernel {
    /** The largest of n >= 1 numbers. */
    float (*max)(const float *x, size_t n);
    /** y[i] = exp(x[i] - shift) for n numbers; returns their sum. x and y may be the same. */
    float (*exp_sum)(float *y, const float *x, size_t n, float shift);
} fgt_row_kernel;

/* ---- the table ---- */

typedef struct fgt_kernels {
    const fgt_conv_kernel *conv; /* NULL: BLAS is faster */
    bool gemm;                   /* matrix products by the kernel of conv (gemm_packed.c), not by BLAS */
    fgt_norm_kernel norm;
    fgt_row_kernel row;
} fgt_kernels;

extern const fgt_kernels fgt_kernels_ref, fgt_kernels_neon, fgt_kernels_avx2, fgt_kernels_avx512;

/** Those of the variant in use (frugi_isa_chosen). */
const fgt_kernels *fgt_kernels_chosen(void);

#endif

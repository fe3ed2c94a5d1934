/*
 * conv.h - shared by the implementations of convolution: sizes, and the tile of the weight gradient that a call
 * computes.
 */
#ifndef FGT_CONV_H
#define FGT_CONV_H

#include "trainer/nn/graph.h"
#include "trainer/nn/kernels.h"

typedef struct fgt_conv {
    uint32_t C, H, W; /* in */
    uint32_t O, Y, X; /* out */
    uint32_t k, stride, pad;
    const fgt_conv_kernel *direct; /* of conv_direct.c; NULL: matrix products of conv_gemm.c */
    uint32_t group, rows; /* conv_gemm.c: one matrix product covers `rows` rows of an image, or `group` whole images */
} fgt_conv;

/** A tile of the weight gradient: output channels o0 .. o1 - 1; dw points to the first. */
typedef struct fgt_conv_tile {
    uint32_t o0, o1;
    float *dw;
} fgt_conv_tile;

/* Each call processes n samples with its own work space, of as many floats as its _work function returns. dx is added
 * to or overwritten; the gradient of the weights is overwritten. */

/* conv_gemm.c: matrix products by BLAS, whose rounding depends on their sizes. So a batch of n samples is cut into
 * fgt_conv_gemm_groups(v, n) groups whatever the number of threads, and a call processes one group. */
void fgt_conv_gemm_plan(fgt_conv *v);
size_t fgt_conv_gemm_work(const fgt_conv *v);
size_t fgt_conv_gemm_groups(const fgt_conv *v, size_t n);
void fgt_conv_gemm_forward(const fgt_conv *v, size_t n, const float *x, const float *w, float *y, float *work);
void fgt_conv_gemm_input_grad(const fgt_conv *v, size_t n, const float *dy, const float *w, float *dx, bool add,
                              float *work);

/** The gradient of the weights of output channels o0 .. o1 - 1, for the whole batch, by all threads of the graph. */
void fgt_conv_gemm_weight_grad(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile);
size_t fgt_conv_gemm_shared_work(const fgt_conv *v);

/* conv_direct.c: no sum depends on how many samples or channels a call processes, so threads get equal ranges. */

/** The kernels of this machine; NULL if there are none, or if they do not support this convolution. */
const fgt_conv_kernel *fgt_conv_direct_kernel(const fgt_conv *v);
size_t fgt_conv_direct_work(const fgt_conv *v);
size_t fgt_conv_direct_shared_work(const fgt_conv *v);

/* Whole batches, by all threads of the graph. */
void fgt_conv_direct_forward(fgt_graph *g, const fgt_conv *v, const float *x, const float *w, float *y);
void fgt_conv_direct_input_grad(fgt_graph *g, const fgt_conv *v, const float *dy, const float *w, float *dx, bool add);

/* conv_weight_grad.c: the gradient of the weights of direct convolutions, as fgt_conv_gemm_weight_grad(). */
void fgt_conv_direct_weight_grad(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile);
size_t fgt_conv_direct_weight_work(const fgt_conv *v);
size_t fgt_conv_direct_weight_shared_work(const fgt_conv *v);

#endif

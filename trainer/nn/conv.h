/*
 * conv.h - shared by the implementations of convolution: sizes, and the passes that an implementation has. The work
 * space of a pass has as many floats as the _work function of its implementation returns.
 */
#ifndef FGT_CONV_H
#define FGT_CONV_H

#include "trainer/nn/graph.h"
#include "trainer/nn/kernels.h"

/** A tile of the weight gradient: output channels o0 .. o1 - 1; dw points to the first. */
typedef struct fgt_conv_tile {
    uint32_t o0, o1;
    float *dw;
} fgt_conv_tile;

typedef struct fgt_conv fgt_conv;

/** The passes over a whole batch, by all threads of the graph. dx is added to or overwritten; the gradient of the
 * weights is overwritten. */
typedef struct fgt_conv_passes {
    void (*forward)(fgt_graph *g, const fgt_conv *v, const float *x, const float *w, float *y);
    void (*input_grad)(fgt_graph *g, const fgt_conv *v, const float *dy, const float *w, float *dx, bool add);
    void (*weight_grad)(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile);
} fgt_conv_passes;

struct fgt_conv {
    uint32_t C, H, W; /* in */
    uint32_t O, Y, X; /* out */
    uint32_t k, stride, pad;
    fgt_conv_passes run;
    const fgt_conv_kernel *direct; /* of conv_direct.c; NULL: matrix products of conv_gemm.c */
    uint32_t group, rows; /* conv_gemm.c: one matrix product covers `rows` rows of an image, or `group` whole images */
    struct fgt_conv_onednn *onednn; /* of conv_onednn.c; NULL: not used */
};

/* conv_gemm.c: matrix products by BLAS, whose rounding depends on their sizes. So a batch is cut into groups whatever
 * the number of threads. */
void fgt_conv_gemm_plan(fgt_conv *v);
size_t fgt_conv_gemm_work(const fgt_conv *v);
size_t fgt_conv_gemm_shared_work(const fgt_conv *v);
extern const fgt_conv_passes fgt_conv_gemm;

/* conv_direct.c: no sum depends on how many samples or channels a call processes, so threads get equal ranges. */

/** The kernels of this machine; NULL if there are none, or if they do not support this convolution. */
const fgt_conv_kernel *fgt_conv_direct_kernel(const fgt_conv *v);
size_t fgt_conv_direct_work(const fgt_conv *v);
size_t fgt_conv_direct_shared_work(const fgt_conv *v);

extern const fgt_conv_passes fgt_conv_direct;

/* conv_weight_grad.c: the gradient of the weights of direct convolutions. */
void fgt_conv_direct_weight_grad(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile);
size_t fgt_conv_direct_weight_work(const fgt_conv *v);
size_t fgt_conv_direct_weight_shared_work(const fgt_conv *v);

/* conv_onednn.c, where there is oneDNN. */

#if defined(FGT_HAVE_ONEDNN)
/** Replaces the passes in which oneDNN is faster, and reserves their work space. */
void fgt_conv_onednn_plan(fgt_graph *g, fgt_conv *v);
void fgt_conv_onednn_destroy(struct fgt_conv_onednn *d);
#endif

#endif

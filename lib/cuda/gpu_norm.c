/*
 * gpu_norm.c - the norm of a gradient range on the device: for those who ask, and for clip, where the factor that it
 * makes goes straight to the kernels that read the gradient, so that the host need not wait for it.
 */
#include "cuda/gpu_compressor.h"

#include <stdlib.h>

frug_status frugi_cuda_norm_make(frug_cuda *g) {
    const frug_compressor *plan = g->plan;
    size_t bytes = plan->pieces * sizeof *g->piece;
    uint64_t stretches = frug_layout_elements(plan->layout) / FRUGI_NORM_STRETCH + 1;
    frugi_gpu_span *piece = malloc(bytes + 1);
    FRUG_FAIL_IF(!piece, FRUG_ERR_MEMORY, "cuda: out of memory");
    for (size_t i = 0; i < plan->pieces; i++)
        piece[i] = (frugi_gpu_span){plan->piece[i].begin, plan->piece[i].begin + plan->piece[i].count};
    cudaError_t error = cudaMalloc((void **)&g->piece, bytes + 1);
    if (error == cudaSuccess)
        error = cudaMemcpy(g->piece, piece, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&g->partial, stretches * sizeof *g->partial);
    free(piece);
    TRY_CUDA("memory for norms", error);
    return FRUG_OK;
}

static frug_status take(frug_cuda *g, uint64_t begin, uint64_t count, const float *grad, double *result, float *gain,
                        frug_stream stream) {
    frugi_gpu_norm norm = {.grad = grad,
                           .piece = g->piece,
                           .pieces = (uint32_t)g->plan->pieces,
                           .begin = begin,
                           .count = count,
                           .stretch = FRUGI_NORM_STRETCH,
                           .stretches = (uint32_t)((count + FRUGI_NORM_STRETCH - 1) / FRUGI_NORM_STRETCH),
                           .partial = g->partial,
                           .result = result,
                           .clip = g->config.clip,
                           .gain = gain};
    TRY_CUDA("norm", frugi_gpu_norm_launch(&norm, g->processors, stream));
    return FRUG_OK;
}

frug_status frugi_cuda_clip(frug_cuda *g, frugi_gpu_press *press, uint64_t count, frug_stream stream) {
    if (!(g->config.clip > 0))
        return FRUG_OK;
    press->gain = &g->desk->gain;
    return take(g, press->begin, count, press->grad, NULL, &g->desk->gain, stream);
}

frug_status frug_cuda_norm(frug_cuda *g, uint64_t begin, uint64_t count, const float *grad, double *norm,
                           frug_stream stream) {
    FRUG_FAIL_IF(!g || (!grad && count) || !norm, FRUG_ERR_ARG,
                 "cuda: no compressor, no gradient or no place for the norm");
    uint64_t total = frug_layout_elements(g->plan->layout);
    FRUG_FAIL_IF(begin > total || count > total - begin, FRUG_ERR_ARG,
                 "cuda: elements %llu to %llu, the layout has %llu", (unsigned long long)begin,
                 (unsigned long long)(begin + count), (unsigned long long)total);
    FRUG_TRY(frugi_cuda_here(g));
    return take(g, begin, count, grad, norm, NULL, stream);
}

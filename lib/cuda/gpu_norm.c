/*
 * gpu_norm.c - norm of a gradient range on the device, for frug_cuda_norm() and for clipping. The clipping factor stays
 * on the device for the kernels that read the gradient, so the host need not wait for it.
 */
#include "cuda/gpu_compressor.h"

#include <stdlib.h>

frug_status frugi_cuda_norm_create(frug_cuda *g) {
    const frugi_partition *tensors = frugi_compressor_partition(g->plan);
    size_t bytes = tensors->views * sizeof *g->tensor;
    uint64_t ranges = tensors->elements / FRUGI_NORM_CHUNK + 1;
    frugi_gpu_range *tensor = malloc(bytes + 1);
    FRUG_FAIL_IF(!tensor, FRUG_ERR_MEMORY, "cuda: out of memory");
    for (size_t i = 0; i < tensors->views; i++)
        tensor[i] = (frugi_gpu_range){tensors->view[i].begin, tensors->view[i].begin + tensors->view[i].count};
    cudaError_t error = cudaMalloc((void **)&g->tensor, bytes + 1);
    if (error == cudaSuccess)
        error = cudaMemcpy(g->tensor, tensor, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&g->partial, ranges * sizeof *g->partial);
    free(tensor);
    TRY_CUDA("allocate norms", error);
    return FRUG_OK;
}

static frug_status launch_norm(frug_cuda *g, uint64_t begin, uint64_t count, const float *grad, double *result,
                               float *gain, frug_stream stream) {
    frugi_gpu_norm_args norm = {.grad = grad,
                                .tensor = g->tensor,
                                .tensors = (uint32_t)frugi_compressor_partition(g->plan)->views,
                                .begin = begin,
                                .count = count,
                                .range = FRUGI_NORM_CHUNK,
                                .ranges = (uint32_t)((count + FRUGI_NORM_CHUNK - 1) / FRUGI_NORM_CHUNK),
                                .partial = g->partial,
                                .result = result,
                                .clip = g->config.clip,
                                .gain = gain};
    TRY_CUDA("norm", frugi_gpu_norm_launch(&norm, g->processors, stream));
    return FRUG_OK;
}

frug_status frugi_cuda_clip(frug_cuda *g, frugi_gpu_compress_args *args, uint64_t count, frug_stream stream) {
    if (!(g->config.clip > 0))
        return FRUG_OK;
    args->gain = &g->workspace->gain;
    return launch_norm(g, args->begin, count, args->grad, NULL, &g->workspace->gain, stream);
}

frug_status frug_cuda_norm(frug_cuda *g, frug_range range, const float *grad, double *norm, frug_stream stream) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!g || (!grad && count) || !norm, FRUG_ERR_ARG, "cuda: null compressor, gradient or norm pointer");
    uint64_t total = frugi_compressor_partition(g->plan)->elements;
    FRUG_FAIL_IF(begin > total || count > total - begin, FRUG_ERR_ARG,
                 "cuda: range %llu to %llu exceeds the layout of %llu elements", (unsigned long long)begin,
                 (unsigned long long)(begin + count), (unsigned long long)total);
    FRUG_TRY(frugi_cuda_check_device(g));
    return launch_norm(g, begin, count, grad, norm, NULL, stream);
}

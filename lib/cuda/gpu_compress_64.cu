/*
 * gpu_compress_64.cu - gpu_compress.cuh for blocks of 64. One file per block length, so that they compile in parallel.
 */
#include "cuda/gpu_compress.cuh"

cudaError_t frugi_gpu_compress_64(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    return launch_by_value<64>(p, processors, stream);
}

/*
 * gpu_compress_256.cu - gpu_compress.cuh for blocks of 256. One file per block length, so that they compile in
 * parallel.
 */
#include "cuda/gpu_compress.cuh"

cudaError_t frugi_gpu_compress_256(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    return launch_by_value<256>(p, processors, stream);
}

/* gpu_compress_long.cu - gpu_compress_long.cuh for blocks of 1024 and 4096. */
#include "cuda/gpu_compress_long.cuh"

cudaError_t frugi_gpu_compress_1024(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    return launch_long<1024>(p, processors, stream);
}

cudaError_t frugi_gpu_compress_4096(const frugi_gpu_compress_args *p, int processors, cudaStream_t stream) {
    return launch_long<4096>(p, processors, stream);
}

/* gpu_compress_128.cu - gpu_compress.cuh for blocks of 128. A file for each length, so that they are compiled side by side. */
#include "cuda/gpu_compress.cuh"

cudaError_t frugi_gpu_press_128(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    return by_value<128>(p, processors, stream);
}

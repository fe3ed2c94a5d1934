/* gpu_compress_256.cu - gpu_compress.cuh for blocks of 256. A file for each length, so that they are compiled side by side. */
#include "cuda/gpu_compress.cuh"

cudaError_t frugi_gpu_press_256(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    return by_value<256>(p, processors, stream);
}

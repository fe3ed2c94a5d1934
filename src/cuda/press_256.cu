/* press_256.cu - press.cuh for blocks of 256. A file for each length, so that they are compiled side by side. */
#include "cuda/press.cuh"

cudaError_t frugi_gpu_press_256(const frugi_gpu_press *p, int processors, cudaStream_t stream) {
    return by_value<256>(p, processors, stream);
}

/* gpu_decode_64.cu - gpu_decode.cuh for blocks of 64. A file for each length, so that they are compiled side by side. */
#include "cuda/gpu_decode.cuh"

cudaError_t frugi_gpu_check_64(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    return check_blocks<64>(sum, processors, stream);
}

cudaError_t frugi_gpu_sum_64(const frugi_gpu_sum *sum, int processors, cudaStream_t stream) {
    return sum_blocks<64>(sum, processors, stream);
}

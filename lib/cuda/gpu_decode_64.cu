/* gpu_decode_64.cu - gpu_decode.cuh for blocks of 64. One file per block length, so that they compile in parallel. */
#include "cuda/gpu_decode.cuh"

cudaError_t frugi_gpu_check_64(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return check_blocks<64>(sum, processors, stream);
}

cudaError_t frugi_gpu_sum_64(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return sum_blocks<64>(sum, processors, stream);
}

/* gpu_decode_128.cu - gpu_decode.cuh for blocks of 128. One file per block length, so that they compile in parallel. */
#include "cuda/gpu_decode.cuh"

cudaError_t frugi_gpu_check_128(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return check_blocks<128>(sum, processors, stream);
}

cudaError_t frugi_gpu_sum_128(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream) {
    return sum_blocks<128>(sum, processors, stream);
}

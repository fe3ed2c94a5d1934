/*
 * gpu_norm.cu - norm of a gradient range on a GPU, bit-identical to the CPU's, and the clipping factor.
 *
 * compress/norm.c sums ranges of fixed length, in each of them tensor by tensor in four parallel sums, and then the
 * ranges in order. Here one warp sums one range: all lanes load and square 256 elements at a time, and the first four
 * lanes add, each its own sum, in the CPU's order. Most lanes wait for these four, but there are as many ranges as a
 * GPU can hold warps, and the next elements are loaded meanwhile.
 */
#include "cuda/gpu_warp.cuh"

#define WARPS  8
#define CHAINS 4u

/* Add squares first, first + chains, ... */
static __device__ inline double sum_strided(double sum, const double *square, uint32_t first, uint32_t chains,
                                            uint32_t n) {
#pragma unroll 8
    for (uint32_t i = first; i < n; i += chains)
        sum = __dadd_rn(sum, square[i]);
    return sum;
}

static __device__ inline double square_of(float x, bool finite_only) {
    bool counts = !finite_only || frugi_magnitude(x) < FRUGI_INF_BITS;
    return counts ? __dmul_rn((double)x, (double)x) : 0.0;
}

/* Sum of squares of n elements in the order of frugi_energy(); with one chain, only of finite elements, one by one. */
static __device__ double energy(const float *x, uint64_t n, uint32_t chains, double *square) {
    uint32_t lane = frugi_lane();
    float next[FRUGI_LANE_ELEMENTS];
    double sum = 0;
    frugi_load_tile(x, n < 256 ? (uint32_t)n : 256u, next);
    for (uint64_t at = 0; at < n; at += 256) {
        uint32_t here = n - at < 256 ? (uint32_t)(n - at) : 256u, even = here - here % chains;
        uint64_t left = n - at - here;
#pragma unroll
        for (int i = 0; i < FRUGI_LANE_ELEMENTS; i++)
            square[frugi_element_index(lane, i)] = square_of(next[i], chains == 1);
        __syncwarp();
        if (left)
            frugi_load_tile(x + at + 256, left < 256 ? (uint32_t)left : 256u, next);
        if (lane < chains)
            sum = sum_strided(sum, square, lane, chains, even);
        if (lane == 0)
            sum = sum_strided(sum, square, even, 1, here);
        __syncwarp();
    }
    square[lane] = sum;
    __syncwarp();
    sum = __dadd_rn(__dadd_rn(square[0], square[1]), __dadd_rn(square[2], square[3]));
    __syncwarp();
    return sum;
}

static __device__ double finite_energy(const float *x, uint64_t n, double *square) {
    double all = energy(x, n, CHAINS, square);
    return all - all == 0 ? all : energy(x, n, 1, square);
}

/* The first tensor that ends after an element. */
static __device__ uint32_t find_tensor(const frugi_gpu_norm_args &p, uint64_t element) {
    uint32_t lo = 0, hi = p.tensors;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (p.tensor[mid].end <= element)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static __global__ void __launch_bounds__(32 * WARPS) energy_kernel(const __grid_constant__ frugi_gpu_norm_args p) {
    __shared__ double squares[WARPS][256];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.ranges; n += warps) {
        uint64_t from = p.begin + (uint64_t)n * p.range, end = p.begin + p.count;
        uint64_t to = end - from < p.range ? end : from + p.range;
        double sum = 0;
        for (uint32_t i = find_tensor(p, from); i < p.tensors && p.tensor[i].begin < to; i++) {
            uint64_t first = max(p.tensor[i].begin, from), last = min(p.tensor[i].end, to);
            sum = __dadd_rn(sum, finite_energy(p.grad + (first - p.begin), last - first, squares[threadIdx.x / 32]));
        }
        if (frugi_lane() == 0)
            p.partial[n] = sum;
    }
}

/* Sum all ranges in order, with one thread block. */
static __global__ void __launch_bounds__(256) norm_kernel(const __grid_constant__ frugi_gpu_norm_args p) {
    __shared__ double partial[256];
    double sum = 0;
    for (uint32_t at = 0; at < p.ranges; at += 256) {
        uint32_t here = min(p.ranges - at, 256u);
        if (threadIdx.x < here)
            partial[threadIdx.x] = p.partial[at + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0)
            sum = sum_strided(sum, partial, 0, 1, here);
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    double norm = __dsqrt_rn(sum);
    if (p.result)
        *p.result = norm;
    if (p.gain)
        *p.gain = norm > p.clip ? (float)__ddiv_rn(p.clip, norm) : 1.0f;
}

cudaError_t frugi_gpu_norm_launch(const frugi_gpu_norm_args *p, int processors, cudaStream_t stream) {
    uint32_t wanted = (p->ranges + WARPS - 1) / WARPS, most = (uint32_t)processors * 8u;
    if (wanted)
        FRUGI_LAUNCH(energy_kernel, wanted < most ? wanted : most, 32 * WARPS, stream, *p);
    FRUGI_LAUNCH(norm_kernel, 1, 256, stream, *p);
    return cudaGetLastError();
}

/*
 * gpu_norm.cu - the norm of a gradient range on a GPU, with the CPU's bits, and what clipping makes of it.
 *
 * compress/norm.c sums stretches of fixed length, each tensor's part in four sums side by side, and then the stretches
 * one after the other. Here a warp takes a stretch: all lanes load and square, 256 elements at a time, and the first
 * four add, each its own sum, in the CPU's order. That leaves most lanes waiting for four, but there are as many
 * stretches as a GPU can hold warps, and the next elements are on their way meanwhile.
 */
#include "cuda/gpu_warp.cuh"

#define WARPS  8
#define CHAINS 4u

/* Add squares first, first + chains, ... */
static __device__ inline double add_up(double sum, const double *square, uint32_t first, uint32_t chains, uint32_t n) {
#pragma unroll 8
    for (uint32_t i = first; i < n; i += chains)
        sum = __dadd_rn(sum, square[i]);
    return sum;
}

static __device__ inline double square_of(float x, bool finite_only) {
    bool counts = !finite_only || frugi_magnitude(x) < FRUGI_INF_BITS;
    return counts ? __dmul_rn((double)x, (double)x) : 0.0;
}

/* The energy of n elements as frugi_energy() adds it up; or, with one chain, of those that are finite, one by one. */
static __device__ double energy_of(const float *x, uint64_t n, uint32_t chains, double *square) {
    uint32_t lane = frugi_lane();
    float next[FRUGI_EACH];
    double sum = 0;
    frugi_load_block(x, n < 256 ? (uint32_t)n : 256u, next);
    for (uint64_t at = 0; at < n; at += 256) {
        uint32_t here = n - at < 256 ? (uint32_t)(n - at) : 256u, even = here - here % chains;
        uint64_t left = n - at - here;
#pragma unroll
        for (int i = 0; i < FRUGI_EACH; i++)
            square[frugi_place_of(lane, i)] = square_of(next[i], chains == 1);
        __syncwarp();
        if (left)
            frugi_load_block(x + at + 256, left < 256 ? (uint32_t)left : 256u, next);
        if (lane < chains)
            sum = add_up(sum, square, lane, chains, even);
        if (lane == 0)
            sum = add_up(sum, square, even, 1, here);
        __syncwarp();
    }
    square[lane] = sum;
    __syncwarp();
    sum = __dadd_rn(__dadd_rn(square[0], square[1]), __dadd_rn(square[2], square[3]));
    __syncwarp();
    return sum;
}

static __device__ double sound_energy(const float *x, uint64_t n, double *square) {
    double energy = energy_of(x, n, CHAINS, square);
    return energy - energy == 0 ? energy : energy_of(x, n, 1, square);
}

/* The first tensor that ends after an element. */
static __device__ uint32_t piece_at(const frugi_gpu_norm &p, uint64_t element) {
    uint32_t lo = 0, hi = p.pieces;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (p.piece[mid].end <= element)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static __global__ void __launch_bounds__(32 * WARPS) energy_kernel(const __grid_constant__ frugi_gpu_norm p) {
    __shared__ double squares[WARPS][256];
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32, warps = gridDim.x * WARPS;
    for (uint32_t n = warp; n < p.stretches; n += warps) {
        uint64_t from = p.begin + (uint64_t)n * p.stretch, end = p.begin + p.count;
        uint64_t to = end - from < p.stretch ? end : from + p.stretch;
        double sum = 0;
        for (uint32_t i = piece_at(p, from); i < p.pieces && p.piece[i].begin < to; i++) {
            uint64_t first = max(p.piece[i].begin, from), last = min(p.piece[i].end, to);
            sum = __dadd_rn(sum, sound_energy(p.grad + (first - p.begin), last - first, squares[threadIdx.x / 32]));
        }
        if (frugi_lane() == 0)
            p.partial[n] = sum;
    }
}

/* All stretches in order, by one thread block. */
static __global__ void __launch_bounds__(256) norm_kernel(const __grid_constant__ frugi_gpu_norm p) {
    __shared__ double part[256];
    double sum = 0;
    for (uint32_t at = 0; at < p.stretches; at += 256) {
        uint32_t here = min(p.stretches - at, 256u);
        if (threadIdx.x < here)
            part[threadIdx.x] = p.partial[at + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0)
            sum = add_up(sum, part, 0, 1, here);
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

cudaError_t frugi_gpu_norm_launch(const frugi_gpu_norm *p, int processors, cudaStream_t stream) {
    uint32_t wanted = (p->stretches + WARPS - 1) / WARPS, most = (uint32_t)processors * 8u;
    if (wanted)
        FRUGI_LAUNCH(energy_kernel, wanted < most ? wanted : most, 32 * WARPS, stream, *p);
    FRUGI_LAUNCH(norm_kernel, 1, 256, stream, *p);
    return cudaGetLastError();
}

/*
 * device.h - the CUDA keywords and intrinsics that the kernels in lib/cuda use, for a C++ compiler: see emulator.cpp.
 *
 * It is included before the first line of a kernel file, as nvcc includes its own. Vectors are aligned as on a GPU, so
 * that UBSan detects an access that would trap there.
 */
#ifndef EMULATOR_DEVICE_H
#define EMULATOR_DEVICE_H

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>

using std::max;
using std::min;

#define __device__
#define __host__
#define __global__
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__   static /* thread blocks run one after the other */
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x, y;
    dim3(unsigned columns = 1, unsigned rows = 1) : x(columns), y(rows) {
    }
};

struct alignas(16) float4 {
    float x, y, z, w;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct alignas(8) uint2 {
    unsigned x, y;
};

extern dim3 threadIdx, blockIdx, gridDim;

/** Run a kernel: `lane` is called once for every thread of every block of the grid. */
void emulate_kernel(dim3 grid, unsigned threads, const std::function<void()> &lane);

#define FRUGI_LAUNCH(kernel, grid, threads, stream, ...) emulate_kernel(grid, threads, [&] { kernel(__VA_ARGS__); })

/** Calls at which the threads of a warp synchronize. All of them must be at the same one. */
enum emulator_call {
    SYNC_WARP,
    REDUCE_MAX,
    REDUCE_ADD,
    REDUCE_XOR,
    REDUCE_OR,
    ALL,
    SHUFFLE,
    SHUFFLE_UP,
    SHUFFLE_DOWN,
    SHUFFLE_XOR
};

/** Wait for the warp; returns the values of its lanes. */
const uint32_t *emulator_exchange(emulator_call call, uint32_t mask, uint32_t value);

void __syncthreads();

static inline void __syncwarp() {
    emulator_exchange(SYNC_WARP, 0xffffffffu, 0);
}

static inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value) {
    const uint32_t *all = emulator_exchange(REDUCE_MAX, mask, value);
    return *std::max_element(all, all + 32);
}

static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value) {
    const uint32_t *all = emulator_exchange(REDUCE_ADD, mask, value);
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum += all[i];
    return sum;
}

static inline uint32_t __reduce_xor_sync(uint32_t mask, uint32_t value) {
    const uint32_t *all = emulator_exchange(REDUCE_XOR, mask, value);
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum ^= all[i];
    return sum;
}

static inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t value) {
    const uint32_t *all = emulator_exchange(REDUCE_OR, mask, value);
    uint32_t any = 0;
    for (int i = 0; i < 32; i++)
        any |= all[i];
    return any;
}

static inline int __all_sync(uint32_t mask, int value) {
    const uint32_t *all = emulator_exchange(ALL, mask, value != 0);
    return *std::min_element(all, all + 32) != 0;
}

static inline uint32_t __shfl_sync(uint32_t mask, uint32_t value, int lane) {
    return emulator_exchange(SHUFFLE, mask, value)[lane & 31];
}

static inline uint32_t __shfl_up_sync(uint32_t mask, uint32_t value, unsigned distance) {
    unsigned lane = threadIdx.x & 31u;
    const uint32_t *all = emulator_exchange(SHUFFLE_UP, mask, value);
    return lane >= distance ? all[lane - distance] : value;
}

static inline uint32_t __shfl_down_sync(uint32_t mask, uint32_t value, unsigned distance) {
    unsigned lane = threadIdx.x & 31u;
    const uint32_t *all = emulator_exchange(SHUFFLE_DOWN, mask, value);
    return lane + distance < 32 ? all[lane + distance] : value;
}

static inline uint32_t __shfl_xor_sync(uint32_t mask, uint32_t value, int bits) {
    unsigned lane = threadIdx.x & 31u;
    return emulator_exchange(SHUFFLE_XOR, mask, value)[lane ^ (unsigned)bits];
}

static inline uint32_t atomicAdd(uint32_t *at, uint32_t value) {
    uint32_t old = *at;
    *at += value;
    return old;
}

static inline uint32_t atomicXor(uint32_t *at, uint32_t value) {
    uint32_t old = *at;
    *at ^= value;
    return old;
}

static inline int atomicCAS(int *at, int expected, int value) {
    int old = *at;
    *at = old == expected ? value : old;
    return old;
}

template <class T> static inline T __ldcs(const T *at) {
    return *at;
}

template <class T> static inline T __ldcg(const T *at) {
    return *at;
}

static inline void __threadfence() {
}

template <class T> static inline void __stcs(T *at, T value) {
    *at = value;
}

static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

static inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}

static inline int __popc(uint32_t v) {
    return __builtin_popcount(v);
}

static inline int __ffs(int v) {
    return __builtin_ffs(v);
}

static inline float __fadd_rn(float a, float b) {
    return a + b;
}

static inline float __fsub_rn(float a, float b) {
    return a - b;
}

static inline float __fmul_rn(float a, float b) {
    return a * b;
}

static inline float __fdiv_rn(float a, float b) {
    return a / b;
}

static inline double __dadd_rn(double a, double b) {
    return a + b;
}

static inline double __dmul_rn(double a, double b) {
    return a * b;
}

static inline double __ddiv_rn(double a, double b) {
    return a / b;
}

static inline double __dsqrt_rn(double a) {
    return std::sqrt(a);
}

/** Four bytes of the eight in y:x, each selected by four bits of the selector. */
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
    uint64_t both = (uint64_t)y << 32 | x;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++)
        result |= (uint32_t)(both >> (8 * (selector >> (4 * i) & 7u)) & 255u) << (8 * i);
    return result;
}

/** Apply an operation to each half of two registers. */
template <class T, class F> static inline uint32_t apply_per_half(uint32_t a, uint32_t b, F operation) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 16)
        result |= (uint32_t)(uint16_t)operation((T)(a >> shift), (T)(b >> shift)) << shift;
    return result;
}

static inline uint32_t __vadd2(uint32_t a, uint32_t b) {
    return apply_per_half<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return x + y; });
}

static inline uint32_t __vmaxs2(uint32_t a, uint32_t b) {
    return apply_per_half<int16_t>(a, b, [](int16_t x, int16_t y) { return max(x, y); });
}

static inline uint32_t __vmaxu2(uint32_t a, uint32_t b) {
    return apply_per_half<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return max(x, y); });
}

static inline uint32_t __vminu2(uint32_t a, uint32_t b) {
    return apply_per_half<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return min(x, y); });
}

static inline int __viaddmax_s32(int a, int b, int c) {
    return max(a + b, c);
}

static inline int __viaddmin_s32(int a, int b, int c) {
    return min(a + b, c);
}

static inline uint32_t __viaddmax_s16x2(uint32_t a, uint32_t b, uint32_t c) {
    return __vmaxs2(__vadd2(a, b), c);
}

static inline uint32_t __viaddmin_u16x2(uint32_t a, uint32_t b, uint32_t c) {
    return __vminu2(__vadd2(a, b), c);
}

/** max(min(a + b, c), 0) in each half, as signed numbers of 16 bits that wrap. */
static inline uint32_t __viaddmin_s16x2_relu(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        int16_t sum = (int16_t)((a >> shift) + (b >> shift)), most = (int16_t)(c >> shift);
        result |= (uint32_t)max<int16_t>(min(sum, most), 0) << shift;
    }
    return result;
}

template <class K>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, K, int, size_t) {
    *blocks = 2;
    return cudaSuccess;
}

#endif

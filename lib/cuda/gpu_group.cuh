/*
 * gpu_group.cuh - the lanes that process a block together: a warp, or the warps of a thread block if the block is long.
 *
 * Functions that count or compare all elements of a block take one of the two groups and are the same for both. Warps
 * exchange numbers through shared memory. There are two sets of them: a warp that writes the next number cannot
 * overwrite one that others still read, so an exchange takes one barrier.
 */
#ifndef FRUGI_GPU_GROUP_CUH
#define FRUGI_GPU_GROUP_CUH

#include "cuda/gpu_warp.cuh"

/** Warps that process a long block, a warp tile each. */
template <int BLOCK> constexpr uint32_t FRUGI_BLOCK_WARPS = BLOCK / FRUGI_GPU_WARP_TILE;

/** A warp, alone. */
struct frugi_warp_group {
    /** Sum over all lanes. */
    __device__ uint32_t sum(uint32_t mine) const {
        return __reduce_add_sync(FRUGI_ALL_LANES, mine);
    }

    /** Maximum over all lanes. */
    __device__ uint32_t max(uint32_t mine) const {
        return __reduce_max_sync(FRUGI_ALL_LANES, mine);
    }

    /** Sum over the warps before this one, and over all, of a number that is the same in all lanes of a warp. */
    __device__ uint32_t sum_before(uint32_t mine, uint32_t *all) const {
        *all = mine;
        return 0;
    }

    /** The same for four numbers at once: number l / 8 is that of lanes l | 7; lane l gets the sum of number l / 8. */
    __device__ uint32_t sum_before_by_eights(uint32_t) const {
        return 0;
    }

    /** Index in the block of the warp's first element. */
    __device__ uint32_t first_element() const {
        return 0;
    }
};

/** Numbers that the warps of a thread block exchange, in shared memory. */
template <int BLOCK> struct frugi_exchange {
    uint32_t number[2][4 * FRUGI_BLOCK_WARPS<BLOCK>]; /* four for each warp, most functions use one */
};

/** The warps of a thread block, with a long block. */
template <int BLOCK> struct frugi_block_group {
    frugi_exchange<BLOCK> *shared;
    uint32_t phase; /* set of numbers to be used next */

    /** A number from each warp: lane l gets that of warp l; lanes after the last warp get 0. */
    __device__ uint32_t exchange(uint32_t mine) {
        uint32_t *number = shared->number[phase], lane = frugi_lane();
        if (lane == 0)
            number[threadIdx.x / 32] = mine;
        __syncthreads();
        phase ^= 1u;
        return lane < FRUGI_BLOCK_WARPS<BLOCK> ? number[lane] : 0u;
    }

    __device__ uint32_t sum(uint32_t mine) {
        uint32_t all = exchange(__reduce_add_sync(FRUGI_ALL_LANES, mine));
        return __reduce_add_sync(FRUGI_ALL_LANES, all);
    }

    __device__ uint32_t max(uint32_t mine) {
        uint32_t all = exchange(__reduce_max_sync(FRUGI_ALL_LANES, mine));
        return __reduce_max_sync(FRUGI_ALL_LANES, all);
    }

    __device__ uint32_t sum_before(uint32_t mine, uint32_t *all) {
        uint32_t each = exchange(mine);
        *all = __reduce_add_sync(FRUGI_ALL_LANES, each);
        return __reduce_add_sync(FRUGI_ALL_LANES, frugi_lane() < threadIdx.x / 32 ? each : 0u);
    }

    __device__ uint32_t sum_before_by_eights(uint32_t mine) {
        uint32_t *number = shared->number[phase], lane = frugi_lane(), warp = threadIdx.x / 32, sum = 0;
        if (lane % 8 == 7)
            number[4 * warp + lane / 8] = mine;
        __syncthreads();
        phase ^= 1u;
        for (uint32_t w = lane % 8; w < warp; w += 8)
            sum += number[4 * w + lane / 8];
#pragma unroll
        for (int d = 1; d < 8; d *= 2)
            sum += __shfl_xor_sync(FRUGI_ALL_LANES, sum, d);
        return sum;
    }

    __device__ uint32_t first_element() const {
        return threadIdx.x / 32 * FRUGI_GPU_WARP_TILE;
    }
};

#endif

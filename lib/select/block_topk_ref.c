/* block_topk_ref.c - the reference stages for any block length, and the choice between variants. */
#include "select/block_kernel.h"

#include "base/float_bits.h"
#include "select/block_select.h"

#include <string.h>

static void accumulate(frugi_batch *b) {
    size_t n = (size_t)b->blocks * b->block;
    if (b->saved)
        memcpy(b->saved, b->before, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        b->acc[i] = b->beta * b->before[i] + b->grad[i];
}

static void select_batch(frugi_batch *b) {
    for (uint32_t i = 0; i < b->blocks; i++) {
        const float *acc = b->acc + (size_t)i * b->block;
        b->skipped[i] = frugi_largest_magnitude(acc, b->length) >= FRUGI_INF_BITS;
        if (!b->skipped[i])
            frugi_select_ref(acc, b->length, b->k[i], b->select, b->idx + (size_t)i * b->block);
    }
}

const frugi_block_kernel frugi_block_kernel_ref = {accumulate, NULL, select_batch};

/* The kernels of a variant. */
typedef struct kernel_set {
    const frugi_block_kernel *of_64, *of_128, *of_256, *of_longer;
} kernel_set;

static kernel_set kernels_of(frugi_isa isa) {
    switch (isa) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON:
        return (kernel_set){&frugi_block_kernel_64_neon, &frugi_block_kernel_128_neon, &frugi_block_kernel_256_neon,
                            &frugi_block_kernel_long_neon};
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2:
        return (kernel_set){&frugi_block_kernel_64_avx2, &frugi_block_kernel_128_avx2, &frugi_block_kernel_256_avx2,
                            &frugi_block_kernel_long_avx2};
    case FRUGI_ISA_AVX512:
        return (kernel_set){&frugi_block_kernel_64_avx2, &frugi_block_kernel_128_avx2, &frugi_block_kernel_256_avx512,
                            &frugi_block_kernel_long_avx512};
#endif
    default:
        return (kernel_set){&frugi_block_kernel_ref, &frugi_block_kernel_ref, &frugi_block_kernel_ref,
                            &frugi_block_kernel_ref};
    }
}

const frugi_block_kernel *frugi_block_kernel_for(frugi_isa isa, uint32_t block) {
    const kernel_set set = kernels_of(isa);
    return block == 64 ? set.of_64 : block == 128 ? set.of_128 : block == 256 ? set.of_256 : set.of_longer;
}

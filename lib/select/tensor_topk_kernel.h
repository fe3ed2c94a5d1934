/* tensor_topk_kernel.h - the scans of tensor_topk.c, once per instruction set. */
#ifndef FRUGI_TENSOR_TOPK_KERNEL_H
#define FRUGI_TENSOR_TOPK_KERNEL_H

#include "select/tensor_topk.h"

#define FRUGI_TOPK_PIECE ((uint64_t)1 << 28) /* maximum number of elements of a scan, so that 32 bits count them */
#define FRUGI_TOPK_CHUNK FRUGI_TOPK_SHORT    /* maximum number of elements of an emit */
#define FRUGI_TOPK_SLACK 64u
#define FRUGI_TOPK_EXTRA 16u /* entries that an emit may overwrite after the last one */
#define FRUGI_TOPK_STAGE (FRUGI_TOPK_CHUNK + FRUGI_TOPK_EXTRA)

typedef struct frugi_topk_kernel {
    /** Whether scans are so much faster than memory that it pays to scan while the data is in the cache. */
    bool faster_than_memory;

    /** Number of magnitudes that are at least key, 0 < n <= FRUGI_TOPK_PIECE. */
    uint64_t (*count)(const float *x, uint64_t n, uint32_t key);

    /**
     * Returns the number of magnitudes below from; *inside: the number within from .. from + width - 1. Those are
     * written to list in order. The list is complete if *inside + FRUGI_TOPK_SLACK <= room; otherwise only the
     * numbers are valid.
     */
    uint64_t (*gather)(const float *x, uint64_t n, uint32_t from, uint32_t width, uint32_t *list, uint64_t room,
                       uint64_t *inside);

    /**
     * Write base + index, and the value, of each of n <= FRUGI_TOPK_CHUNK elements with a magnitude of at least key;
     * up to FRUGI_TOPK_EXTRA more are overwritten. Returns their number.
     */
    uint32_t (*emit)(const float *x, uint32_t n, uint32_t base, uint32_t key, uint32_t *index, float *value);

    /** Set the elements with magnitudes of at least key to 0. */
    void (*clear)(float *x, uint32_t n, uint32_t key);

    /**
     * For each of 64 * words elements a bit: whether it is among the k largest of its four, by the bits of `mask` of
     * the magnitudes; ties go to the lower index.
     */
    void (*mark_fours)(const float *x, uint32_t words, uint32_t k, uint32_t mask, uint64_t *bits);

    /**
     * Write base + index, and the value, of each of 64 * words elements whose bit is set; up to FRUGI_TOPK_EXTRA more
     * are overwritten. Returns their number.
     */
    uint32_t (*take)(const float *x, const uint64_t *bits, uint32_t words, uint32_t base, uint32_t *index,
                     float *value);
} frugi_topk_kernel;

extern const frugi_topk_kernel frugi_topk_ref;
extern const frugi_topk_kernel frugi_topk_neon;
extern const frugi_topk_kernel frugi_topk_avx2;
extern const frugi_topk_kernel frugi_topk_avx512;

#endif

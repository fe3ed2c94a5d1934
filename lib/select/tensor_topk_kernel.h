/* tensor_topk_kernel.h - the scans of tensor_topk.c, once per instruction set. */
#ifndef FRUGI_TENSOR_TOPK_KERNEL_H
#define FRUGI_TENSOR_TOPK_KERNEL_H

#include <stdint.h>

#define FRUGI_WHOLE_PIECE ((uint64_t)1 << 28) /* the most elements of a scan, so that 32 bits count them */
#define FRUGI_WHOLE_CHUNK 1024u               /* the most elements of an emit */
#define FRUGI_WHOLE_SLACK 64u
#define FRUGI_WHOLE_STAGE (FRUGI_WHOLE_CHUNK + 8u)

typedef struct frugi_whole_kernel {
    /** How many of n magnitudes are at least key, 0 < n <= FRUGI_WHOLE_PIECE. */
    uint64_t (*count)(const float *x, uint64_t n, uint32_t key);

    /**
     * How many of n magnitudes are below from; *inside: how many are within from .. from + width - 1. Those are
     * written to list as they come. All are there when *inside + FRUGI_WHOLE_SLACK <= room; otherwise only the numbers
     * are right.
     */
    uint64_t (*gather)(const float *x, uint64_t n, uint32_t from, uint32_t width, uint32_t *list, uint64_t room,
                       uint64_t *inside);

    /**
     * Write base + the place of each of n <= FRUGI_WHOLE_CHUNK magnitudes of at least key to stage; up to 8 more
     * are overwritten. Returns how many there are; *equal: whether some of them are key itself.
     */
    uint32_t (*emit)(const float *x, uint32_t n, uint32_t base, uint32_t key, uint32_t *stage, int *equal);
} frugi_whole_kernel;

extern const frugi_whole_kernel frugi_whole_ref;
extern const frugi_whole_kernel frugi_whole_neon;
extern const frugi_whole_kernel frugi_whole_avx2;

#endif

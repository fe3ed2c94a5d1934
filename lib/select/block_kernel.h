/*
 * block_kernel.h - the two stages that decide the speed of compression, and their
 * variants.
 *
 * Work goes in batches of up to FRUGI_LANES neighbouring blocks, small enough
 * to stay in the first cache between the stages, so that memory is passed over
 * once.
 */
#ifndef FRUGI_BLOCK_KERNEL_H
#define FRUGI_BLOCK_KERNEL_H

#include "base/cpu.h"
#include "config/config.h"

#include <stdbool.h>

#define FRUGI_LANES 16u

/** Scratch of the SIMD variants. A key is a byte that says how far a magnitude lies above some bound. */
typedef struct frugi_lanes {
    uint8_t row[256][FRUGI_LANES];     /* keys in search, one column per block */
    uint8_t group[FRUGI_LANES][64];    /* keys of the largest of four neighbours */
    uint8_t slot[FRUGI_LANES][256];    /* keys of the elements in question, in index order */
    uint8_t list[FRUGI_LANES][64 + 8]; /* which groups these come from */
    uint8_t win[FRUGI_LANES][256 + 8]; /* the slots that win */
    uint64_t mark[FRUGI_LANES][4];     /* the same, one bit per slot */
    uint16_t top[FRUGI_LANES];         /* upper half of the largest magnitude */
    uint16_t bound[FRUGI_LANES];       /* upper half of a magnitude that at least k entries reach */
    uint16_t found[FRUGI_LANES];       /* groups listed, then slots marked */
    uint8_t threshold[FRUGI_LANES];    /* key of the k-th largest */
    uint8_t reached[FRUGI_LANES];      /* how many reach that key */
    bool odd[FRUGI_LANES];             /* the block must go the slow way */
} frugi_lanes;

typedef struct frugi_batch {
    uint32_t block;      /* elements per block */
    uint32_t blocks;     /* 1 .. FRUGI_LANES */
    uint32_t length;     /* elements of each block that count; below block only for a lone last block */
    const float *grad;   /* new gradient, blocks in a row */
    const float *before; /* what was left behind, likewise; may be acc */
    float *acc;          /* becomes beta * before + grad */
    float *saved;        /* gets a copy of before where that is overwritten; else NULL */
    float beta;
    frugi_selector select;
    uint32_t k[FRUGI_LANES];
    bool held[FRUGI_LANES]; /* the block has a NaN or an infinity; its idx is not set */
    uint16_t *idx;          /* block b's k[b] indices start at idx + b * block */
    frugi_lanes *lanes;
} frugi_batch;

typedef struct frugi_kernel {
    void (*accumulate)(frugi_batch *batch);
    void (*select)(frugi_batch *batch);
} frugi_kernel;

/** The variant for a block length; lone last blocks that are not full always take the reference. */
const frugi_kernel *frugi_kernel_for(frugi_isa isa, uint32_t block);

extern const frugi_kernel frugi_kernel_ref;
extern const frugi_kernel frugi_kernel_64_neon, frugi_kernel_128_neon, frugi_kernel_256_neon;
extern const frugi_kernel frugi_kernel_64_avx2, frugi_kernel_128_avx2, frugi_kernel_256_avx2;

#endif

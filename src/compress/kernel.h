/*
 * kernel.h - the two stages that decide the speed of compression, and their variants.
 *
 * Work goes in batches of up to FRUGI_LANES neighbouring blocks, small enough to
 * stay in the first cache between the stages, so that memory is passed over once.
 */
#ifndef FRUGI_KERNEL_H
#define FRUGI_KERNEL_H

#include "common/cpu.h"
#include "config/config.h"

#include <stdbool.h>

#define FRUGI_LANES 16u

/** Scratch of the 256-element variants: one lane per block of the batch. */
typedef struct frugi_lanes {
    float word[256 + 8][FRUGI_LANES];        /* the candidates, one column per block */
    uint8_t rank[256 + 8][FRUGI_LANES];      /* how far each lies above its block's guess */
    uint8_t candidate[FRUGI_LANES][256 + 8]; /* their indices, one row per block */
    uint8_t win[32 + 1][FRUGI_LANES];        /* one bit per winning candidate, eight a row */
    uint64_t mark[FRUGI_LANES][4];           /* one bit per element that is a candidate */
    uint16_t base[FRUGI_LANES];              /* upper half of a magnitude; candidates lie above it */
    uint8_t found[FRUGI_LANES];              /* number of candidates; 0 takes the reference */
    uint8_t threshold[FRUGI_LANES];          /* rank of the k-th largest */
    uint8_t wild[FRUGI_LANES];               /* whether a rank is 255: the magnitude may be anything */
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
    uint16_t *predict;      /* per block, upper half of last step's threshold; steers speed only */
    int32_t *lag;           /* where thresholds lie against predict, in sixteenths; steers speed only */
    frugi_lanes *lanes;
} frugi_batch;

typedef struct frugi_kernel {
    void (*accumulate)(frugi_batch *batch);
    void (*select)(frugi_batch *batch);
} frugi_kernel;

/** The variant for a block length; lone last blocks that are not full always take the reference. */
const frugi_kernel *frugi_kernel_for(frugi_isa isa, uint32_t block);

extern const frugi_kernel frugi_kernel_ref;
extern const frugi_kernel frugi_kernel_256_neon;
extern const frugi_kernel frugi_kernel_256_avx2;

#endif

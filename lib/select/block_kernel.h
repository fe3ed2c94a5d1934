/*
 * block_kernel.h - the two stages that dominate the time of compression (accumulate and select), and their variants.
 *
 * Blocks are processed in batches of up to FRUGI_BATCH_BLOCKS consecutive blocks, small enough to stay in the L1 cache
 * between the stages, so that memory is read once.
 */
#ifndef FRUGI_BLOCK_KERNEL_H
#define FRUGI_BLOCK_KERNEL_H

#include "base/cpu.h"
#include "config/config.h"

#include <stdbool.h>

#define FRUGI_BATCH_BLOCKS  16u
#define FRUGI_LONG_ELEMENTS 4096u /* most elements of a batch of blocks that are longer than 256 */
#define FRUGI_GATHER_SLACK  16u

/**
 * Scratch memory of the SIMD variants for blocks of more than 256 elements. A key is the upper half of a magnitude.
 * Lists are written in vectors, so they have room for one more.
 */
typedef struct frugi_long_scratch {
    uint16_t max[FRUGI_LONG_ELEMENTS / 4];        /* keys of the largest elements of groups */
    uint16_t key[FRUGI_LONG_ELEMENTS + 64];       /* keys of all elements, or of those in the listed groups */
    uint8_t list[FRUGI_LONG_ELEMENTS / 16 + 8];   /* the groups that candidates belong to */
    uint8_t position[FRUGI_LONG_ELEMENTS + 16];   /* candidates: their positions in pages */
    uint16_t index[FRUGI_LONG_ELEMENTS + 16];     /* their indices */
    uint32_t magnitude[FRUGI_LONG_ELEMENTS + 16]; /* their magnitudes */
} frugi_long_scratch;

/**
 * Scratch memory of the SIMD variants. For blocks of up to 256 elements a key is one byte: the distance of a magnitude
 * from some lower bound.
 */
typedef struct frugi_batch_scratch {
    uint8_t row[256][FRUGI_BATCH_BLOCKS];          /* transposed keys for the threshold search, one column per block */
    uint8_t group[FRUGI_BATCH_BLOCKS][64];         /* keys of the maxima of four consecutive elements */
    uint8_t slot[FRUGI_BATCH_BLOCKS][256];         /* keys of the candidate elements, in index order */
    uint8_t list[FRUGI_BATCH_BLOCKS][64 + 8];      /* the groups that the candidates belong to */
    uint8_t selected[FRUGI_BATCH_BLOCKS][256 + 8]; /* the selected slots */
    uint64_t mark[FRUGI_BATCH_BLOCKS][4];          /* the same, one bit per slot */
    uint16_t top[FRUGI_BATCH_BLOCKS];              /* upper half of the largest magnitude */
    uint16_t bound[FRUGI_BATCH_BLOCKS];            /* upper half of a magnitude that at least k entries reach */
    uint16_t found[FRUGI_BATCH_BLOCKS];            /* number of groups listed, then of slots marked */
    uint8_t threshold[FRUGI_BATCH_BLOCKS];         /* key of the k-th largest */
    uint8_t reached[FRUGI_BATCH_BLOCKS];           /* number of keys that reach the threshold */
    bool slow[FRUGI_BATCH_BLOCKS];                 /* the block needs the slow path */
    frugi_long_scratch longer;                     /* of blocks of more than 256 elements */
} frugi_batch_scratch;

typedef struct frugi_batch frugi_batch;

/** Move entries by the bitmap of a batch. */
typedef struct frugi_bitmap_moves {
    /** Copy the selected accumulators of all blocks to `values`, zeros for blocks that are skipped, and up to
     * FRUGI_GATHER_SLACK more floats. */
    void (*gather)(const frugi_batch *batch, float *values);
    /** Copy `values` back to the accumulators of blocks that are not skipped. */
    void (*scatter)(const frugi_batch *batch, const float *values);
} frugi_bitmap_moves;

struct frugi_batch {
    uint32_t block;      /* elements per block */
    uint32_t blocks;     /* 1 .. FRUGI_BATCH_BLOCKS */
    uint32_t length;     /* valid elements of each block; less than block only for a single last block */
    const float *grad;   /* gradient, consecutive blocks */
    const float *before; /* residual, consecutive blocks; may be the same as acc */
    float *acc;          /* receives beta * before + grad */
    float *saved;        /* if acc overwrites before: receives a copy of it, at least for blocks that are skipped */
    float beta;
    const unsigned char *stored; /* NULL, or the residual as it is stored, instead of before; acc is elsewhere */
    const uint16_t *scale;       /* of stored: one per block, bf16, if it is int8 or int4 */
    frugi_residual format;       /* of stored */
    frugi_selector select;
    uint32_t k[FRUGI_BATCH_BLOCKS];   /* entries to select; accumulate depends on it too */
    bool skipped[FRUGI_BATCH_BLOCKS]; /* the block has a NaN or an infinity, and its idx is not set */
    uint16_t *idx;                    /* block b's k[b] indices start at idx + b * block */
    bool idx_optional;                /* where `moves` are set, idx need not be */
    unsigned char *bitmap;            /* NULL, or set by select: a bit per element, block / 8 bytes for each block */
    const frugi_bitmap_moves *moves;  /* NULL, or set by select where they are faster than loops over idx */
    frugi_batch_scratch *lanes;
};

typedef struct frugi_block_kernel {
    void (*accumulate)(frugi_batch *batch);
    /** The same from batch->stored, which no product with a scale makes infinite; NULL: not in this kernel. */
    void (*accumulate_stored)(frugi_batch *batch);
    void (*select)(frugi_batch *batch);
} frugi_block_kernel;

/** The variant for a block length. Last blocks that are not full always need the reference. */
const frugi_block_kernel *frugi_block_kernel_for(frugi_isa isa, uint32_t block);

extern const frugi_block_kernel frugi_block_kernel_ref;
extern const frugi_block_kernel frugi_block_kernel_64_neon, frugi_block_kernel_128_neon, frugi_block_kernel_256_neon;
extern const frugi_block_kernel frugi_block_kernel_64_avx2, frugi_block_kernel_128_avx2, frugi_block_kernel_256_avx2;
extern const frugi_block_kernel frugi_block_kernel_256_avx512;
extern const frugi_block_kernel frugi_block_kernel_long_neon, frugi_block_kernel_long_avx2,
    frugi_block_kernel_long_avx512;

#endif

/*
 * residual_format.h - storage of the residual, by blocks, in 4, 2, 1 or half a byte per element.
 *
 *   f32    unchanged
 *   bf16   the upper half, with stochastic rounding
 *   int8   -126 .. 126 times the scale of the block, with stochastic rounding
 *   int4   -6 .. 6 times the scale of the block, with stochastic rounding
 *
 * The scale is the largest magnitude of the block over 126 (or 6), rounded up to bf16;
 * |stored - true| <= scale. Stochastic rounding is unbiased, so that gradients below
 * half a scale are not lost; the random numbers depend on seed, step and block only.
 * Blocks below 2^-103 are stored as zeros.
 */
#ifndef FRUGI_RESIDUAL_FORMAT_H
#define FRUGI_RESIDUAL_FORMAT_H

#include "config/config.h"
#include "feedback/residual_kernel.h"

#include <stdbool.h>

/* Constants of the storage formats, the same on CPU and GPU. */
#define FRUGI_WEYL              0x9e3779b9u /* 2^32 over the golden ratio */
#define FRUGI_ROUND_SHIFT       12582912.0f /* 1.5 * 2^23: adding it leaves an integer in the low bits */
#define FRUGI_STORE_MIN_SCALE   0x0880u     /* the smallest scale, 2^-110: 32768 over it is finite */
#define FRUGI_STORE_CLAMP_SCALE 0x7780u     /* 2^112: 2^15 + 128 times anything below it is finite */
#define FRUGI_INT8_LEVELS       126.0f /* one less than a byte can hold: stochastic rounding may exceed it by one */
#define FRUGI_INT4_LEVELS       6.0f

#define FRUGI_STORE_RUN 16u /* the most blocks of frugi_store_save_run() */

typedef struct frugi_store {
    frugi_residual format;
    uint32_t block;
    uint64_t blocks;
    unsigned char *data; /* 64-byte aligned; block b starts at b * frugi_store_stride() */
    uint16_t *scale;     /* bf16, one per block; NULL for f32 and bf16 */
    const frugi_residual_kernel *kernel;
} frugi_store;

/** Create a store of zeros. */
frug_status frugi_store_create(frugi_residual format, uint32_t block, uint64_t blocks, frugi_store *store);
void frugi_store_destroy(frugi_store *store);

/** Bytes of one block's elements. */
size_t frugi_store_stride(const frugi_store *store);

/** Bytes of all elements and all scales. */
size_t frugi_store_bytes(const frugi_store *store);

/** The floats of an f32 store from block b on, for in-place updates. */
float *frugi_store_floats(const frugi_store *store, uint64_t b);

/** Whether numbers of these blocks, from block b on, may exceed the largest float when they are loaded. */
bool frugi_store_has_large(const frugi_store *store, uint64_t b, uint32_t blocks);

/** Load one block as floats. */
void frugi_store_load(const frugi_store *store, uint64_t b, float *dst);

/** Store one block of finite floats; random is a random number for this block and step. */
void frugi_store_save(frugi_store *store, uint64_t b, const float *src, uint32_t random);

/**
 * Store at most FRUGI_STORE_RUN consecutive blocks, from block b on, except those to be skipped; one random number
 * each. All scales are computed first, side by side.
 */
void frugi_store_save_run(frugi_store *store, uint64_t b, uint32_t blocks, const bool *skip, const float *src,
                          const uint32_t *random);

/** Copy elements, then scales, to dst; frugi_store_bytes() bytes. */
void frugi_store_export(const frugi_store *store, unsigned char *dst);

/** Whether exported bytes of a store like this one, from an untrusted source, have no NaN and no infinity. */
int frugi_store_check(const frugi_store *like, const unsigned char *src);

/** Import bytes that frugi_store_check() has accepted. */
void frugi_store_import(frugi_store *store, const unsigned char *src);

#endif

/*
 * index_gaps.h - places of a range as bytes.
 *
 * Tensors that travel dense take none: all of their places are meant, always. For each other tensor of the range: how
 * many places (u32), then for each the number of elements since the one before, a byte; 255 stands for "255, and more".
 * At densities from 1/16 down to 1/100 that is about a byte a place.
 */
#ifndef FRUGI_INDEX_GAPS_H
#define FRUGI_INDEX_GAPS_H

#include "compress/compressor.h"

/** The most bytes that places of any `count` elements can take. */
size_t frugi_gaps_bound(const frug_compressor *c, uint64_t count);

/**
 * Write n places, ascending and relative to begin; among them all of dense tensors and none outside tensors.
 * Returns the bytes written.
 */
size_t frugi_gaps_encode(const frug_compressor *c, uint64_t begin, uint64_t count, const uint32_t *place, uint64_t n,
                         unsigned char *out);

/**
 * Read them back. The bytes are untrusted.
 *
 *   place   room for count
 *
 * Returns 0 when they are not what frugi_gaps_encode() writes for n places.
 */
int frugi_gaps_decode(const frug_compressor *c, uint64_t begin, uint64_t count, const unsigned char *in, size_t bytes,
                      uint32_t *place, uint64_t n);

#endif

/*
 * index_gaps.h - encode the indices of a range as gaps.
 *
 * Dense tensors need no bytes: all their indices are implied. For each other tensor of the range: the number of indices
 * (u32), then for each the number of elements skipped since the previous one, as a byte; 255 means "255 elements, and
 * another byte follows". At densities from 1/16 down to 1/100 that is about a byte per index.
 */
#ifndef FRUGI_INDEX_GAPS_H
#define FRUGI_INDEX_GAPS_H

#include "compress/compressor_access.h"

/** Bound of the encoded size for any indices of a range of `count` elements. */
size_t frugi_gaps_bound(const frug_compressor *c, uint64_t count);

/**
 * Encode n indices, ascending and relative to begin; they include all elements of dense tensors and none outside
 * tensors. Returns the number of bytes.
 */
size_t frugi_gaps_encode(const frug_compressor *c, uint64_t begin, uint64_t count, const uint32_t *index, uint64_t n,
                         unsigned char *out);

/**
 * Decode n indices. The bytes are untrusted.
 *
 *   index   count elements
 *
 * Returns 0 if the bytes are not a valid encoding of n indices.
 */
int frugi_gaps_decode(const frug_compressor *c, uint64_t begin, uint64_t count, const unsigned char *in, size_t bytes,
                      uint32_t *index, uint64_t n);

#endif

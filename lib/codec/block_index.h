/*
 * block_index.h - encoding of the indices of a block.
 *
 *   none     every element is sent, in order
 *   local    one byte per entry (two for blocks over 256), ascending
 *   bitmap   one bit per element of the block, lowest first
 */
#ifndef FRUGI_BLOCK_INDEX_H
#define FRUGI_BLOCK_INDEX_H

#include "config/config.h"

/* The numbers are those of the wire format. */
typedef enum frugi_index {
    FRUGI_INDEX_CODE_NONE = 0,
    FRUGI_INDEX_CODE_LOCAL = 1,
    FRUGI_INDEX_CODE_BITMAP = 2,
    FRUGI_INDEX_CODE_COO = 3, /* these in sections by units only: unit_index.h */
    FRUGI_INDEX_CODE_CSR = 4,
    FRUGI_INDEX_CODE_RLE = 5,
    FRUGI_INDEX_CODE_RICE = 6,
    FRUGI_INDEX_CODE_SEEDED = 7
} frugi_index;

/** Name of a code ("local"), or NULL for an unknown number. */
const char *frugi_index_name(uint32_t code);

/** Bytes of the indices of several blocks with `entries` entries in total. */
uint64_t frugi_index_bytes(frugi_index code, uint32_t block, uint64_t blocks, uint64_t entries);

/** Encode the ascending indices of several blocks: block b has k[b] indices from idx + b * block on. */
void frugi_index_encode(frugi_index code, uint32_t block, uint32_t blocks, const uint32_t *k, const uint16_t *idx,
                        unsigned char *out);

/** Decode k indices of one block that frugi_index_check() has accepted. */
void frugi_index_decode(frugi_index code, uint32_t block, const unsigned char *in, uint32_t k, uint16_t *idx);

/** Whether `in` has exactly k ascending indices below length. */
int frugi_index_check(frugi_index code, uint32_t block, const unsigned char *in, uint32_t k, uint32_t length);

/** How many of n consecutive bytes are not larger than the previous one; in[-1] precedes in[0]. */
uint64_t frugi_index_descents(const unsigned char *in, uint64_t n);

#endif

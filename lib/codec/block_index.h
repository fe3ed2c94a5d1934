/*
 * block_index.h - how the places of a block's entries travel.
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

/** Name of a code ("local"), or NULL for a number that is none. */
const char *frugi_index_name(uint32_t code);

/** Bytes for the indices of several blocks that send that many entries together. */
uint64_t frugi_index_bytes(frugi_index code, uint32_t block, uint64_t blocks, uint64_t entries);

/** Encode the ascending indices of some blocks: k[b] of them from idx + b * block on for block b. */
void frugi_index_encode(frugi_index code, uint32_t block, uint32_t blocks, const uint32_t *k, const uint16_t *idx,
                        unsigned char *out);

/** Decode k indices of one block that frugi_index_check() has passed. */
void frugi_index_decode(frugi_index code, uint32_t block, const unsigned char *in, uint32_t k, uint16_t *idx);

/** Whether in holds exactly k ascending indices below length. */
int frugi_index_check(frugi_index code, uint32_t block, const unsigned char *in, uint32_t k, uint32_t length);

/** How many of n neighbouring bytes do not rise above the one before; in[-1] is the one before in[0]. */
uint64_t frugi_index_falls(const unsigned char *in, uint64_t n);

#endif

/*
 * section.h - one run of blocks inside a frame.
 *
 * A section covers `count` elements of the flat buffer from `begin` on, cut into
 * blocks. How many entries each block sends follows from kappa and the block's
 * number, so every length and every place inside the payload is known without
 * reading it. The payload is three arrays, each padded to four bytes:
 * what blocks share (scales), indices, values.
 */
#ifndef FRUGI_SECTION_H
#define FRUGI_SECTION_H

#include "codec/index.h"
#include "codec/value.h"

#define FRUGI_SECTION_HEADER 48u

typedef struct frugi_section {
    frugi_index index;
    frugi_value value;
    uint32_t block;  /* elements per block */
    uint32_t tensor; /* number of the first tensor in the layout */
    uint64_t begin, count;
    uint64_t kappa; /* entries per block, 32.32 fixed point */
    uint64_t first; /* number of the first block, shifted by the step's phase */
    /* What follows is worked out by frugi_section_measure(). */
    uint64_t blocks;
    uint32_t last_length; /* elements of the last block */
    uint64_t entries;
    uint64_t index_at, value_at, bytes; /* within the payload; scales stand at 0 */
} frugi_section;

/** Fill in what follows from the rest. Returns 0 for a section that cannot be. */
int frugi_section_measure(frugi_section *section);

/** Entries, and entries of all blocks before, of block b. */
uint32_t frugi_section_k(const frugi_section *section, uint64_t b);
uint64_t frugi_section_k_before(const frugi_section *section, uint64_t b);

/** Elements of block b. */
uint32_t frugi_section_length(const frugi_section *section, uint64_t b);

/** Where block b's part of each array stands in a payload. */
typedef struct frugi_place {
    uint64_t scale, index, value;
} frugi_place;
frugi_place frugi_section_place(const frugi_section *section, uint64_t b);

/** The 48 bytes before a section's payload. */
void frugi_section_write(const frugi_section *section, unsigned char *header);

/** Read and measure them. Returns 0 when they are not what an encoder writes. */
int frugi_section_read(const unsigned char *header, frugi_section *section);

#endif

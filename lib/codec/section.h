/*
 * section.h - one tensor, or part of one, inside a frame.
 *
 * A section covers `count` elements of the flat buffer from `begin` on. There are two kinds.
 *
 * By blocks: cut into blocks of elements. How many entries each block sends follows from kappa and the block's
 * number, so every length and every place inside the payload is known without reading it.
 *
 * By units: seen as a matrix and cut into units (common/grid.h), of which any may be sent, each whole. The
 * indices number units; the values are those of all sent units, one after the other, each row by row, and share
 * scales in groups of `group` whatever unit they belong to. Several such sections in a row may cover the
 * same elements; what they say adds up.
 *
 * Either payload is three arrays, each padded to four bytes: scales, indices, values.
 */
#ifndef FRUGI_SECTION_H
#define FRUGI_SECTION_H

#include "codec/block_index.h"
#include "codec/block_value.h"
#include "layout/tile_grid.h"
#include "base/status.h"

#define FRUGI_SECTION_HEADER      48u
#define FRUGI_UNIT_SECTION_HEADER 96u

typedef struct frugi_section {
    frugi_index index;
    frugi_value value;
    uint32_t block;  /* elements per block; 0 in a section by units */
    uint32_t tensor; /* number of the first tensor in the layout */
    uint64_t begin, count;
    /* By blocks. */
    uint64_t kappa; /* entries per block, 32.32 fixed point */
    uint64_t first; /* number of the first block, shifted by the step's phase */
    /* By units. */
    frugi_grid grid;      /* rows * cols == count */
    uint64_t kept;        /* units sent, 1 .. units */
    uint64_t key;         /* index code seeded: of the draw; otherwise 0 */
    uint32_t group;       /* values that share a scale; 0: all of them; 0 as well where nothing is shared (f32, bf16) */
    uint32_t levels;      /* value code qsgd: 1 .. 127; otherwise 0 */
    uint32_t rice;        /* index code rice: low bits of a gap, 0 .. 31; otherwise 0 */
    uint64_t index_bytes; /* of the indices before padding; worked out in a section by blocks */
    uint64_t entries;     /* elements of the kept units; worked out in a section by blocks */
    /* What follows is worked out by frugi_section_measure(). */
    uint64_t blocks;                    /* 0 in a section by units */
    uint32_t last_length;               /* elements of the last block */
    uint32_t header;                    /* bytes of the header */
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

/** Bytes of a header that begins with these four. */
uint32_t frugi_section_header(const unsigned char *start);

/** The section->header bytes before a section's payload. */
FRUGI_SHARED void frugi_section_write(const frugi_section *section, unsigned char *header);

/** Read and measure them. Returns 0 when they are not what an encoder writes. */
int frugi_section_read(const unsigned char *header, frugi_section *section);

#endif

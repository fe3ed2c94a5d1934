/*
 * section.h - one tensor, or a range of one, inside a frame.
 *
 * A section covers `count` elements of the flat buffer from `begin` on. There are two kinds.
 *
 * By blocks: divided into blocks of elements. The number of entries of each block is a function of kappa and the
 * number of the block, so every length and every offset inside the payload is known without reading it.
 *
 * By units: a matrix divided into units (layout/tile_grid.h), any of which may be sent, each as a whole. Indices
 * are unit numbers; the values are those of all sent units, one after the other, each row by row, and share
 * scales in value groups of `group`, independently of units. Consecutive sections may cover the
 * same elements; their values are added.
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
    uint64_t first; /* number of the first block, shifted by the phase of the step */
    /* By units. */
    frugi_grid grid;      /* rows * cols == count */
    uint64_t kept;        /* units sent, 1 .. units */
    uint64_t key;         /* index code seeded: key of the sample; otherwise 0 */
    uint32_t group;       /* values that share a scale; 0: all of them; 0 also without scales (f32, bf16) */
    uint32_t levels;      /* value code qsgd: 1 .. 127; otherwise 0 */
    uint32_t rice;        /* index code rice: low bits of a gap, 0 .. 31; otherwise 0 */
    uint64_t index_bytes; /* of the indices before padding; computed in a section by blocks */
    uint64_t entries;     /* elements of the sent units; computed in a section by blocks */
    /* Computed by frugi_section_measure(). */
    uint64_t blocks;                    /* 0 in a section by units */
    uint32_t last_length;               /* elements of the last block */
    uint32_t header;                    /* bytes of the header */
    uint64_t index_at, value_at, bytes; /* offsets in the payload, and its length; scales are at offset 0 */
} frugi_section;

/** Compute the derived fields. Returns 0 if the section is invalid. */
int frugi_section_measure(frugi_section *section);

/** Entries of block b, and of all blocks before it. */
uint32_t frugi_section_k(const frugi_section *section, uint64_t b);
uint64_t frugi_section_k_before(const frugi_section *section, uint64_t b);

/** Elements of block b. */
uint32_t frugi_section_length(const frugi_section *section, uint64_t b);

/** Offsets of the scale, the indices and the values of block b in a payload. */
typedef struct frugi_block_offsets {
    uint64_t scale, index, value;
} frugi_block_offsets;
frugi_block_offsets frugi_section_block_offsets(const frugi_section *section, uint64_t b);

/** Length of the header that begins with these four bytes. */
uint32_t frugi_section_header(const unsigned char *start);

/** Write the header of a section: section->header bytes. */
void frugi_section_write(const frugi_section *section, unsigned char *header);

/** Read a header and compute the derived fields. Returns 0 if it is invalid. */
int frugi_section_read(const unsigned char *header, frugi_section *section);

#endif

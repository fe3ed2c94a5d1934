/*
 * unit_index.h - encoding of the unit numbers of a section by units.
 *
 *   none     all of them; nothing is sent
 *   local    blocks of 256 units: one count byte each (255 means 255 or 256), then for each block
 *            that many bytes or, if there are more than 32, a bitmap of 32 bytes
 *   bitmap   one bit per unit
 *   coo      one u32 per unit sent
 *   csr      u32 row pointers of the grid of units, then the column of each unit sent, u16 or, beyond 65536
 *            columns, u32
 *   rle      LEB128 pairs: units not sent, units sent
 *   rice     gaps: the upper bits in unary, then the low `rice` bits
 *   seeded   nothing is sent: base/seeded_sample.h draws the units from section->key
 *
 * All but none and seeded are written from an ascending list, and read as a stream of ascending numbers.
 */
#ifndef FRUGI_UNIT_INDEX_H
#define FRUGI_UNIT_INDEX_H

#include "codec/section.h"
#include "base/seeded_sample.h"

#define FRUGI_INDEX_CODES FRUG_INDEX_CODES

/** Exact bytes of every code for one list; UINT64_MAX if a code cannot encode it. */
typedef struct frugi_index_sizes {
    uint64_t bytes[FRUGI_INDEX_CODES];
    uint32_t rice; /* the best number of low bits */
} frugi_index_sizes;

/** Compute the sizes of all codes in one pass over the list. Cost: O(kept). Allocates: never. */
void frugi_unit_index_measure(const frugi_grid *grid, const uint32_t *list, uint64_t kept, frugi_index_sizes *sizes);

#define FRUGI_SIZER_CHUNK   64u
#define FRUGI_SIZER_HISTORY 32u

/** The same for a list that is added in parts. */
typedef struct frugi_index_sizer {
    frugi_grid grid;
    uint64_t kept;
    uint32_t rice;    /* the first of three candidates for the number of low bits, one of which is the best */
    uint64_t high[3]; /* bits of the gaps in unary, beyond one bit each, for each candidate */
    uint64_t local, rle, run, seen;
    uint32_t fill;                                            /* of the chunk */
    uint32_t window[FRUGI_SIZER_HISTORY + FRUGI_SIZER_CHUNK]; /* the units before the chunk, then the chunk */
} frugi_index_sizer;

/** kept: number of units that will be added; last: the last of them. */
void frugi_index_sizer_start(frugi_index_sizer *sizer, const frugi_grid *grid, uint64_t kept, uint32_t last);
void frugi_index_sizer_add(frugi_index_sizer *sizer, const uint32_t *units, uint64_t n);
void frugi_index_sizer_finish(frugi_index_sizer *sizer, frugi_index_sizes *sizes);

/** Minimum and maximum bytes of the index code of a section; equal if its size is fixed. */
void frugi_unit_index_bounds(const frugi_section *section, uint64_t *least, uint64_t *most);

/** Encode a list into section->index_bytes bytes. list may be NULL for none and seeded. */
void frugi_unit_index_encode(const frugi_section *section, const uint32_t *list, unsigned char *out);

/** A reader of encoded unit numbers. */
typedef struct frugi_index_reader {
    const frugi_section *section;
    const unsigned char *index, *end;  /* bytes not read yet */
    uint64_t next;                     /* a lower bound of the next unit */
    uint64_t given;                    /* units returned, or ready to be returned */
    int bad;                           /* the bytes are invalid; no more units are returned */
    uint64_t bits;                     /* rice, bitmap: bits read ahead */
    uint32_t have;                     /* rice: number of those bits */
    uint64_t left;                     /* rle: remaining units of the run; csr: of the row */
    const unsigned char *count, *stop; /* local: counts of the next blocks; csr: ends of the next rows */
    uint64_t base;        /* local, seeded: first unit of the block; bitmap: of the word; csr: of the row */
    uint32_t at, indices; /* local, seeded: next index within the block, and their number */
    const uint8_t *local;
    uint8_t room[256];
    frugi_sample sample;
} frugi_index_reader;

void frugi_index_reader_start(frugi_index_reader *walk, const frugi_section *section, const unsigned char *index);

/**
 * Read the next units below limit, ascending, at most room of them. Fewer than room means that there are no more below
 * limit. Bytes that frugi_unit_index_check() would reject give arbitrary numbers, but nothing outside them is read.
 */
uint32_t frugi_index_read_below(frugi_index_reader *walk, uint64_t limit, uint32_t *units, uint32_t room);

/**
 * Whether the bytes are valid: exactly `kept` ascending unit numbers, which have section->entries elements in total,
 * and no bytes left over. Safe for any bytes. Cost: O(index_bytes + kept).
 */
int frugi_unit_index_check(const frugi_section *section, const unsigned char *index);

#endif

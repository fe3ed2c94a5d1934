/*
 * unit_index.h - how the numbers of the units sent by a section by units travel.
 *
 *   none     all of them; nothing is sent
 *   local    blocks of 256 units: one count byte each (255 stands for 255 and 256), then for each block in turn
 *            that many bytes, or, where there are more than 32, a bitmap of 32 bytes
 *   bitmap   one bit per unit
 *   coo      one u32 per unit sent
 *   csr      u32 row pointers of the grid of units, then the column of each unit sent, u16 or, beyond 65536
 *            columns, u32
 *   rle      LEB128 pairs: units left out, units sent
 *   rice     gaps: the upper part in unary, then the low `rice` bits as they are
 *   seeded   nothing is sent: common/sample.h draws them again from section->key
 *
 * All but none and seeded are written from an ascending list, and read as a stream of ascending numbers.
 */
#ifndef FRUGI_UNIT_INDEX_H
#define FRUGI_UNIT_INDEX_H

#include "codec/section.h"
#include "base/seeded_sample.h"

#define FRUGI_INDEX_CODES FRUG_INDEX_CODES

/** Exact bytes of every code for one list; UINT64_MAX where a code cannot say it. */
typedef struct frugi_index_sizes {
    uint64_t bytes[FRUGI_INDEX_CODES];
    uint32_t rice; /* the best number of low bits */
} frugi_index_sizes;

/** Measure all codes in one pass over the list. Cost: O(kept). Allocates: never. */
void frugi_unit_index_measure(const frugi_grid *grid, const uint32_t *list, uint64_t kept, frugi_index_sizes *sizes);

#define FRUGI_METER_CHUNK 64u
#define FRUGI_METER_PAST  32u

/** The same for a list that comes in pieces. */
typedef struct frugi_meter {
    frugi_grid grid;
    uint64_t kept;
    uint32_t rice;    /* the first of three numbers of low bits, one of which is the best */
    uint64_t high[3]; /* with each, what the gaps take in unary beyond one bit each */
    uint64_t local, rle, run, seen;
    uint32_t fill;                                         /* of the chunk */
    uint32_t window[FRUGI_METER_PAST + FRUGI_METER_CHUNK]; /* what comes before the chunk is looked at, too */
} frugi_meter;

/** kept: how many there will be; last: the last of them. */
void frugi_meter_start(frugi_meter *meter, const frugi_grid *grid, uint64_t kept, uint32_t last);
void frugi_meter_feed(frugi_meter *meter, const uint32_t *units, uint64_t n);
void frugi_meter_finish(frugi_meter *meter, frugi_index_sizes *sizes);

/** Least and most bytes that a section's index code may take; equal where its size is fixed. */
void frugi_unit_index_bounds(const frugi_section *section, uint64_t *least, uint64_t *most);

/** Write section->index_bytes bytes. list may be NULL for none and seeded. */
void frugi_unit_index_encode(const frugi_section *section, const uint32_t *list, unsigned char *out);

/** A place in a stream of unit numbers. */
typedef struct frugi_walk {
    const frugi_section *section;
    const unsigned char *index, *end;  /* what is not read yet */
    uint64_t next;                     /* the unit that the stream stands at or before */
    uint64_t given;                    /* units handed out, or ready to be */
    int bad;                           /* the bytes broke a rule; nothing more comes */
    uint64_t bits;                     /* rice, bitmap: bits read ahead */
    uint32_t have;                     /* rice: how many */
    uint64_t left;                     /* rle: units left of the run; csr: of the row */
    const unsigned char *count, *stop; /* local: counts of the next blocks; csr: ends of the next rows */
    uint64_t base;       /* local, seeded: first unit of the block; bitmap: of the word; csr: of the row */
    uint32_t at, places; /* local, seeded: within the block */
    const uint8_t *place;
    uint8_t room[256];
    frugi_sample sample;
} frugi_walk;

void frugi_walk_start(frugi_walk *walk, const frugi_section *section, const unsigned char *index);

/**
 * The next units below limit, ascending, at most room of them. Fewer than room means that there are no more below
 * limit. Bytes that frugi_unit_index_check() would refuse give any numbers, but nothing outside them is read.
 */
uint32_t frugi_walk_below(frugi_walk *walk, uint64_t limit, uint32_t *units, uint32_t room);

/**
 * Whether the bytes are what an encoder writes: exactly kept ascending numbers below units whose elements are
 * section->entries, nothing left over. Safe for any bytes. Cost: O(index_bytes + kept).
 */
int frugi_unit_index_check(const frugi_section *section, const unsigned char *index);

#endif

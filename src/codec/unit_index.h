/*
 * unit_index.h - how the numbers of the units sent by a section by units travel.
 *
 *   none     all of them; nothing is sent
 *   local    blocks of 256 units: one count byte each (255 stands for 255 and 256), then for each block in turn that
 * many bytes, or, where there are more than 32, a bitmap of 32 bytes bitmap   one bit per unit coo      one u32 per
 * unit sent csr      u32 row pointers of the grid of units, then the column of each unit sent, u16 or, beyond 65536
 * columns, u32 rle      LEB128 pairs: units left out, units sent rice     gaps, their low `rice` bits as they are and
 * the rest in unary seeded   nothing is sent: common/sample.h draws them again from section->key
 *
 * All but none and seeded are written from an ascending list, and read as a stream of ascending numbers.
 */
#ifndef FRUGI_UNIT_INDEX_H
#define FRUGI_UNIT_INDEX_H

#include "codec/section.h"

#define FRUGI_INDEX_CODES FRUG_INDEX_CODES

/** Exact bytes of every code for one list; UINT64_MAX where a code cannot say it. */
typedef struct frugi_index_sizes {
    uint64_t bytes[FRUGI_INDEX_CODES];
    uint32_t rice; /* the best number of low bits */
} frugi_index_sizes;

/** Measure all codes in one pass over the list. Cost: O(kept). Allocates: never. */
void frugi_unit_index_measure(const frugi_grid *grid, const uint32_t *list, uint64_t kept, frugi_index_sizes *sizes);

/** Write section->index_bytes bytes. list may be NULL for none and seeded. */
void frugi_unit_index_encode(const frugi_section *section, const uint32_t *list, unsigned char *out);

/** A place in a stream of unit numbers. */
typedef struct frugi_walk {
    const frugi_section *section;
    const unsigned char *index, *end;
    uint64_t next;  /* the unit that the stream stands at or before */
    uint64_t given; /* units handed out */
    uint64_t state[4];
    uint64_t bits;
    uint8_t place[256];
} frugi_walk;

void frugi_walk_start(frugi_walk *walk, const frugi_section *section, const unsigned char *index);

/**
 * The next units below limit, ascending, at most room of them. Fewer than room means that there are no more below
 * limit. Only for indices that frugi_unit_index_check() has passed.
 */
uint32_t frugi_walk_below(frugi_walk *walk, uint64_t limit, uint32_t *units, uint32_t room);

/**
 * Whether the bytes are what an encoder writes: exactly kept ascending numbers below units whose elements are
 * section->entries, nothing left over. Safe for any bytes. Cost: O(index_bytes + kept).
 */
int frugi_unit_index_check(const frugi_section *section, const unsigned char *index);

#endif

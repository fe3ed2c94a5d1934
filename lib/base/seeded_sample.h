/*
 * seeded_sample.h - a random set of units that sender and receiver draw alike, so that no index travels.
 *
 * The units are cut into blocks of 256. Block b draws c(b + 1) - c(b) of its units, with
 * c(b) = floor((kept * min(256 b, units) + phase) / units) and a random phase below units, so exactly `kept` are drawn
 * in all and every unit has the same chance, kept / units.
 */
#ifndef FRUGI_SEEDED_SAMPLE_H
#define FRUGI_SEEDED_SAMPLE_H

#include <stdint.h>

#define FRUGI_SAMPLE_BLOCK 256u

typedef struct frugi_sample {
    uint64_t key; /* seed, mixed with all that the draw depends on */
    uint64_t units, kept;
    uint64_t phase; /* worked out by frugi_sample_start() */
} frugi_sample;

/** kept <= units <= 2^32 - 1. */
frugi_sample frugi_sample_start(uint64_t key, uint64_t units, uint64_t kept);

/** Draw the places of block b, ascending, within the block. Returns how many, at most 256. */
uint32_t frugi_sample_draw(const frugi_sample *sample, uint64_t b, uint8_t *place);

#endif

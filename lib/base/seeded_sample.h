/*
 * seeded_sample.h - a random set of units that sender and receiver derive from the same seed, so no index is sent.
 *
 * The units are divided into blocks of 256. Block b draws c(b + 1) - c(b) of its units, with
 * c(b) = floor((kept * min(256 b, units) + phase) / units) and a random phase below units, so exactly `kept` are drawn
 * in total and every unit has the same probability, kept / units.
 */
#ifndef FRUGI_SEEDED_SAMPLE_H
#define FRUGI_SEEDED_SAMPLE_H

#include <stdint.h>

#define FRUGI_SAMPLE_BLOCK 256u

typedef struct frugi_sample {
    uint64_t key; /* seed, mixed with everything else that the sample depends on */
    uint64_t units, kept;
    uint64_t phase; /* computed by frugi_sample_start() */
} frugi_sample;

/** kept <= units <= 2^32 - 1. */
frugi_sample frugi_sample_start(uint64_t key, uint64_t units, uint64_t kept);

/** Draw the indices within block b, ascending. Returns their number, at most 256. */
uint32_t frugi_sample_draw(const frugi_sample *sample, uint64_t b, uint8_t *index);

#endif

/*
 * learned_mask.h - selection by a learned mask, which is renewed periodically from the energy of the units.
 *
 * The score of a unit changes by rate * (its energy / the mean energy - 1) per step. Every `refresh` steps the units
 * with the highest scores become the mask. A unit that has not been sent for `age` steps is sent even if it is not in
 * the mask, longest wait first; so with k units per step none waits longer than age + ceil(units / k) - 1 steps.
 */
#ifndef FRUGI_LEARNED_MASK_H
#define FRUGI_LEARNED_MASK_H

#include "frugrad.h"
#include "select/tensor_topk.h"

typedef struct frugi_learned {
    uint64_t units;
    float *score;
    uint32_t *waited; /* steps since a unit was last sent */
    uint8_t *mask;
    uint8_t fresh; /* no mask yet */
} frugi_learned;

frug_status frugi_learned_create(uint64_t units, frugi_learned *learned);
void frugi_learned_destroy(frugi_learned *learned);

/**
 * Update the scores from the energies of a step and select k units: those that have waited for age steps, longest
 * first, then those in the mask and then the others, highest scores first; ties go to the lower number. The list is
 * ascending. Returns k.
 *
 *   k         at most units
 *   energy    units floats, not negative
 *   scratch   units floats
 */
uint64_t frugi_learned_step(frugi_learned *learned, frugi_topk *whole, const float *energy, uint64_t k, uint64_t step,
                            uint64_t refresh, uint64_t age, double rate, float *scratch, uint32_t *list, int threads);

/** The state as bytes, for checkpoints. */
size_t frugi_learned_bytes(const frugi_learned *learned);
void frugi_learned_export(const frugi_learned *learned, unsigned char *dst);
int frugi_learned_check(const frugi_learned *like, const unsigned char *src);
void frugi_learned_import(frugi_learned *learned, const unsigned char *src);

#endif

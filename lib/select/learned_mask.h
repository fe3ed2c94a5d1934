/*
 * learned_mask.h - masks that are learned: which units are worth sending is decided every so often, from how much they
 * have had to say since.
 *
 * Each unit has a score that moves by rate * (its energy / the mean energy - 1) a step. Every `refresh` steps the units
 * with the highest scores become the mask. A unit that has waited `age` steps is sent all the same, those that have
 * waited longest first; so with k units a step none waits longer than age + ceil(units / k) - 1 steps.
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
 * Learn from a step's energies and say which k units leave: those that have waited for age steps, longest first, then
 * the mask's and then the rest, highest scores first; lower numbers win ties. The list is ascending. Returns k.
 *
 *   k         at most units
 *   energy    units floats, not negative
 *   scratch   units floats
 */
uint64_t frugi_learned_step(frugi_learned *learned, frugi_whole *whole, const float *energy, uint64_t k, uint64_t step,
                            uint64_t refresh, uint64_t age, double rate, float *scratch, uint32_t *list, int threads);

/** The state as bytes, for saving. */
size_t frugi_learned_bytes(const frugi_learned *learned);
void frugi_learned_export(const frugi_learned *learned, unsigned char *dst);
int frugi_learned_check(const frugi_learned *like, const unsigned char *src);
void frugi_learned_import(frugi_learned *learned, const unsigned char *src);

#endif

/*
 * sample.c - draw without replacement by Floyd's method: the j-th draw picks a place below its own bound, or the bound
 * itself when that place is taken, which needs one random number per place drawn. More than half of a block is
 * drawn as what stays out.
 */
#include "common/sample.h"

#include "common/random.h"

#include <string.h>

#define PHASE_DRAW UINT64_MAX

/* A number below limit < 2^32, up to a bias of limit / 2^64. */
static uint64_t below(uint64_t key, uint64_t counter, uint64_t limit) {
    uint64_t high = frugi_random(key, 0, counter), low = frugi_random(key, 1, counter);
    return (high * limit + (low * limit >> 32)) >> 32;
}

frugi_sample frugi_sample_start(uint64_t key, uint64_t units, uint64_t kept) {
    frugi_sample s = {.key = key, .units = units, .kept = kept};
    s.phase = units ? below(key, PHASE_DRAW, units) : 0;
    return s;
}

/* Units drawn before a place. */
static uint64_t drawn_before(const frugi_sample *s, uint64_t place) {
    uint64_t at = place < s->units ? place : s->units;
    return (s->kept * at + s->phase) / s->units; /* below 2^64: kept and at are below 2^32 */
}

uint32_t frugi_sample_draw(const frugi_sample *s, uint64_t b, uint8_t *place) {
    uint64_t from = b * FRUGI_SAMPLE_BLOCK;
    if (from >= s->units)
        return 0;
    uint32_t n = s->units - from < FRUGI_SAMPLE_BLOCK ? (uint32_t)(s->units - from) : FRUGI_SAMPLE_BLOCK;
    uint32_t k = (uint32_t)(drawn_before(s, from + n) - drawn_before(s, from)), out = 0;
    uint32_t draws = k > n / 2 ? n - k : k;
    uint8_t taken[FRUGI_SAMPLE_BLOCK];
    memset(taken, k > n / 2, sizeof taken);
    for (uint32_t j = n - draws; j < n; j++) {
        uint32_t at = (uint32_t)(((uint64_t)frugi_random(s->key, 2 + b, j) * (j + 1)) >> 32);
        at = taken[at] == (k <= n / 2) ? j : at;
        taken[at] = k <= n / 2;
    }
    for (uint32_t i = 0; i < n; i++)
        if (taken[i])
            place[out++] = (uint8_t)i;
    return k;
}

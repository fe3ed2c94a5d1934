/*
 * seeded_sample.c - draw without replacement by Floyd's method: the j-th draw picks a place below its own bound, or the
 * bound itself when that place is taken, which needs one random number per place drawn. More than half of a block is
 * drawn as what stays out.
 */
#include "base/seeded_sample.h"

#include "base/philox.h"

#include <stdbool.h>

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
    bool out_instead = k > n / 2;
    uint32_t draws = out_instead ? n - k : k;
    uint64_t drawn[FRUGI_SAMPLE_BLOCK / 64] = {0};
    for (uint32_t j = n - draws; j < n; j++) {
        uint32_t at = (uint32_t)(((uint64_t)frugi_random(s->key, 2 + b, j) * (j + 1)) >> 32);
        at = drawn[at / 64] >> (at % 64) & 1 ? j : at;
        drawn[at / 64] |= (uint64_t)1 << (at % 64);
    }
    for (uint32_t w = 0; w < n; w += 64) {
        uint64_t inside = n - w < 64 ? ((uint64_t)1 << (n - w)) - 1 : UINT64_MAX;
        for (uint64_t bits = (out_instead ? ~drawn[w / 64] : drawn[w / 64]) & inside; bits; bits &= bits - 1)
            place[out++] = (uint8_t)(w + (uint32_t)__builtin_ctzll(bits));
    }
    return k;
}

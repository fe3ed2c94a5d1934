/*
 * seeded_sample.c - sampling without replacement by Floyd's algorithm.
 *
 * Draw j picks a random index in 0 .. j, or j itself if that index was drawn before, so each draw needs one random
 * number. If more than half of a block is to be drawn, the indices to exclude are drawn instead.
 */
#include "base/seeded_sample.h"

#include "base/philox.h"

#include <stdbool.h>

#define PHASE_DRAW UINT64_MAX

/* A random number below limit < 2^32, with a bias of at most limit / 2^64. */
static uint64_t random_below(uint64_t key, uint64_t counter, uint64_t limit) {
    uint64_t high = frugi_random(key, 0, counter), low = frugi_random(key, 1, counter);
    return (high * limit + (low * limit >> 32)) >> 32;
}

frugi_sample frugi_sample_start(uint64_t key, uint64_t units, uint64_t kept) {
    frugi_sample s = {.key = key, .units = units, .kept = kept};
    s.phase = units ? random_below(key, PHASE_DRAW, units) : 0;
    return s;
}

/* Number of drawn units below an index. */
static uint64_t drawn_before(const frugi_sample *s, uint64_t index) {
    uint64_t at = index < s->units ? index : s->units;
    return (s->kept * at + s->phase) / s->units; /* below 2^64: kept and at are below 2^32 */
}

uint32_t frugi_sample_draw(const frugi_sample *s, uint64_t b, uint8_t *index) {
    uint64_t from = b * FRUGI_SAMPLE_BLOCK;
    if (from >= s->units)
        return 0;
    uint32_t n = s->units - from < FRUGI_SAMPLE_BLOCK ? (uint32_t)(s->units - from) : FRUGI_SAMPLE_BLOCK;
    uint32_t k = (uint32_t)(drawn_before(s, from + n) - drawn_before(s, from)), out = 0;
    bool draw_excluded = k > n / 2;
    uint32_t draws = draw_excluded ? n - k : k;
    uint64_t drawn[FRUGI_SAMPLE_BLOCK / 64] = {0};
    for (uint32_t j = n - draws; j < n; j++) {
        uint32_t at = (uint32_t)(((uint64_t)frugi_random(s->key, 2 + b, j) * (j + 1)) >> 32);
        at = drawn[at / 64] >> (at % 64) & 1 ? j : at;
        drawn[at / 64] |= (uint64_t)1 << (at % 64);
    }
    for (uint32_t w = 0; w < n; w += 64) {
        uint64_t valid = n - w < 64 ? ((uint64_t)1 << (n - w)) - 1 : UINT64_MAX;
        for (uint64_t bits = (draw_excluded ? ~drawn[w / 64] : drawn[w / 64]) & valid; bits; bits &= bits - 1)
            index[out++] = (uint8_t)(w + (uint32_t)__builtin_ctzll(bits));
    }
    return k;
}

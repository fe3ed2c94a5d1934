/*
 * keyed_random.h - counter-based random numbers: a pure function of (seed, stream, counter). There is no generator
 * state, so a restart, another number of threads or another order of calls changes no draw.
 *
 * The mixing function is that of SplitMix64, applied to the three words: fast, and good enough for weights, masks and
 * shuffles.
 */
#ifndef FGT_KEYED_RANDOM_H
#define FGT_KEYED_RANDOM_H

#include <stdint.h>

/** Purposes of draws: streams with different numbers are independent. Users distinguish further streams by bits from 8
 * up. */
enum {
    FGT_STREAM_WEIGHTS = 1,
    FGT_STREAM_DROPOUT,
    FGT_STREAM_SHUFFLE,
    FGT_STREAM_AUGMENT,
    FGT_STREAM_MASK,
    FGT_STREAM_BUILTIN,
    FGT_STREAM_SAMPLE,
    FGT_STREAM_SHARE
};

static inline uint64_t fgt_mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/** 64 random bits. */
static inline uint64_t fgt_random(uint64_t seed, uint64_t stream, uint64_t counter) {
    return fgt_mix(fgt_mix(fgt_mix(seed) ^ stream) ^ counter);
}

/** Uniform in [0, 1): 24 of 64 bits. */
static inline float fgt_uniform(uint64_t bits) {
    return (float)(bits >> 40) * 0x1p-24f;
}

/** A draw from the standard normal distribution. */
float fgt_normal(uint64_t bits);

#endif

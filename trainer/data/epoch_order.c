/*
 * epoch_order.c - shuffling without a list. A Feistel network of eight rounds over 2m bits is a permutation of [0, 4^m)
 * whatever its round function is; here that is a keyed hash. With 4^m the smallest such power >= n, a result outside
 * [0, n) is permuted again until it falls inside (cycle walking), which restricts the permutation to [0, n) and takes
 * fewer than four rounds on average. Any sample of any epoch is found in constant time, so workers and restarts agree
 * without communication.
 */
#include "trainer/data/epoch_order.h"
#include "trainer/base/keyed_random.h"

enum { ROUNDS = 8 };

static uint64_t feistel(uint64_t key, int half, uint64_t i) {
    uint64_t mask = (UINT64_C(1) << half) - 1, left = i >> half, right = i & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (fgt_mix(key + (round << 32 | right)) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t fgt_epoch_order(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i) {
    int half = 1;
    while (half < 31 && n > UINT64_C(1) << 2 * half)
        half++;
    uint64_t key = fgt_random(seed, FGT_STREAM_SHUFFLE, epoch);
    do
        i = feistel(key, half, i);
    while (i >= n);
    return i;
}

/*
 * bench_nth.cpp - the two usual ways to the k largest with the C++ library. bench times both and holds frug_compress()
 * against the faster one. Built where a C++ compiler is found; needs nothing of the C++ library at run time.
 */
#include "program/bench/bench_nth.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

/* Magnitudes as whole numbers order like floats, and nth_element is a fifth faster on them. */
static inline uint32_t size_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

void fgp_nth_by_threshold(const float *x, uint64_t n, uint64_t k, void *scratch, uint32_t *index, float *value) {
    uint32_t *sizes = static_cast<uint32_t *>(scratch);
    for (uint64_t i = 0; i < n; i++)
        sizes[i] = size_of(x[i]);
    std::nth_element(sizes, sizes + (k - 1), sizes + n, std::greater<uint32_t>());
    const uint32_t least = sizes[k - 1];
    uint64_t ties = k;
    for (uint64_t i = 0; i < k; i++)
        ties -= sizes[i] > least;
    for (uint64_t i = 0, found = 0; i < n; i++) {
        const uint32_t size = size_of(x[i]);
        if (size < least || (size == least && ties == 0))
            continue;
        ties -= size == least;
        index[found] = static_cast<uint32_t>(i);
        value[found++] = x[i];
    }
}

void fgp_nth_by_index(const float *x, uint64_t n, uint64_t k, void *scratch, uint32_t *index, float *value) {
    uint32_t *place = static_cast<uint32_t *>(scratch);
    std::iota(place, place + n, 0u);
    std::nth_element(place, place + (k - 1), place + n, [x](uint32_t a, uint32_t b) {
        const uint32_t first = size_of(x[a]), second = size_of(x[b]);
        return first > second || (first == second && a < b);
    });
    std::sort(place, place + k);
    for (uint64_t i = 0; i < k; i++) {
        index[i] = place[i];
        value[i] = x[place[i]];
    }
}

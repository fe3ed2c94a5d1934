/*
 * n_of_m.c - every pair of a group is compared once and the loser's rank goes up; the n lowest ranks win. For two of
 * four that is six comparisons, which no search can beat. The usual lengths get loops of their own, which the compiler
 * lays out flat.
 */
#include "select/n_of_m.h"

#include "base/float_bits.h"

static inline __attribute__((always_inline)) uint32_t *
groups_of(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, uint32_t eyes, uint32_t *list) {
    for (uint64_t g = first; g < end; g++) {
        uint32_t key[FRUGI_GROUPS_MOST], rank[FRUGI_GROUPS_MOST];
        for (uint32_t i = 0; i < m; i++) {
            key[i] = frugi_magnitude(x[g * m + i]) & eyes;
            rank[i] = 0;
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i + 1 < m; i++)
#pragma GCC unroll 16
            for (uint32_t j = i + 1; j < m; j++) {
                uint32_t later = key[j] > key[i]; /* only a larger one passes one that comes before it */
                rank[i] += later;
                rank[j] += 1 - later;
            }
        uint32_t base = (uint32_t)(g * m), winners[FRUGI_GROUPS_MOST + 1], out = 0;
#pragma GCC unroll 16
        for (uint32_t i = 0; i < m; i++) {
            winners[out] = base + i;
            out += rank[i] < n;
        }
        for (uint32_t i = 0; i < n; i++)
            list[i] = winners[i];
        list += n;
    }
    return list;
}

uint32_t *frugi_select_groups(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, frugi_selector how,
                              uint32_t *list) {
    uint32_t eyes = how == FRUGI_SELECT_EXACT ? UINT32_MAX : 0xffff0000u;
    if (m == 4 && n == 2)
        return groups_of(x, first, end, 4, 2, eyes, list);
    if (m == 4)
        return groups_of(x, first, end, 4, n, eyes, list);
    if (m == 8)
        return groups_of(x, first, end, 8, n, eyes, list);
    return groups_of(x, first, end, m, n, eyes, list);
}

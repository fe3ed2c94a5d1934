/*
 * n_of_m.c - N:M selection by ranking.
 *
 * Every pair of a group is compared once, which increments the rank of the smaller element; the n lowest ranks are
 * selected. For two of four that is six comparisons, fewer than any search. The common sizes get their own loops, which
 * the compiler unrolls.
 */
#include "select/n_of_m.h"

#include "base/float_bits.h"

static inline __attribute__((always_inline)) uint32_t *
select_groups(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, uint32_t key_mask, uint32_t *list) {
    for (uint64_t g = first; g < end; g++) {
        uint32_t key[FRUGI_N_OF_M_MAX], rank[FRUGI_N_OF_M_MAX];
        for (uint32_t i = 0; i < m; i++) {
            key[i] = frugi_magnitude(x[g * m + i]) & key_mask;
            rank[i] = 0;
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i + 1 < m; i++)
#pragma GCC unroll 16
            for (uint32_t j = i + 1; j < m; j++) {
                uint32_t later = key[j] > key[i]; /* of equal keys, the first has the lower rank */
                rank[i] += later;
                rank[j] += 1 - later;
            }
        uint32_t base = (uint32_t)(g * m), selected[FRUGI_N_OF_M_MAX + 1], out = 0;
#pragma GCC unroll 16
        for (uint32_t i = 0; i < m; i++) {
            selected[out] = base + i;
            out += rank[i] < n;
        }
        for (uint32_t i = 0; i < n; i++)
            list[i] = selected[i];
        list += n;
    }
    return list;
}

uint32_t *frugi_select_n_of_m(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, frugi_selector how,
                              uint32_t *list) {
    uint32_t key_mask = how == FRUGI_SELECT_EXACT ? UINT32_MAX : 0xffff0000u;
    if (m == 4 && n == 2)
        return select_groups(x, first, end, 4, 2, key_mask, list);
    if (m == 4)
        return select_groups(x, first, end, 4, n, key_mask, list);
    if (m == 8)
        return select_groups(x, first, end, 8, n, key_mask, list);
    return select_groups(x, first, end, m, n, key_mask, list);
}

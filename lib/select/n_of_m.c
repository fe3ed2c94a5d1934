/*
 * n_of_m.c - N:M selection by ranking.
 *
 * Every pair of a group is compared once, which increments the rank of the smaller element; the n lowest ranks are
 * selected. For two of four that is six comparisons, fewer than any search. The common sizes get their own loops, which
 * the compiler unrolls. Fours are marked in vectors (tensor_topk_scan.h).
 */
#include "select/n_of_m.h"

#include "base/float_bits.h"
#include "select/tensor_topk_scratch.h"

#define WORD 64u

/* The rank of each of m keys: how many are larger, or equal and before it. */
static inline __attribute__((always_inline)) void rank_keys(const float *x, uint32_t m, uint32_t key_mask,
                                                            uint32_t *rank) {
    uint32_t key[FRUGI_N_OF_M_MAX];
    for (uint32_t i = 0; i < m; i++) {
        key[i] = frugi_magnitude(x[i]) & key_mask;
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
}

static inline __attribute__((always_inline)) uint32_t *
select_groups(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, uint32_t key_mask, uint32_t *list) {
    for (uint64_t g = first; g < end; g++) {
        uint32_t rank[FRUGI_N_OF_M_MAX];
        rank_keys(x + g * m, m, key_mask, rank);
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

static uint32_t key_mask_of(frugi_selector how) {
    return how == FRUGI_SELECT_EXACT ? UINT32_MAX : 0xffff0000u;
}

uint32_t *frugi_select_n_of_m(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, frugi_selector how,
                              uint32_t *list) {
    uint32_t key_mask = key_mask_of(how);
    if (m == 4 && n == 2)
        return select_groups(x, first, end, 4, 2, key_mask, list);
    if (m == 4)
        return select_groups(x, first, end, 4, n, key_mask, list);
    if (m == 8)
        return select_groups(x, first, end, 8, n, key_mask, list);
    return select_groups(x, first, end, m, n, key_mask, list);
}

void frugi_mark_n_of_4(const frugi_topk *whole, const float *x, uint32_t count, uint32_t n, frugi_selector how,
                       uint64_t *bits) {
    uint32_t words = count / WORD, done = words * WORD, rank[4];
    if (done < count)
        bits[words] = 0;
    whole->kernel->mark_fours(x, words, n, key_mask_of(how), bits);
    for (uint32_t i = done; i < count; i += 4) {
        rank_keys(x + i, 4, key_mask_of(how), rank);
        for (uint32_t j = 0; j < 4; j++)
            bits[words] |= (uint64_t)(rank[j] < n) << (i - done + j);
    }
}

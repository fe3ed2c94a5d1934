/* n_of_m.h - N:M selection: the N largest of every M consecutive elements, for small M. */
#ifndef FRUGI_N_OF_M_H
#define FRUGI_N_OF_M_H

#include "config/config.h"
#include "select/tensor_topk.h"

#define FRUGI_N_OF_M_MAX 16u

/**
 * Indices of the n largest of each group of m, ascending; ties go to the lower index.
 *
 *   x              first element of group 0
 *   first, end     range of groups, all of them full; indices count from x
 *   1 <= n < m <= FRUGI_N_OF_M_MAX
 *
 * Returns the end of the list. Cost: m (m - 1) / 2 comparisons per group, no branch on data. Allocates: never.
 */
uint32_t *frugi_select_n_of_m(const float *x, uint64_t first, uint64_t end, uint32_t m, uint32_t n, frugi_selector how,
                              uint32_t *list);

/**
 * The same for fours, as one bit per element, from the lowest bit of the first word on; the bits after the last element
 * are 0.
 *
 *   count   elements, a multiple of 4
 */
void frugi_mark_n_of_4(const frugi_topk *whole, const float *x, uint32_t count, uint32_t n, frugi_selector how,
                       uint64_t *bits);

#endif

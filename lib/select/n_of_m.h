/* n_of_m.h - N:M selection: the N largest of every M consecutive elements, for small M. */
#ifndef FRUGI_N_OF_M_H
#define FRUGI_N_OF_M_H

#include "config/config.h"

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

#endif

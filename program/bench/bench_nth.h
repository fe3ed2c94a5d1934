/* bench_nth.h - the k largest of n by std::nth_element, the baseline of the library's selection. */
#ifndef FGP_BENCH_NTH_H
#define FGP_BENCH_NTH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The indices and values of the k largest magnitudes of x, in ascending order of index; of equal ones the first.
 *
 *   scratch        n numbers of four bytes
 *   index, value   k each
 */
typedef void fgp_nth_fn(const float *x, uint64_t n, uint64_t k, void *scratch, uint32_t *index, float *value);

fgp_nth_fn fgp_nth_by_threshold; /* partition a copy of the magnitudes, then select by the threshold */
fgp_nth_fn fgp_nth_by_index;     /* partition the indices by magnitude, then sort the first k */

#ifdef __cplusplus
}
#endif

#endif

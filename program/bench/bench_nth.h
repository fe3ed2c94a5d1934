/* bench_nth.h - the k largest of n by std::nth_element, which the library's own selection is held against. */
#ifndef FGP_BENCH_NTH_H
#define FGP_BENCH_NTH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The places and values of the k largest magnitudes of x, by rising place; of equals the first ones.
 *
 *   scratch        n numbers of four bytes
 *   index, value   k each
 */
typedef void fgp_nth_fn(const float *x, uint64_t n, uint64_t k, void *scratch, uint32_t *index, float *value);

fgp_nth_fn fgp_nth_by_threshold; /* partition a copy of the magnitudes, then pick what reaches the threshold */
fgp_nth_fn fgp_nth_by_index;     /* partition the places by the magnitudes there, then sort those in front */

#ifdef __cplusplus
}
#endif

#endif

/* prune_scores.h - which weights are pruned: those with the lowest scores of their group. */
#ifndef FGP_PRUNE_SCORES_H
#define FGP_PRUNE_SCORES_H

#include <stddef.h>
#include <stdint.h>

/** Set all but the `keep` highest of n scores to -1; scores are at least 0. Ties go to the lower index. */
void fgp_prune_lowest(float *score, size_t n, size_t keep);

/** In every group of m scores, set all but the n highest to -1; the last group may be shorter. Ties likewise. */
void fgp_prune_n_of_m(float *score, size_t count, uint32_t n, uint32_t m);

#endif

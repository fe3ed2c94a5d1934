/* data_subset.h - some of the training samples of a data set: the share of one client of a federated run. */
#ifndef FGT_DATA_SUBSET_H
#define FGT_DATA_SUBSET_H

#include "trainer/data/data_set.h"

/** Indices of training samples, ascending. */
typedef struct fgt_subset {
    uint64_t *index;
    uint64_t count;
} fgt_subset;

void fgt_subset_free(fgt_subset *subset);

/** Part `part` of `parts`, from 0: every sample is in one part; equal sizes. Returns an exit status, after an error
 * message. */
int fgt_subset_share(const fgt_data *data, uint64_t part, uint64_t parts, fgt_subset *subset);

/** The same with shares of each class that are drawn from a Dirichlet distribution: with a small alpha a part has most
 * samples of a few classes. The same seed gives the same parts, and every sample is in one part. For samples with a
 * class; an error message otherwise. */
int fgt_subset_dirichlet(const fgt_data *data, double alpha, uint64_t seed, uint64_t part, uint64_t parts,
                         fgt_subset *subset);

/** Loads samples of the subset, as fgt_data_batch() does of the training split. */
int fgt_subset_batch(const fgt_data *data, const fgt_subset *subset, uint64_t epoch, uint64_t first, uint32_t n,
                     fgt_batch *batch);

#endif

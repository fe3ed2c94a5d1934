/* mask_select.h - which weights a mask keeps: the largest, by tensor or over all of them, or N of every M. */
#ifndef FGT_MASK_SELECT_H
#define FGT_MASK_SELECT_H

#include "trainer/sparse/sparse_options.h"
#include "trainer/sparse/weight_mask.h"

/** Scored elements, of which some are selected. */
typedef struct fgt_candidates {
    const float *score;   /* magnitudes are compared */
    const uint8_t *among; /* a mask: the elements that may be selected; NULL: all */
    bool inverted;        /* those whose bit is 0 instead */
    size_t count;
    uint8_t *selected; /* a mask, to which the bits of the selected are added */
} fgt_candidates;

/** Selects the `keep` elements with the largest scores of several sets together, or all if there are fewer; ties go to
 * the lower set and index. */
void fgt_select_largest(const fgt_candidates *set, size_t sets, uint64_t keep);

/** Elements of each parameter with a mask, in their order, that make a density of all of them; at least one each. With
 * FGT_LAYERS_GLOBAL only the sum counts. */
void fgt_layer_counts(const fgt_graph *g, fgt_sparse_layers layers, double density, uint64_t *keep);

/** A matrix of outputs and their inputs: score (o, i) is at o * output_stride + i * input_stride. */
typedef struct fgt_group_rows {
    size_t outputs, inputs, output_stride, input_stride;
} fgt_group_rows;

/** The weights of a parameter as such a matrix. */
fgt_group_rows fgt_param_rows(const fgt_param *p);

/** Adds to a mask the n largest of every m scores along the inputs of an output, and the ones that are left over at the
 * end; ties go to the lower index. */
void fgt_select_n_of_m(const fgt_group_rows *rows, const float *score, uint32_t n, uint32_t m, uint8_t *selected);

#endif

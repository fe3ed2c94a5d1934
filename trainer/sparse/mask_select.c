/*
 * mask_select.c - selection by magnitude. The bits of a magnitude order like the magnitude itself, so two histograms,
 * of the upper and the lower half of the bits, find the smallest selected one; no sorting, no copy. ERK is that of Evci
 * et al., "Rigging the Lottery" (arXiv:1911.11134).
 */
#include "trainer/sparse/mask_select.h"

#include "base/float_bits.h"

#include <stdlib.h>
#include <string.h>

#define LOW_BITS 15
#define BINS     65536u

static bool is_candidate(const fgt_candidates *c, size_t i) {
    return fgt_mask_bit(c->among, i) != c->inverted;
}

static uint32_t key_of(const fgt_candidates *c, size_t i) {
    return frugi_f32_bits(c->score[i]) & FRUGI_ABS_MASK;
}

/* The bin of the keep-th largest, and how many of the bin are selected; below 0: all candidates are. */
static int find_bin(const uint64_t *bins, uint64_t *keep) {
    int bin = (int)BINS - 1;
    for (; bin >= 0 && bins[bin] < *keep; bin--)
        *keep -= bins[bin];
    return bin;
}

/* The smallest selected key; *ties: how many elements with that key are selected. */
static uint32_t find_cutoff(const fgt_candidates *set, size_t sets, uint64_t keep, uint64_t *ties) {
    static _Thread_local uint64_t bins[BINS];
    memset(bins, 0, sizeof bins);
    for (const fgt_candidates *c = set; c < set + sets; c++)
        for (size_t i = 0; i < c->count; i++)
            bins[key_of(c, i) >> LOW_BITS] += is_candidate(c, i);
    int high = find_bin(bins, &keep);
    *ties = UINT64_MAX;
    if (high < 0)
        return 0;
    memset(bins, 0, sizeof bins);
    for (const fgt_candidates *c = set; c < set + sets; c++)
        for (size_t i = 0; i < c->count; i++)
            if (key_of(c, i) >> LOW_BITS == (uint32_t)high)
                bins[key_of(c, i) & ((1u << LOW_BITS) - 1)] += is_candidate(c, i);
    int low = find_bin(bins, &keep);
    *ties = keep;
    return (uint32_t)high << LOW_BITS | (uint32_t)low;
}

void fgt_select_largest(const fgt_candidates *set, size_t sets, uint64_t keep) {
    uint64_t ties = 0;
    if (keep == 0)
        return;
    uint32_t cutoff = find_cutoff(set, sets, keep, &ties);
    for (const fgt_candidates *c = set; c < set + sets; c++)
        for (size_t i = 0; i < c->count; i++) {
            uint32_t key = key_of(c, i);
            if (!is_candidate(c, i) || key < cutoff || (key == cutoff && ties == 0))
                continue;
            ties -= key == cutoff;
            fgt_mask_set(c->selected, i);
        }
}

static double erk_weight(const fgt_param *p) {
    double sum = 0;
    for (uint32_t d = 0; d < p->tensor.ndim; d++)
        sum += (double)p->tensor.shape[d];
    return sum; /* over the number of elements, which it is multiplied by */
}

/* The factor of ERK: tensors for which it gives more than all elements are dense, which increases it for the others. */
static double erk_factor(const fgt_graph *g, double density) {
    double factor = 0;
    for (;;) {
        double wanted = 0, weights = 0;
        for (const fgt_param *p = g->params; p; p = p->next) {
            double n = (double)(p->rows * p->cols);
            bool dense = factor * erk_weight(p) >= n;
            wanted += p->mask ? density * n - (dense ? n : 0) : 0;
            weights += p->mask && !dense ? erk_weight(p) : 0;
        }
        double next = weights > 0 ? wanted / weights : factor;
        if (next <= factor)
            return factor;
        factor = next;
    }
}

void fgt_layer_counts(const fgt_graph *g, fgt_sparse_layers layers, double density, uint64_t *keep) {
    double factor = layers == FGT_LAYERS_ERK ? erk_factor(g, density) : 0;
    for (const fgt_param *p = g->params; p; p = p->next) {
        if (!p->mask)
            continue;
        double n = (double)(p->rows * p->cols), k = layers == FGT_LAYERS_ERK ? factor * erk_weight(p) : density * n;
        *keep++ = k >= n ? (uint64_t)n : k < 1 ? 1 : (uint64_t)(k + 0.5);
    }
}

/* Bits of the n largest of m weights that are `stride` apart. */
static void select_group(const float *w, size_t first, size_t stride, uint32_t n, uint32_t m, uint8_t *selected) {
    for (uint32_t i = 0; i < m; i++) {
        uint32_t larger = 0, key = frugi_f32_bits(w[first + i * stride]) & FRUGI_ABS_MASK;
        for (uint32_t j = 0; j < m; j++) {
            uint32_t other = frugi_f32_bits(w[first + j * stride]) & FRUGI_ABS_MASK;
            larger += other > key || (other == key && j < i);
        }
        if (larger < n)
            fgt_mask_set(selected, first + i * stride);
    }
}

void fgt_select_n_of_m(const fgt_param *p, const float *w, uint32_t n, uint32_t m, uint8_t *selected) {
    bool columns = p->tensor.input_first; /* a column has the inputs of an output */
    size_t outputs = columns ? p->cols : p->rows, inputs = columns ? p->rows : p->cols;
    size_t stride = columns ? p->cols : 1, next = columns ? 1 : p->cols;
    for (size_t o = 0; o < outputs; o++)
        for (size_t i = 0; i < inputs; i += m) {
            uint32_t here = inputs - i < m ? (uint32_t)(inputs - i) : m;
            select_group(w, o * next + i * stride, stride, here < m ? here : n, here, selected);
        }
}

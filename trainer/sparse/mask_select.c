/*
 * mask_select.c - selection by magnitude. The bits of a magnitude order like the magnitude itself, so four histograms,
 * one of each byte, find the smallest selected one; no sorting, no copy. ERK is that of Evci et al., "Rigging the
 * Lottery" (arXiv:1911.11134).
 */
#include "trainer/sparse/mask_select.h"

#include "base/float_bits.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 8
#define DIGITS     (1u << DIGIT_BITS)

static bool is_candidate(const fgt_candidates *c, size_t i) {
    return !c->among || fgt_mask_bit(c->among, i) != c->inverted;
}

static uint32_t key_of(const fgt_candidates *c, size_t i) {
    return frugi_f32_bits(c->score[i]) & FRUGI_ABS_MASK;
}

/* Counts the digits at `shift` of the candidates whose digits above it are those of `prefix`. */
static void count_digits(const fgt_candidates *c, uint32_t prefix, int shift, uint64_t *count) {
    for (size_t i = 0; i < c->count; i++) {
        uint32_t key = key_of(c, i);
        if ((uint64_t)key >> (shift + DIGIT_BITS) == (uint64_t)prefix >> (shift + DIGIT_BITS))
            count[key >> shift & (DIGITS - 1)] += is_candidate(c, i);
    }
}

/* The smallest selected key, digit by digit; *ties: how many elements with that key are selected. If there are no more
 * candidates than `keep`, 0 and no limit. */
static uint32_t find_cutoff(const fgt_candidates *set, size_t sets, uint64_t keep, uint64_t *ties) {
    uint32_t cutoff = 0;
    for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t count[DIGITS] = {0};
        for (const fgt_candidates *c = set; c < set + sets; c++)
            count_digits(c, cutoff, shift, count);
        uint32_t digit = DIGITS - 1;
        for (; digit > 0 && count[digit] < keep; digit--)
            keep -= count[digit];
        if (count[digit] < keep) {
            *ties = UINT64_MAX;
            return 0;
        }
        cutoff |= digit << shift;
    }
    *ties = keep;
    return cutoff;
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

/* Bits of the n largest of m scores that are `stride` apart. */
static void select_group(const float *score, size_t first, size_t stride, uint32_t n, uint32_t m, uint8_t *selected) {
    for (uint32_t i = 0; i < m; i++) {
        uint32_t larger = 0, key = frugi_f32_bits(score[first + i * stride]) & FRUGI_ABS_MASK;
        for (uint32_t j = 0; j < m; j++) {
            uint32_t other = frugi_f32_bits(score[first + j * stride]) & FRUGI_ABS_MASK;
            larger += other > key || (other == key && j < i);
        }
        if (larger < n)
            fgt_mask_set(selected, first + i * stride);
    }
}

void fgt_select_n_of_m(const fgt_group_rows *rows, const float *score, uint32_t n, uint32_t m, uint8_t *selected) {
    for (size_t o = 0; o < rows->outputs; o++)
        for (size_t i = 0; i < rows->inputs; i += m) {
            uint32_t here = rows->inputs - i < m ? (uint32_t)(rows->inputs - i) : m;
            select_group(score, o * rows->output_stride + i * rows->input_stride, rows->input_stride,
                         here < m ? here : n, here, selected);
        }
}

fgt_group_rows fgt_param_rows(const fgt_param *p) {
    if (p->tensor.input_first) /* a column has the inputs of an output */
        return (fgt_group_rows){p->cols, p->rows, 1, p->cols};
    return (fgt_group_rows){p->rows, p->cols, p->cols, 1};
}

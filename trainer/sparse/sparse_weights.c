/*
 * sparse_weights.c - updates of masks.
 *
 * Gradual pruning and the first mask of rigl keep the largest weights. An update of rigl drops the smallest and grows
 * as many of those that were pruned before, by the sums of their gradients. A worker sends only as many sums of a
 * tensor as it grows, 8 bytes each: no dense gradient is exchanged. The share that is exchanged falls from `swap` to 0
 * as 1 - 3x^2 + 2x^3, which is within 0.01 of the cosine of the paper (arXiv:1911.11134) and the same on all machines.
 */
#include "trainer/sparse/sparse_weights.h"

#include "io/error.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/sparse/mask_select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t elements_of(const fgt_param *p) {
    return p->rows * p->cols;
}

static size_t masked_params(const fgt_graph *g) {
    size_t count = 0;
    for (const fgt_param *p = g->params; p; p = p->next)
        count += p->mask != NULL;
    return count;
}

static float *flat_floats(const fgt_sparse *s, fgt_use use) {
    return fgt_counted_alloc(use, (size_t)s->graph->elements * sizeof(float));
}

static bool has_mask(const fgt_sparse *s, const fgt_param *p) {
    return s->units ? fgt_graph_units_include(s->units, p) : fgt_mask_is_for(p);
}

/* Masks of all parameters that have one, with all bits set. */
static int create_masks(fgt_sparse *s) {
    for (const fgt_param *p = s->graph->params; p; p = p->next)
        s->mask_bytes += has_mask(s, p) ? fgt_mask_bytes(p) : 0;
    s->mask = fgt_counted_alloc(FGT_USE_WEIGHTS, s->mask_bytes + 1);
    s->scratch = fgt_counted_alloc(FGT_USE_WEIGHTS, s->mask_bytes + 1);
    s->growth = s->options.kind == FGT_SPARSE_RIGL ? flat_floats(s, FGT_USE_GRADIENTS) : NULL;
    if (!s->mask || !s->scratch || (s->options.kind == FGT_SPARSE_RIGL && !s->growth))
        return fgio_error("--sparse: not enough memory for masks");
    uint8_t *at = s->mask;
    for (fgt_param *p = s->graph->params; p; p = p->next) {
        p->mask = has_mask(s, p) ? at : NULL;
        at += p->mask ? fgt_mask_bytes(p) : 0;
        for (size_t i = 0; p->mask && i < elements_of(p); i++)
            fgt_mask_set(p->mask, i);
    }
    fgt_mask_apply(s->graph, s->graph->weights);
    return FGIO_EXIT_OK;
}

int fgt_sparse_create(const fgt_sparse_options *options, fgt_graph *graph, uint64_t steps, bool random_weights,
                      uint32_t head_length, fgt_sparse **sparse) {
    const bool units = fgt_sparse_has_units(options);
    const fgt_unit_kinds kinds = {.channels = options->kind != FGT_SPARSE_HEADS,
                                  .heads = options->kind != FGT_SPARSE_CHANNELS,
                                  .head_length = head_length};
    fgt_sparse *s = calloc(1, sizeof *s);
    if (!s)
        return fgio_error("--sparse: out of memory");
    *s = (fgt_sparse){.options = *options,
                      .graph = graph,
                      .steps = steps,
                      .keeps_norms = random_weights && !units,
                      .weights = graph->weights};
    int status = units ? fgt_graph_units_create(graph, &kinds, &s->units) : FGIO_EXIT_OK;
    if (status == FGIO_EXIT_OK)
        status = create_masks(s);
    if (status == FGIO_EXIT_OK)
        *sparse = s;
    else
        fgt_sparse_destroy(s);
    return status;
}

void fgt_sparse_destroy(fgt_sparse *s) {
    if (!s)
        return;
    for (fgt_param *p = s->graph->params; p; p = p->next)
        p->mask = NULL;
    fgt_counted_free(s->mask);
    fgt_counted_free(s->scratch);
    fgt_counted_free(s->growth);
    fgt_graph_units_destroy(s->units);
    free(s);
}

/* The mask of a parameter before the update. */
static const uint8_t *mask_before(const fgt_sparse *s, const fgt_param *p) {
    return s->scratch + (p->mask - s->mask);
}

/* ---- the largest weights ---- */

/* keep: of each parameter. */
static void keep_largest(fgt_sparse *s, const uint64_t *keep, fgt_candidates *set) {
    size_t count = 0;
    uint64_t sum = 0;
    for (const fgt_param *p = s->graph->params; p; p = p->next) {
        if (!p->mask)
            continue;
        memset(p->mask, 0, fgt_mask_bytes(p));
        set[count] = (fgt_candidates){s->weights + p->tensor.offset, mask_before(s, p), false, elements_of(p), p->mask};
        if (s->options.layers != FGT_LAYERS_GLOBAL)
            fgt_select_largest(&set[count], 1, keep[count]);
        sum += keep[count++];
    }
    if (s->options.layers == FGT_LAYERS_GLOBAL) {
        fgt_select_largest(set, count, sum);
        for (size_t i = 0; i < count; i++) /* no tensor is empty */
            fgt_select_largest(&set[i], 1, 1);
    }
}

/* ---- rigl ---- */

/** A sum of gradients that a worker sends. */
typedef struct growth_entry {
    uint32_t index;
    float sum;
} growth_entry;

/* Weights that an update exchanges in a parameter. */
static uint64_t swap_count(const fgt_sparse *s, const fgt_param *p, uint64_t step) {
    double x = fgt_sparse_progress(&s->options, step, s->steps), share = s->options.swap * (1 - x * x * (3 - 2 * x));
    uint64_t kept = p->packed_count, pruned = elements_of(p) - kept, count = (uint64_t)(share * (double)kept);
    return count < pruned ? count : pruned;
}

/* This worker's largest sums of every parameter: as many as it grows. Uses the masks as scratch. */
static void list_growth(fgt_sparse *s, uint64_t step, growth_entry *entry) {
    for (fgt_param *p = s->graph->params; p; p = p->next) {
        uint64_t want = p->mask ? swap_count(s, p, step) : 0;
        const float *sums = s->growth + p->tensor.offset;
        if (want == 0)
            continue;
        memset(p->mask, 0, fgt_mask_bytes(p));
        fgt_candidates c = {sums, mask_before(s, p), true, elements_of(p), p->mask};
        fgt_select_largest(&c, 1, want);
        for (size_t i = 0; i < elements_of(p); i++)
            if (fgt_mask_bit(p->mask, i))
                *entry++ = (growth_entry){(uint32_t)i, sums[i]};
    }
}

/* Replaces the sums by those that workers sent, added in rank order: the same on all. */
static void add_growth(fgt_sparse *s, uint64_t step, const growth_entry *entry, int workers) {
    memset(s->growth, 0, (size_t)s->graph->elements * sizeof *s->growth);
    for (int r = 0; r < workers; r++)
        for (const fgt_param *p = s->graph->params; p; p = p->next) {
            uint64_t want = p->mask ? swap_count(s, p, step) : 0;
            for (uint64_t i = 0; i < want; i++, entry++)
                s->growth[p->tensor.offset + entry->index] += entry->sum;
        }
}

static int exchange_growth(fgt_sparse *s, frug_comm *comm, uint64_t step) {
    int size = frug_comm_size(comm);
    size_t count = 0;
    for (const fgt_param *p = s->graph->params; p; p = p->next)
        count += p->mask ? (size_t)swap_count(s, p, step) : 0;
    growth_entry *mine = calloc(count + 1, sizeof *mine), *all = calloc(count * (size_t)size + 1, sizeof *all);
    int status = mine && all ? FGIO_EXIT_OK : fgio_error("--sparse: out of memory");
    if (status == FGIO_EXIT_OK) {
        list_growth(s, step, mine);
        if (frug_comm_allgather(comm, mine, count * sizeof *mine, all) != FRUG_OK)
            status = fgio_library_error("--sparse");
        else
            add_growth(s, step, all, size);
    }
    free(mine);
    free(all);
    return status;
}

static int swap_weights(fgt_sparse *s, frug_comm *comm, uint64_t step) {
    int status = exchange_growth(s, comm, step);
    for (fgt_param *p = s->graph->params; p && status == FGIO_EXIT_OK; p = p->next) {
        if (!p->mask)
            continue;
        uint64_t swaps = swap_count(s, p, step);
        fgt_candidates kept = {s->weights + p->tensor.offset, mask_before(s, p), false, elements_of(p), p->mask};
        fgt_candidates grown = {s->growth + p->tensor.offset, mask_before(s, p), true, elements_of(p), p->mask};
        memset(p->mask, 0, fgt_mask_bytes(p));
        fgt_select_largest(&kept, 1, p->packed_count - swaps);
        fgt_select_largest(&grown, 1, swaps);
    }
    if (status == FGIO_EXIT_OK)
        memset(s->growth, 0, (size_t)s->graph->elements * sizeof *s->growth);
    return status;
}

void fgt_sparse_add_growth(float *growth, const fgt_param *p, const float *gradient) {
    float *sum = growth + p->tensor.offset;
    for (size_t i = 0; p->mask && i < elements_of(p); i++)
        if (!fgt_mask_bit(p->mask, i))
            sum[i] += gradient[i];
}

/* ---- all kinds ---- */

/* The weights that are not zero; no tensor is empty. */
static void keep_nonzeros(fgt_sparse *s) {
    memset(s->mask, 0, s->mask_bytes);
    for (fgt_param *p = s->graph->params; p; p = p->next) {
        size_t kept = 0;
        for (size_t i = 0; p->mask && i < elements_of(p); i++)
            if (p->w[i] < 0 || p->w[i] > 0) {
                fgt_mask_set(p->mask, i);
                kept++;
            }
        if (p->mask && kept == 0)
            fgt_mask_set(p->mask, 0);
    }
}

static int update_masks(fgt_sparse *s, frug_comm *comm, uint64_t step) {
    size_t count = masked_params(s->graph);
    if (s->options.kind == FGT_SPARSE_RIGL && step > 0)
        return swap_weights(s, comm, step);
    if (s->options.kind == FGT_SPARSE_NM) {
        memset(s->mask, 0, s->mask_bytes);
        for (fgt_param *p = s->graph->params; p; p = p->next) {
            fgt_group_rows rows = fgt_param_rows(p);
            if (p->mask)
                fgt_select_n_of_m(&rows, s->weights + p->tensor.offset, s->options.n, s->options.m, p->mask);
        }
        return FGIO_EXIT_OK;
    }
    if (s->options.kind == FGT_SPARSE_ZEROS) {
        keep_nonzeros(s);
        return FGIO_EXIT_OK;
    }
    if (s->units)
        return fgt_graph_units_prune(s->units, s->weights, fgt_sparse_density(&s->options, step, s->steps));
    uint64_t *keep = calloc(count + 1, sizeof *keep);
    fgt_candidates *set = calloc(count + 1, sizeof *set);
    int status = keep && set ? FGIO_EXIT_OK : fgio_error("--sparse: out of memory");
    if (status == FGIO_EXIT_OK) {
        fgt_layer_counts(s->graph, s->options.layers, fgt_sparse_density(&s->options, step, s->steps), keep);
        keep_largest(s, keep, set);
    }
    free(keep);
    free(set);
    return status;
}

/* The norm of random weights preserves the scale of activations; without it a sparse model hardly learns. */
static void restore_norms(fgt_sparse *s) {
    for (fgt_param *p = s->graph->params; p; p = p->next) {
        double all = 0, kept = 0;
        for (size_t i = 0; p->mask && i < elements_of(p); i++) {
            double square = (double)p->w[i] * (double)p->w[i];
            all += square;
            kept += fgt_mask_bit(p->mask, i) ? square : 0;
        }
        float factor = kept > 0 ? (float)sqrt(all / kept) : 1.0f;
        for (size_t i = 0; p->mask && i < elements_of(p); i++)
            p->w[i] *= factor;
    }
}

int fgt_sparse_update(fgt_sparse *s, frug_comm *comm, uint64_t step) {
    memcpy(s->scratch, s->mask, s->mask_bytes);
    int status = update_masks(s, comm, step);
    if (status == FGIO_EXIT_OK && step == 0 && s->keeps_norms)
        restore_norms(s);
    if (status == FGIO_EXIT_OK)
        fgt_mask_apply(s->graph, s->weights);
    return status;
}

bool fgt_sparse_is_straight_through(const fgt_sparse *s, uint64_t step) {
    return s->options.kind == FGT_SPARSE_NM && step >= fgt_sparse_begin(&s->options, s->steps) &&
           step < fgt_sparse_end(&s->options, s->steps);
}

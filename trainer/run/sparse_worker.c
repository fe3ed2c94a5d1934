/*
 * sparse_worker.c - sparse weights of a worker: when masks change, reducer and optimizer are created again for the new
 * packed buffer, and residuals and states of the weights that stay move along; those of grown weights are zero.
 */
#include "trainer/run/worker.h"

#include "io/error.h"

#include <stdlib.h>
#include <string.h>

/* Adam's mean squares would take the gradients at masked weights for those at the weights they belong to, so they stay
 * as they were before the straight-through phase until it ends (STEP, arXiv:2302.01172). */
static void freeze_squares(fgt_worker *w) {
    const fgt_sparse_options *o = &w->run->sparse;
    if (o->kind == FGT_SPARSE_NM)
        frug_optimizer_freeze_squares(w->optimizer, fgt_sparse_begin(o, w->steps), fgt_sparse_end(o, w->steps));
}

/* Counters of an exchange that is about to be destroyed. */
static void keep_counters(fgt_worker *w) {
    fgt_traffic t = fgt_worker_traffic(w);
    frug_reduce_stats times = {.struct_size = sizeof times};
    fgt_worker_exchange_stats(w, &times);
    w->times_before = times;
    w->bytes_before = t.bytes;
    w->entries_before = t.entries;
    w->seen_before = t.seen;
    w->steps_before = w->steps_here;
}

/** Memory for the tensors that are being moved, of one section. */
typedef struct move_memory {
    uint64_t *source; /* of a tensor */
    float *from, *to;
} move_memory;

/* The trained parameter after those that the compressor has as one tensor with p; NULL: there is none. */
static const fgt_param *next_section(const fgt_worker *w, const fgt_param *p) {
    const fgt_param *next = fgt_mask_next(p);
    while (w->joined && next && next->bucket == p->bucket)
        next = fgt_mask_next(next);
    return next;
}

/* Where each weight of a parameter was among those of the earlier mask. */
static void find_sources(const fgt_worker *w, const fgt_param *p, uint64_t *source) {
    if (p->mask)
        fgt_mask_sources(p, w->sparse->scratch + (p->mask - w->sparse->mask), source);
    for (uint64_t i = 0; !p->mask && i < p->packed_count; i++)
        source[i] = i;
}

/* The range of some tensors of a layout. */
static frug_range range_of(const frug_layout *layout, size_t first, size_t count) {
    frug_tensor a = FRUG_TENSOR_INIT, b = FRUG_TENSOR_INIT;
    uint64_t elements = 1;
    frug_layout_get(layout, first, &a);
    frug_layout_get(layout, first + count - 1, &b);
    for (uint32_t d = 0; d < b.ndim; d++)
        elements *= b.shape[d];
    return (frug_range){a.offset, b.offset + elements - a.offset};
}

/* Moves the states of the parameters from `first` to `next`, of which the compressor makes one section; *number: of the
 * first in both layouts, moved on. */
static frug_status move_section(fgt_worker *w, const frug_layout *old, const fgt_param *first, const fgt_param *next,
                                frug_reducer *reducer, frug_optimizer *optimizer, const move_memory *memory,
                                size_t *number) {
    const size_t begin = *number;
    size_t count = 0;
    for (const fgt_param *p = first; p != next; p = fgt_mask_next(p))
        count++;
    const frug_range before = range_of(old, begin, count), now = range_of(w->layout, begin, count);
    frug_status status =
        reducer ? frug_compressor_get_residual(frug_reducer_compressor(w->reducer), before, memory->from) : FRUG_OK;
    for (const fgt_param *p = first; p != next && status == FRUG_OK; p = fgt_mask_next(p)) {
        const float *from = memory->from + (range_of(old, *number, 1).begin - before.begin);
        float *to = memory->to + (p->packed_offset - now.begin);
        find_sources(w, p, memory->source);
        for (uint64_t i = 0; i < p->packed_count; i++)
            to[i] = memory->source[i] == UINT64_MAX ? 0.0f : from[memory->source[i]];
        status = frug_optimizer_remap(optimizer, w->optimizer, (*number)++, memory->source);
    }
    return status == FRUG_OK && reducer
               ? frug_compressor_set_residual(frug_reducer_compressor(reducer), now, memory->to)
               : status;
}

/* Moves the states of all tensors; old: the layout before. */
static frug_status move_states(fgt_worker *w, const frug_layout *old, frug_reducer *reducer, frug_optimizer *optimizer,
                               const move_memory *memory) {
    frug_status status = FRUG_OK;
    size_t number = 0;
    const fgt_param *p = w->graph->params->frozen ? fgt_mask_next(w->graph->params) : w->graph->params;
    for (const fgt_param *next; p && status == FRUG_OK; p = next) {
        next = next_section(w, p);
        status = move_section(w, old, p, next, reducer, optimizer, memory, &number);
    }
    return status;
}

/* Weights of the largest section, of which none is pruned. */
static size_t largest_section(const fgt_worker *w) {
    size_t largest = 1, sum = 0;
    const fgt_param *before = NULL;
    for (const fgt_param *p = w->graph->params; p; before = p, p = p->next) {
        sum = (w->joined && before && before->bucket == p->bucket ? sum : 0) + p->rows * p->cols;
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

static int move_exchange(fgt_worker *w, const frug_layout *old, frug_reducer *reducer, frug_optimizer *optimizer) {
    const size_t largest = largest_section(w);
    move_memory memory = {calloc(largest, sizeof *memory.source), calloc(largest, sizeof *memory.from),
                          calloc(largest, sizeof *memory.to)};
    frug_optimizer_seek(w->optimizer, w->step);
    frug_optimizer_seek(optimizer, w->step);
    int status = memory.source && memory.from && memory.to ? FGIO_EXIT_OK : fgio_error("--sparse: out of memory");
    if (status == FGIO_EXIT_OK && move_states(w, old, reducer, optimizer, &memory) != FRUG_OK)
        status = fgio_library_error("--sparse");
    free(memory.source);
    free(memory.from);
    free(memory.to);
    return status;
}

/* Replaces exchange and optimizer by those of the masks of now; with_states: and moves their states. */
static int replace_exchange(fgt_worker *w, bool with_states) {
    frug_layout *old = w->layout, *layout = NULL;
    frug_reducer *reducer = NULL;
    frug_optimizer *optimizer = NULL;
    keep_counters(w);
    int status = fgt_mask_layout(w->graph, &layout);
    if (status != FGIO_EXIT_OK)
        return status;
    w->layout = layout;
    status = fgt_worker_create_exchange(w, &reducer, &optimizer);
    if (status == FGIO_EXIT_OK && with_states)
        status = move_exchange(w, old, reducer, optimizer);
    frug_layout_destroy(old);
    frug_reducer_destroy(w->reducer);
    frug_optimizer_destroy(w->optimizer);
    w->reducer = reducer;
    w->optimizer = optimizer;
    return status;
}

static int use_masks(fgt_worker *w) {
    int status = fgt_worker_begin_master(w);
    fgt_buckets_set_exchange(w->buckets, w->reducer, w->optimizer, w->master.weights);
    freeze_squares(w);
    fgt_worker_set_norm(w, w->norm);
    return status;
}

static int change_masks(fgt_worker *w) {
    int status = fgt_sparse_update(w->sparse, w->comm, w->step);
    return status == FGIO_EXIT_OK ? replace_exchange(w, true) : status;
}

int fgt_worker_update_masks(fgt_worker *w) {
    const fgt_sparse_options *o = &w->run->sparse;
    bool due = fgt_sparse_is_due(o, w->step, w->steps);
    int status = FGIO_EXIT_OK;
    if (!due && w->step != fgt_sparse_begin(o, w->steps)) /* where the straight-through phase begins */
        return FGIO_EXIT_OK;
    if (due)
        status = fgt_worker_collective(w, change_masks);
    return status == FGIO_EXIT_OK ? fgt_worker_collective(w, use_masks) : status;
}

int fgt_worker_adopt_masks(fgt_worker *w) {
    fgt_mask_apply(w->graph, w->sparse->weights);
    int status = replace_exchange(w, false);
    return status == FGIO_EXIT_OK ? use_masks(w) : status;
}

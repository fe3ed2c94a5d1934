/*
 * unit_accumulate.c - accumulators of unit sections: add a gradient range to the residual; store the residual.
 *
 * Rules that look at more than one block need all accumulators before they can select. With an f32 residual these are
 * the residual store itself, updated in place; without feedback they are the gradient itself, if it is finite and not
 * clipped; otherwise they are c->units.accumulators. A block in which a NaN or an infinity comes up is skipped: its
 * gradient is dropped, and its residual takes part in the selection unchanged.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"

/* The accumulators of all blocks from `stored` on. */
static float *block_accumulators(const frug_compressor *c, uint64_t stored) {
    return c->units.accumulators ? c->units.accumulators + stored * c->config.block
                                 : frugi_store_floats(&c->feedback.residual, stored);
}

const float *frugi_accumulators(const frugi_compress_call *call, const frugi_tensor_view *view) {
    return call->c->units.acc_is_grad ? call->grad + (view->begin - call->begin)
                                      : block_accumulators(call->c, view->first_block);
}

/** A block of a compressed tensor. */
typedef struct tensor_block {
    const frugi_tensor_view *view;
    uint64_t number, blocks; /* which block of the tensor, and how many it has */
    uint64_t at;             /* first element within the tensor */
    uint64_t stored;         /* number in the residual stores */
    uint32_t length;
} tensor_block;

typedef void block_fn(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b);

/* The accumulators of a tensor, in fn and after it. */
static const float *new_accumulators(const frugi_compress_call *call, const frugi_tensor_view *view) {
    return frugi_has_residual(&call->c->feedback) ? block_accumulators(call->c, view->first_block)
                                                  : call->grad + (view->begin - call->begin);
}

/* Show the elements from .. to - 1 of a tensor to a search that is under way. */
static void show_elements(const frugi_compress_call *call, const frugi_workspace *ws, const frugi_tensor_view *view,
                          uint64_t from, uint64_t to) {
    const frug_compressor *c = call->c;
    to = to < view->count ? to : view->count;
    frugi_topk_see(c->units.topk, (int)(ws - c->workspace), new_accumulators(call, view) + from, to - from);
}

/* Call fn for the blocks lo .. hi - 1 of the stores, which begin in this tensor or a later one. */
static void for_blocks(const frugi_compress_call *call, frugi_workspace *ws, const frugi_tensor_view *view, uint64_t lo,
                       uint64_t hi, block_fn *fn) {
    uint64_t block = call->c->config.block;
    for (; lo < hi; view++) {
        tensor_block b = {.view = view, .blocks = view->dense ? 0 : (view->count - 1) / block + 1};
        uint64_t stop = view->first_block + b.blocks < hi ? view->first_block + b.blocks : hi, shown = lo;
        if (view->dense || stop <= lo)
            continue;
        for (; lo < stop; lo++) {
            b.number = lo - view->first_block;
            b.at = b.number * block;
            b.stored = lo;
            b.length = (uint32_t)(view->count - b.at < block ? view->count - b.at : block);
            fn(call, ws, &b);
            if (call->c->units.watched && (lo + 1 == stop || (lo + 1 - shown) * block >= FRUGI_BATCH_ELEMENTS)) {
                show_elements(call, ws, view, (shown - view->first_block) * block, b.at + block);
                shown = lo + 1;
            }
        }
    }
}

/** Consecutive blocks of the stores. */
typedef struct block_range {
    uint64_t first, end;
} block_range;

/* The compressed blocks of a range. */
static block_range blocks_of(const frug_compressor *c, frug_range range) {
    block_range b = {UINT64_MAX, 0};
    frugi_range_iter it = frugi_range_start(&c->partition, range.begin, range.begin + range.count);
    while (frugi_range_next(&it))
        if (!it.view->dense) {
            b.first = b.first == UINT64_MAX ? it.view->first_block : b.first;
            b.end = it.view->first_block + (it.view->count - 1) / c->config.block + 1;
        }
    return b.end ? b : (block_range){0, 0};
}

/* The part of thread t: all get an equal number of consecutive blocks. */
static block_range blocks_of_thread(block_range b, int t, int threads) {
    uint64_t n = b.end - b.first;
    return (block_range){b.first + n * (uint64_t)t / (uint64_t)threads,
                         b.first + n * ((uint64_t)t + 1) / (uint64_t)threads};
}

/* Call fn for every compressed block of the range. */
static void for_each_block(const frugi_compress_call *call, frug_range range, int threads, block_fn *fn) {
    const frug_compressor *c = call->c;
    const frugi_tensor_view *start = c->partition.view + frugi_view_at(&c->partition, range.begin);
    block_range all = blocks_of(c, range);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        block_range b = blocks_of_thread(all, t, threads);
        for_blocks(call, &c->workspace[t], start, b.first, b.end, fn);
    }
}

static frug_range whole_range(const frugi_compress_call *call) {
    return (frug_range){call->begin, call->count};
}

/* The gradient of a block, scaled and padded to a whole block. */
static const float *block_gradient(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    const float *grad = call->grad + (b->view->begin - call->begin) + b->at;
    return frugi_scaled_gradient(call, ws, grad, b->length, call->c->config.block);
}

/* Statistics: the energy of a block counts as left until it is sent (unit_encode.c). */
static void count_energy(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b,
                         const float *acc) {
    frugi_stats_items all = {.items = b->blocks, .length = call->c->config.block, .total = b->view->count};
    double weight = frugi_stats_weight(call->c, &all, b->number);
    if (!(weight > 0))
        return;
    double energy = weight * frugi_energy(acc, b->length);
    ws->tally.energy_seen += energy;
    ws->tally.energy_left += energy;
}

/* feedback=none: check the gradient for NaN and infinity. */
static void check_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    const float *grad = call->grad + (b->view->begin - call->begin) + b->at;
    call->c->units.skipped[b->stored] = !call->c->feedback.kernel->all_finite(grad, b->length);
    ws->tally.skipped += call->c->units.skipped[b->stored];
    if (!call->c->units.skipped[b->stored])
        count_energy(call, ws, b, grad);
}

/* feedback=none: copy the gradient, where it cannot be used as it is. */
static void copy_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    const frug_compressor *c = call->c;
    float *dst = c->units.accumulators + b->stored * c->config.block;
    if (c->units.skipped[b->stored])
        memset(dst, 0, c->config.block * sizeof *dst);
    else
        memcpy(dst, block_gradient(call, ws, b), c->config.block * sizeof *dst);
}

/* Whether accumulators, and the momentum with them, are updated in place. */
static bool updates_in_place(const frug_compressor *c) {
    return frugi_residual_in_place(&c->feedback) || !frugi_has_momentum(&c->feedback);
}

/* Add the gradient to the residual. */
static void accumulate_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    frug_compressor *c = call->c;
    float *acc = block_accumulators(c, b->stored);
    const float *grad = block_gradient(call, ws, b);
    bool finite;
    if (c->units.accumulators)
        frugi_feedback_load(&c->feedback, b->stored, 1, acc);
    if (updates_in_place(c)) {
        finite = frugi_feedback_accumulate_in_place(&c->feedback, b->stored, grad, acc);
    } else {
        finite = frugi_feedback_accumulate(&c->feedback, b->stored, acc, grad, ws->acc, ws->momentum, ws->padded);
        if (finite)
            memcpy(acc, ws->acc, c->config.block * sizeof *acc);
    }
    c->units.skipped[b->stored] = !finite;
    ws->tally.skipped += !finite;
    count_energy(call, ws, b, acc);
}

/* ---- search along the way ---- */

/*
 * Whether the cutoff can be searched while accumulators are computed: the largest elements of whole tensors are
 * selected, and all that the accumulators depend on can be looked up element by element.
 */
static bool can_watch(const frug_compressor *c) {
    const struct frug_config *f = &c->config;
    bool largest = (f->rule == FRUGI_RULE_TOPK || f->rule == FRUGI_RULE_HYBRID) &&
                   (f->segment == FRUGI_SEGMENT_TENSOR || f->segment == FRUGI_SEGMENT_ALL);
    return frugi_topk_watch_pays(c->units.topk) && largest && f->unit == FRUGI_UNIT_ELEMENT &&
           f->layers != FRUGI_LAYERS_BUDGET &&
           (frugi_residual_in_place(&c->feedback) || !frugi_has_residual(&c->feedback));
}

static const frugi_tensor_view *group_tensor(const frug_compressor *c, size_t i) {
    return &c->partition.view[c->units.member[c->units.select_group[i].first]];
}

/* Look up what some accumulators of groups first .. end - 1, n elements, will be. */
static void preview_sample(const frugi_compress_call *call, size_t first, uint64_t n) {
    const frug_compressor *c = call->c;
    const frugi_tensor_view *view = group_tensor(c, first);
    uint32_t *key = frugi_topk_sample(c->units.topk);
    uint64_t before = 0, size = frugi_topk_sample_size(n);
    for (uint64_t i = 0; i < size; i++) {
        uint64_t at = frugi_topk_sample_index(n, i);
        while (at - before >= view->count) {
            before += view->count;
            view = group_tensor(c, ++first);
        }
        float grad = call->grad_scale * call->grad[view->begin - call->begin + (at - before)];
        uint64_t element = view->first_block * c->config.block + (at - before);
        key[i] = frugi_magnitude(frugi_feedback_preview(&c->feedback, element, grad));
        key[i] = key[i] < FRUGI_INF_BITS ? key[i] : 0;
    }
}

static uint64_t count_skipped(const frug_compressor *c) {
    uint64_t skipped = 0;
    for (int i = 0; i < c->threads; i++)
        skipped += c->workspace[i].tally.skipped;
    return skipped;
}

/* Run fn, which computes or checks accumulators, for the tensors of groups first .. end - 1, and find their cutoff. */
static void watch_groups(const frugi_compress_call *call, size_t first, size_t end, block_fn *fn) {
    frug_compressor *c = call->c;
    const frugi_tensor_view *head = group_tensor(c, first), *last = group_tensor(c, end - 1);
    frug_range range = {head->begin, last->begin + last->count - head->begin};
    uint64_t k = frugi_target_count(c, first, end), n = 0, skipped = count_skipped(c);
    for (size_t i = first; i < end; i++)
        n += c->units.select_group[i].units;
    int threads = frugi_threads_for(call->threads, n);
    c->units.watched = k < n;
    if (k < n) {
        preview_sample(call, first, n);
        frugi_topk_watch(c->units.topk, n, k, threads);
    }
    for_each_block(call, range, threads, fn);
    if (k < n && (frugi_has_residual(&c->feedback) || count_skipped(c) == skipped)) {
        for (size_t i = first; i < end; i++) {
            const frugi_tensor_view *view = group_tensor(c, i);
            c->units.span[i] = (frugi_float_array){new_accumulators(call, view), view->count};
        }
        c->units.select_group[first].found =
            frugi_topk_cutoff(c->units.topk, c->units.span + first, end - first, k, threads);
        c->units.select_group[first].found_for = k;
    }
    frugi_topk_forget(c->units.topk);
    c->units.watched = false;
}

/* Run fn for every compressed block of the range. */
static void run_blocks(const frugi_compress_call *call, size_t first, size_t end, block_fn *fn) {
    const frug_compressor *c = call->c;
    for (size_t i = first; i < end; i++)
        c->units.select_group[i].found_for = 0;
    if (!can_watch(c) || first == end)
        for_each_block(call, whole_range(call), call->threads, fn);
    else if (c->config.segment == FRUGI_SEGMENT_ALL)
        watch_groups(call, first, end, fn);
    else
        for (size_t i = first; i < end; i++)
            watch_groups(call, i, i + 1, fn);
}

void frugi_accumulate_range(const frugi_compress_call *call, size_t first, size_t end) {
    frug_compressor *c = call->c;
    c->units.acc_is_grad = false;
    if (frugi_has_residual(&c->feedback)) {
        run_blocks(call, first, end, accumulate_block);
        return;
    }
    run_blocks(call, first, end, check_block);
    c->units.acc_is_grad = count_skipped(c) == 0 && call->grad_scale == 1.0f;
    if (c->units.acc_is_grad)
        return;
    for (size_t i = first; i < end; i++) /* the accumulators are not what was shown */
        c->units.select_group[i].found_for = 0;
    for_each_block(call, whole_range(call), call->threads, copy_block);
}

/*
 * The momentum is computed a second time: it could not be stored before it was known which blocks are skipped and which
 * entries are sent.
 */
static void restore_momentum(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    frug_compressor *c = call->c;
    uint8_t *sent = c->units.sent_mask ? c->units.sent_mask + b->stored * c->config.block : NULL;
    if (c->units.skipped[b->stored])
        frugi_store_load(&c->feedback.momentum, b->stored, ws->momentum);
    else
        frugi_feedback_momentum(&c->feedback, b->stored, 1, block_gradient(call, ws, b), ws->momentum, ws->padded);
    if (call->feedback.mask_momentum)
        frugi_feedback_mask_marked(&c->feedback, ws->momentum, sent);
    if (sent)
        memset(sent, 0, c->config.block);
}

/* Store residual and momentum. */
static void store_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    frug_compressor *c = call->c;
    const bool skip = false;
    restore_momentum(call, ws, b);
    frugi_feedback_store(&c->feedback, call->step, b->stored, 1, &skip, block_accumulators(c, b->stored), ws->momentum);
}

/* Store residuals, several blocks at a time. */
static void store_blocks(const frugi_compress_call *call, block_range b) {
    frug_compressor *c = call->c;
    const bool skip[FRUGI_STORE_RUN] = {false};
    for (uint64_t at = b.first, n; at < b.end; at += n) {
        n = b.end - at < FRUGI_STORE_RUN ? b.end - at : FRUGI_STORE_RUN;
        frugi_feedback_store(&c->feedback, call->step, at, (uint32_t)n, skip, block_accumulators(c, at), NULL);
    }
}

void frugi_store_residual(const frugi_compress_call *call) {
    const frug_compressor *c = call->c;
    if (!frugi_has_residual(&c->feedback) || !c->units.accumulators)
        return;
    if (!updates_in_place(c)) {
        for_each_block(call, whole_range(call), call->threads, store_block);
        return;
    }
    block_range all = blocks_of(c, whole_range(call));
#pragma omp parallel for num_threads(call->threads) schedule(static, 1) if (call->threads > 1)
    for (int t = 0; t < call->threads; t++)
        store_blocks(call, blocks_of_thread(all, t, call->threads));
}

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
#include "base/philox.h"

const float *frugi_accumulators(const frugi_compress_call *call, const frugi_tensor_view *view) {
    const frug_compressor *c = call->c;
    if (c->units.acc_is_grad)
        return call->grad + (view->begin - call->begin);
    if (c->units.accumulators)
        return c->units.accumulators + view->first_block * c->config.block;
    return frugi_store_floats(&c->residual, view->first_block);
}

/** A block of a compressed tensor. */
typedef struct tensor_block {
    const frugi_tensor_view *view;
    uint64_t at;     /* first element within the tensor */
    uint64_t stored; /* number in the residual stores */
    uint32_t length;
} tensor_block;

typedef void block_fn(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b);

/* Call fn for every compressed block of the range; every thread gets an equal number of consecutive blocks. */
static void for_each_block(const frugi_compress_call *call, block_fn *fn) {
    const frug_compressor *c = call->c;
    const frugi_tensor_view *start = c->partition.view + frugi_view_at(&c->partition, call->begin);
    uint64_t first = UINT64_MAX, end = 0, block = c->config.block;
    frugi_range_iter it = frugi_range_start(&c->partition, call->begin, call->begin + call->count);
    while (frugi_range_next(&it))
        if (!it.view->dense) {
            first = first == UINT64_MAX ? it.view->first_block : first;
            end = it.view->first_block + (it.view->count - 1) / block + 1;
        }
    if (first == UINT64_MAX)
        return;
#pragma omp parallel for num_threads(call->threads) schedule(static, 1) if (call->threads > 1)
    for (int t = 0; t < call->threads; t++) {
        uint64_t lo = first + (end - first) * (uint64_t)t / (uint64_t)call->threads;
        uint64_t hi = first + (end - first) * ((uint64_t)t + 1) / (uint64_t)call->threads;
        const frugi_tensor_view *view = start;
        for (uint64_t i = lo; i < hi; i++) {
            while (view->dense || view->first_block + (view->count - 1) / block < i)
                view++;
            tensor_block b = {.view = view, .at = (i - view->first_block) * block, .stored = i};
            uint64_t rest = view->count - b.at;
            b.length = (uint32_t)(rest < block ? rest : block);
            fn(call, &c->workspace[t], &b);
        }
    }
}

/* The gradient of a block, scaled and padded to a whole block. */
static const float *block_gradient(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    const float *grad = call->grad + (b->view->begin - call->begin) + b->at;
    return frugi_scaled_gradient(call, ws, grad, b->length, call->c->config.block);
}

/* Statistics: the energy of a block counts as left until it is sent (unit_encode.c). */
static void count_energy(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b,
                         const float *acc) {
    uint32_t block = call->c->config.block;
    frugi_stats_items all = {.items = (b->view->count - 1) / block + 1, .length = block, .total = b->view->count};
    double weight = frugi_stats_weight(call->c, &all, b->at / block);
    if (!(weight > 0))
        return;
    double energy = weight * frugi_energy(acc, b->length);
    ws->tally.energy_seen += energy;
    ws->tally.energy_left += energy;
}

/* feedback=none: check the gradient for NaN and infinity. */
static void check_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    const float *grad = call->grad + (b->view->begin - call->begin) + b->at;
    call->c->units.skipped[b->stored] = !frugi_all_finite(grad, b->length);
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

const float *frugi_update_momentum(const frug_compressor *c, float *momentum, float *change, const float *grad,
                                   size_t n) {
    if (c->config.feedback == FRUGI_FEEDBACK_DGC) {
        float mu = (float)c->config.momentum;
        for (size_t i = 0; i < n; i++)
            momentum[i] = mu * momentum[i] + grad[i];
        return momentum;
    }
    float theta = (float)c->config.theta;
    for (size_t i = 0; i < n; i++) {
        change[i] = theta * (grad[i] - momentum[i]);
        momentum[i] += change[i];
    }
    return change;
}

/* Load the momentum of a block into ws->momentum and update it. */
static const float *update_momentum(const frug_compressor *c, frugi_workspace *ws, uint64_t stored, const float *grad) {
    frugi_store_load(&c->momentum, stored, ws->momentum);
    return frugi_update_momentum(c, ws->momentum, ws->padded, grad, c->config.block);
}

/* Add the gradient to the residual. */
static void accumulate_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    frug_compressor *c = call->c;
    uint32_t block = c->config.block;
    const float *grad = block_gradient(call, ws, b);
    float *dst =
        c->units.accumulators ? c->units.accumulators + b->stored * block : frugi_store_floats(&c->residual, b->stored);
    if (c->units.accumulators)
        frugi_store_load(&c->residual, b->stored, dst);
    if (frugi_has_momentum(c))
        grad = update_momentum(c, ws, b->stored, grad);
    for (uint32_t i = 0; i < block; i++)
        ws->acc[i] = c->beta * dst[i] + grad[i];
    c->units.skipped[b->stored] =
        !frugi_all_finite(ws->acc, block) || (frugi_has_momentum(c) && !frugi_all_finite(ws->momentum, block));
    ws->tally.skipped += c->units.skipped[b->stored];
    if (!c->units.skipped[b->stored])
        memcpy(dst, ws->acc, block * sizeof *dst);
    count_energy(call, ws, b, dst);
}

void frugi_accumulate_range(const frugi_compress_call *call) {
    frug_compressor *c = call->c;
    c->units.acc_is_grad = false;
    if (c->config.feedback != FRUGI_FEEDBACK_NONE) {
        for_each_block(call, accumulate_block);
        return;
    }
    uint64_t skipped = 0;
    for_each_block(call, check_block);
    for (int i = 0; i < c->threads; i++)
        skipped += c->workspace[i].tally.skipped;
    c->units.acc_is_grad = skipped == 0 && call->grad_scale == 1.0f;
    if (!c->units.acc_is_grad)
        for_each_block(call, copy_block);
}

/*
 * Store residual and momentum. The momentum is computed a second time: it could not be stored before it was known which
 * blocks are skipped and which entries are sent.
 */
static void store_block(const frugi_compress_call *call, frugi_workspace *ws, const tensor_block *b) {
    frug_compressor *c = call->c;
    uint32_t block = c->config.block, random = frugi_random(c->config.seed, call->step, b->stored);
    if (c->units.accumulators)
        frugi_store_save(&c->residual, b->stored, c->units.accumulators + b->stored * block, random);
    if (!frugi_has_momentum(c))
        return;
    if (c->units.skipped[b->stored])
        frugi_store_load(&c->momentum, b->stored, ws->momentum);
    else
        update_momentum(c, ws, b->stored, block_gradient(call, ws, b));
    for (uint32_t i = 0; call->mask_momentum && i < block; i++)
        ws->momentum[i] = c->units.sent_mask[b->stored * block + i] ? 0.0f : ws->momentum[i];
    frugi_store_save(&c->momentum, b->stored, ws->momentum, ~random);
    if (c->units.sent_mask)
        memset(c->units.sent_mask + b->stored * block, 0, block);
}

void frugi_store_residual(const frugi_compress_call *call) {
    const frug_compressor *c = call->c;
    if (c->config.feedback != FRUGI_FEEDBACK_NONE && (c->units.accumulators || frugi_has_momentum(c)))
        for_each_block(call, store_block);
}

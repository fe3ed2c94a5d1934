/*
 * given_indices.c - extract the accumulators at given indices: one pass over a gradient range without selection.
 *
 * Another rank has selected the indices. Block by block, whatever the units of the config: load the residual, add the
 * gradient, extract the values at the given indices and store the rest. It is block_path.c in its plainest form,
 * without selection and codes; values are exact, so the residual of an extracted entry is 0.
 */
#include "compress/given_indices.h"
#include "compress/compress_path.h"

#include "base/float_bits.h"
#include "base/status.h"

/** The current block. */
typedef struct block_range {
    uint64_t at;     /* first element, relative to the range */
    uint64_t stored; /* number in the residual stores */
    uint32_t length;
    bool has_residual; /* false for dense tensors and feedback=none */
    bool skipped;      /* it has a NaN or an infinity */
} block_range;

/* Compute the accumulators of a block in ws->acc; of a skipped block, its residual. */
static void accumulate_block(const frugi_compress_call *call, frugi_workspace *ws, block_range *b) {
    const frug_compressor *c = call->c;
    uint32_t block = c->config.block;
    const float *grad = frugi_scaled_gradient(call, ws, call->grad + b->at, b->length, block);
    if (b->has_residual) {
        frugi_feedback_load(&c->feedback, b->stored, 1, ws->saved);
        b->skipped =
            !frugi_feedback_accumulate(&c->feedback, b->stored, ws->saved, grad, ws->acc, ws->momentum, ws->padded);
    } else {
        memset(ws->saved, 0, block * sizeof(float));
        for (uint32_t i = 0; i < block; i++)
            ws->acc[i] = ws->saved[i] + grad[i]; /* makes a zero of -0, as a residual does */
        b->skipped = !frugi_all_finite(ws->acc, block);
    }
    if (b->skipped)
        memcpy(ws->acc, ws->saved, block * sizeof(float));
}

static void store_block(const frugi_compress_call *call, frugi_workspace *ws, const block_range *b) {
    frugi_feedback_state *fb = &call->c->feedback;
    bool skip = false;
    frugi_feedback_store(fb, call->step, b->stored, 1, &skip, ws->acc,
                         frugi_has_momentum(fb) && !b->skipped ? ws->momentum : NULL);
}

/* Extract from one block; returns how many of the n indices lie in it. */
static uint64_t extract_block(const frugi_compress_call *call, block_range b, const uint32_t *index, uint64_t n,
                              float *value) {
    frugi_workspace *ws = &call->c->workspace[0];
    uint64_t k = 0;
    accumulate_block(call, ws, &b);
    bool send_zeros = b.skipped && !call->c->path->by_units; /* as in block_path.c */
    for (; k < n && index[k] - b.at < b.length; k++) {
        uint64_t e = index[k] - b.at;
        value[k] = send_zeros ? 0.0f : ws->acc[e];
        if (send_zeros)
            continue;
        ws->acc[e] = 0.0f;
        if (b.has_residual && call->feedback.mask_momentum)
            ws->momentum[e] = 0.0f;
    }
    if (b.has_residual && !send_zeros)
        store_block(call, ws, &b);
    call->c->stats.blocks_skipped += b.skipped;
    return k;
}

frug_status frugi_extract_values(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                 const uint32_t *index, uint64_t n, float *value) {
    uint64_t done = 0, elements = 0, block = c->config.block;
    size_t bytes = 0;
    frugi_compress_call call = {.c = c, .step = step, .begin = begin, .count = count, .grad = grad};
    FRUG_TRY(frug_compressor_bound(c, (frug_range){begin, count},
                                   &bytes)); /* checks that no block and no selection group is cut */
    FRUG_TRY(frugi_call_init(&call));
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it)) {
        elements += it.to - it.from;
        for (uint64_t e = it.from; e < it.to; e += block) {
            uint64_t rest = it.to - e;
            block_range b = {.at = e - begin,
                             .stored = it.view->first_block + (e - it.view->begin) / block,
                             .length = (uint32_t)(rest < block ? rest : block),
                             .has_residual = !it.view->dense && frugi_has_residual(&c->feedback)};
            done += extract_block(&call, b, index + done, n - done, value + done);
        }
    }
    FRUG_FAIL_IF(done != n, FRUG_ERR_ARG, "extract: index %llu of %llu lies in no tensor or is out of order",
                 (unsigned long long)done, (unsigned long long)n);
    frugi_stats_count(c, n * sizeof(float), n, elements);
    return FRUG_OK;
}

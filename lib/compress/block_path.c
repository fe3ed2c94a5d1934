/*
 * block_path.c - compress by blocks: accumulate, select, encode and store the residual, in one pass over the gradient.
 *
 * The sizes of all block sections are known beforehand, so every batch of blocks knows where its bytes go, and the
 * threads share only the frame they write into: each compresses an equal number of consecutive batches. A batch stays
 * in the L1 cache through all stages. Energy and stage times are sampled from one batch in FRUGI_STATS_PERIOD of each
 * tensor, which costs nothing measurable; stats=full samples all.
 *
 * Steps that send everything and dense tensors take this path whatever the config.
 */
#include "compress/block_encode.h"
#include "compress/compress_path.h"

#include "base/float_bits.h"
#include "base/clock.h"
#include "base/block_count.h"
#include "base/status.h"

/* ---- accumulate ------------------------------------------------------------- */

/* The kernel for a batch. Last blocks that are not full need the reference. */
static const frugi_block_kernel *batch_kernel(const frugi_compress_call *call, const frugi_batch *b) {
    return b->length == b->block ? call->c->kernel : &frugi_block_kernel_ref;
}

/* Set where the residual is: in place for f32, else as it is stored, or loaded where the kernel cannot. */
static void set_residual(const frugi_compress_call *call, frugi_workspace *ws, uint64_t stored) {
    frugi_batch *b = &ws->batch;
    const frugi_feedback_state *fb = &call->c->feedback;
    if (frugi_residual_in_place(fb)) {
        b->acc = frugi_store_floats(&fb->residual, stored);
        b->saved = ws->saved;
    } else if (batch_kernel(call, b)->accumulate_stored && !frugi_store_has_large(&fb->residual, stored, b->blocks)) {
        b->format = fb->residual.format;
        b->stored = fb->residual.data + stored * frugi_store_stride(&fb->residual);
        b->scale = fb->residual.scale ? fb->residual.scale + stored : NULL;
    } else {
        frugi_feedback_load(fb, stored, b->blocks, ws->acc);
    }
    b->before = b->acc;
}

/* Set where the kernels read and write. */
static void set_batch_buffers(const frugi_compress_call *call, frugi_workspace *ws, frugi_section_batch *s) {
    frug_compressor *c = call->c;
    frugi_batch *b = &ws->batch;
    uint32_t room = b->blocks * b->block;
    const float *grad = call->grad + (s->section->begin - call->begin) + s->at * b->block;
    grad = frugi_scaled_gradient(call, ws, grad, b->length == b->block ? room : b->length, room);
    b->acc = ws->acc;
    b->saved = NULL;
    b->stored = NULL;
    if (!s->has_residual) {
        b->before = grad;
        b->grad = c->zeros;
        b->beta = 1.0f;
    } else {
        b->beta = c->feedback.beta;
        b->grad = frugi_feedback_momentum(&c->feedback, s->stored, b->blocks, grad, ws->momentum, ws->padded);
        set_residual(call, ws, s->stored);
    }
    s->acc = b->acc;
}

/* ---- select ------------------------------------------------------------------ */

/* All elements are sent: only check for NaN and infinity. */
static void check_finite(frugi_batch *b) {
    for (uint32_t i = 0; i < b->blocks; i++)
        b->skipped[i] = !frugi_all_finite(b->acc + (size_t)i * b->block, b->length);
}

/* A skipped block sends zeros at indices 0 .. k - 1, and its residual is restored. */
static void skip_block(frugi_workspace *ws, const frugi_section_batch *s, uint32_t i) {
    uint32_t k = ws->batch.k[i], block = s->section->block;
    uint16_t *idx = ws->batch.idx + (size_t)i * block;
    for (uint32_t e = 0; e < k; e++)
        idx[e] = (uint16_t)e;
    for (uint32_t e = 0; ws->batch.bitmap && e < block; e += 8)
        ws->batch.bitmap[(i * block + e) / 8] = (unsigned char)(e + 8 <= k ? 0xffu : e < k ? (1u << (k - e)) - 1 : 0);
    if (ws->batch.saved)
        memcpy(s->acc + (size_t)i * block, ws->batch.saved + (size_t)i * block, block * sizeof *s->acc);
    ws->tally.skipped++;
}

static void skip_blocks(frugi_workspace *ws, frugi_section_batch *s) {
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        s->any_skipped |= ws->batch.skipped[i];
    for (uint32_t i = 0; s->any_skipped && i < ws->batch.blocks; i++)
        if (ws->batch.skipped[i])
            skip_block(ws, s, i);
}

/* ---- store ------------------------------------------------------------------- */

/* Clear the momentum of sent entries. */
static void mask_momentum(const frugi_compress_call *call, frugi_workspace *ws, const frugi_section_batch *s) {
    const frugi_batch *b = &ws->batch;
    bool all = s->section->index == FRUGI_INDEX_CODE_NONE;
    for (uint32_t i = 0; i < b->blocks; i++)
        if (!b->skipped[i])
            frugi_feedback_mask(&call->c->feedback, ws->momentum + (size_t)i * b->block,
                                all ? NULL : b->idx + (size_t)i * b->block, b->k[i]);
}

/* Store residual and momentum of all blocks that were not skipped. */
static void store_batch(const frugi_compress_call *call, frugi_workspace *ws, const frugi_section_batch *s) {
    frugi_feedback_state *fb = &call->c->feedback;
    if (!s->has_residual)
        return;
    if (call->feedback.mask_momentum)
        mask_momentum(call, ws, s);
    frugi_feedback_store(fb, call->step, s->stored, ws->batch.blocks, ws->batch.skipped,
                         frugi_residual_in_place(fb) ? NULL : s->acc, frugi_has_momentum(fb) ? ws->momentum : NULL);
}

/* ---- batches ----------------------------------------------------------------- */

/* Run the four stages. weight: how many batches this one represents in the statistics; 0 if it is not sampled. */
static void run_stages(const frugi_compress_call *call, frugi_workspace *ws, frugi_section_batch *s, double weight) {
    const frugi_block_kernel *kernel = batch_kernel(call, &ws->batch);
    size_t n = (size_t)ws->batch.blocks * ws->batch.block;
    double t0 = weight > 0 ? frugi_clock() : 0;
    set_batch_buffers(call, ws, s);
    (ws->batch.stored ? kernel->accumulate_stored : kernel->accumulate)(&ws->batch);
    double t1 = weight > 0 ? frugi_clock() : 0, seen = weight > 0 ? frugi_energy(s->acc, n) : 0;
    double t2 = weight > 0 ? frugi_clock() : 0;
    if (s->section->index == FRUGI_INDEX_CODE_NONE)
        check_finite(&ws->batch);
    else
        kernel->select(&ws->batch);
    skip_blocks(ws, s);
    double t3 = weight > 0 ? frugi_clock() : 0;
    frugi_encode_batch(call, ws, s);
    double t4 = weight > 0 ? frugi_clock() : 0, left = weight > 0 ? frugi_energy(s->acc, n) : 0;
    double t5 = weight > 0 ? frugi_clock() : 0;
    store_batch(call, ws, s);
    if (weight > 0) {
        ws->tally.feedback += weight * (t1 - t0);
        ws->tally.select += weight * (t3 - t2);
        ws->tally.encode += weight * (t4 - t3);
        ws->tally.store += weight * (frugi_clock() - t5);
        if (seen - seen == 0 && left - left == 0) { /* finite: no block was skipped */
            ws->tally.energy_seen += weight * seen;
            ws->tally.energy_left += weight * left;
        }
    }
}

/* Compress batch number n of a section. */
static void compress_batch(const frugi_compress_call *call, frugi_workspace *ws, const frugi_frame_section *fs,
                           uint64_t n, double weight) {
    frug_compressor *c = call->c;
    const frugi_section *sec = &fs->section;
    uint64_t whole = sec->count / sec->block, at = n * c->max_batch_blocks;
    bool tail = at >= whole;
    at = tail ? whole : at;
    frugi_batch *b = &ws->batch;
    b->block = sec->block;
    b->blocks = tail ? 1 : whole - at < c->max_batch_blocks ? (uint32_t)(whole - at) : c->max_batch_blocks;
    b->length = tail ? sec->last_length : sec->block;
    b->select = c->config.select;
    b->idx = ws->idx;
    b->idx_optional =
        sec->index == FRUGI_INDEX_CODE_BITMAP && sec->value != FRUGI_VALUE_F32 && !call->feedback.mask_momentum;
    b->bitmap = NULL;
    b->moves = NULL;
    b->lanes = &ws->lanes;
    uint64_t walk = (sec->first + at) * sec->kappa;
    for (uint32_t i = 0; i < b->blocks; i++)
        b->k[i] = frugi_count_next(sec->kappa, &walk);
    if (tail)
        b->k[0] = frugi_section_k(sec, at);
    frugi_section_batch s = {.section = sec,
                             .payload = call->frame + fs->payload_at,
                             .at = at,
                             .stored = fs->stored + at,
                             .has_residual = frugi_has_residual(&c->feedback) && !fs->dense};
    run_stages(call, ws, &s, weight);
}

/* Compress batches lo .. hi - 1 of the frame, on one thread. */
static void compress_batches(const frugi_compress_call *call, frugi_workspace *ws, uint64_t lo, uint64_t hi,
                             const frugi_frame_size *size) {
    const frugi_frame_section *fs = call->c->section, *end = fs + size->sections;
    while (fs + 1 < end && fs[1].first_batch <= lo)
        fs++;
    for (uint64_t n = lo; n < hi; n++) {
        while (fs + 1 < end && fs[1].first_batch <= n)
            fs++;
        uint64_t next = fs + 1 < end ? fs[1].first_batch : size->batches, at = n - fs->first_batch;
        frugi_stats_items all = {.items = next - fs->first_batch,
                                 .length = (uint64_t)call->c->max_batch_blocks * fs->section.block,
                                 .total = fs->section.count};
        compress_batch(call, ws, fs, at, frugi_stats_weight(call->c, &all, at));
    }
}

void frugi_encode_blocks(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
#pragma omp parallel for num_threads(call->threads) schedule(static, 1) if (call->threads > 1)
    for (int i = 0; i < call->threads; i++) {
        uint64_t lo = size->batches * (uint64_t)i / (uint64_t)call->threads;
        uint64_t hi = size->batches * ((uint64_t)i + 1) / (uint64_t)call->threads;
        compress_batches(call, &c->workspace[i], lo, hi, size);
    }
}

/* ---- path -------------------------------------------------------------------- */

static frug_status bound(const frug_compressor *c, frug_range range, uint64_t *bytes) {
    frugi_frame_size size;
    FRUG_TRY(frugi_make_sections(c, range, 0, FRUGI_SECTIONS_BOUND, NULL, &size));
    *bytes = size.bytes;
    return FRUG_OK;
}

static frug_status make_sections(const frugi_compress_call *call, frugi_frame_size *size, uint64_t *bytes) {
    frug_compressor *c = call->c;
    FRUG_TRY(frugi_make_sections(c, (frug_range){call->begin, call->count}, call->step,
                                 call->send_all ? FRUGI_SECTIONS_DENSE : FRUGI_SECTIONS_STEP, c->section, size));
    *bytes = size->bytes;
    return FRUG_OK;
}

static void encode(const frugi_compress_call *call, frugi_frame_size *size) {
    frugi_encode_blocks(call, size);
}

const frugi_compress_path frugi_block_path = {
    .add_sections = frugi_add_block_sections,
    .bound = bound,
    .make_sections = make_sections,
    .encode = encode,
    .plan = frugi_plan_blocks,
};

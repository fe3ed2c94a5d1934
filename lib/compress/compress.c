/*
 * compress.c - frug_compress(): accumulate, select, encode and store the residual, in one pass over a gradient range.
 *
 * The sizes of all block sections are known beforehand, so every batch of blocks knows where its bytes go, and the
 * threads share only the frame they write into: each compresses an equal number of consecutive batches. A batch stays
 * in the L1 cache through all stages. Energy and stage times are sampled from one batch in FRUGI_STATS_PERIOD of each
 * tensor, which costs nothing measurable; stats=full samples all.
 *
 * Unit sections (unit_*.c) need all accumulators before they can select; their sizes are known after that.
 */
#include "compress/compressor.h"

#include "codec/unit_value.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/block_count.h"
#include "base/status.h"

/** The section and buffers of the current batch, blocks `at` .. at + blocks - 1 of the section. */
typedef struct section_batch {
    const frugi_section *section;
    unsigned char *payload;
    uint64_t at;
    uint64_t stored;   /* number of its first block in the residual stores */
    bool has_residual; /* false for dense tensors and feedback=none */
    float *acc;
} section_batch;

/* ---- accumulate ------------------------------------------------------------- */

/* Set where the kernels read and write: in place for f32 residuals, else in the workspace. */
static void set_batch_buffers(const frugi_compress_call *call, frugi_workspace *ws, section_batch *s) {
    frug_compressor *c = call->c;
    frugi_batch *b = &ws->batch;
    uint32_t room = b->blocks * b->block;
    const float *grad = call->grad + (s->section->begin - call->begin) + s->at * b->block;
    grad = frugi_scaled_gradient(call, ws, grad, b->length == b->block ? room : b->length, room);
    b->acc = ws->acc;
    b->saved = NULL;
    if (!s->has_residual) {
        b->before = grad;
        b->grad = c->zeros;
        b->beta = 1.0f;
    } else {
        b->beta = c->feedback.beta;
        b->grad = frugi_feedback_momentum(&c->feedback, s->stored, b->blocks, grad, ws->momentum, ws->padded);
        if (frugi_residual_in_place(&c->feedback)) {
            b->acc = frugi_store_floats(&c->feedback.residual, s->stored);
            b->saved = ws->saved;
        } else {
            frugi_feedback_load(&c->feedback, s->stored, b->blocks, ws->acc);
        }
        b->before = b->acc;
    }
    s->acc = b->acc;
}

/* ---- select ------------------------------------------------------------------ */

/* All elements are sent: only check for NaN and infinity. */
static void check_finite(frugi_batch *b) {
    for (uint32_t i = 0; i < b->blocks; i++)
        b->held[i] = !frugi_all_finite(b->acc + (size_t)i * b->block, b->length);
}

/* Index lists with all elements of each block. */
static void list_all(frugi_workspace *ws) {
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        for (uint32_t e = 0; e < ws->batch.length; e++)
            ws->batch.idx[(size_t)i * ws->batch.block + e] = (uint16_t)e;
}

/* A skipped block sends zeros at indices 0 .. k - 1, and its residual is restored. */
static void skip_block(frugi_workspace *ws, const section_batch *s, uint32_t i) {
    uint32_t k = ws->batch.k[i], block = s->section->block;
    uint16_t *idx = ws->batch.idx + (size_t)i * block;
    for (uint32_t e = 0; e < k; e++)
        idx[e] = (uint16_t)e;
    if (ws->batch.saved)
        memcpy(s->acc + (size_t)i * block, ws->batch.saved + (size_t)i * block, block * sizeof *s->acc);
    ws->tally.skipped++;
}

/* ---- encode ------------------------------------------------------------------ */

/* to[e] = from[idx[e]]. The inner loop has a fixed count of 8, so that the compiler unrolls it. */
static inline void gather_values(const float *from, const uint16_t *idx, uint32_t k, float *to) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            to[e + i] = from[idx[e + i]];
    for (; e < k; e++)
        to[e] = from[idx[e]];
}

/* to[idx[e]] = from[e], unrolled likewise. */
static inline void scatter_values(const float *from, const uint16_t *idx, uint32_t k, float *to) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            to[idx[e + i]] = from[e + i];
    for (; e < k; e++)
        to[idx[e]] = from[e];
}

/* Move f32 values of a batch straight into the payload. They are exact: the residual of sent entries is 0. */
static void encode_f32(frugi_workspace *ws, const section_batch *s, frugi_block_offsets at) {
    const frugi_batch *b = &ws->batch;
    unsigned char *out = s->payload + at.value;
    for (uint32_t i = 0; i < b->blocks; out += b->k[i++] * sizeof(float)) {
        float *acc = s->acc + (size_t)i * b->block;
        const uint16_t *idx = b->idx + (size_t)i * b->block;
        if (b->held[i]) {
            memset(out, 0, b->k[i] * sizeof(float));
            continue;
        }
#pragma GCC unroll 4
        for (uint32_t e = 0; e < b->k[i]; e++) {
            memcpy(out + e * sizeof(float), &acc[idx[e]], sizeof(float));
            acc[idx[e]] = 0.0f;
        }
    }
}

/* Copy the selected values of all blocks to ws->values; zeros for skipped blocks. */
static void gather_batch(frugi_workspace *ws, const section_batch *s) {
    const frugi_batch *b = &ws->batch;
    float *values = ws->values;
    for (uint32_t i = 0; i < b->blocks; values += b->k[i++])
        if (b->held[i])
            memset(values, 0, b->k[i] * sizeof *values);
        else
            gather_values(s->acc + (size_t)i * b->block, b->idx + (size_t)i * b->block, b->k[i], values);
}

/* Write what the value code did not send back to the accumulators. */
static void scatter_batch(frugi_workspace *ws, const section_batch *s) {
    const frugi_batch *b = &ws->batch;
    const float *values = ws->values;
    for (uint32_t i = 0; i < b->blocks; values += b->k[i++])
        if (!b->held[i])
            scatter_values(values, b->idx + (size_t)i * b->block, b->k[i], s->acc + (size_t)i * b->block);
}

/* Encode the values of a batch; `values` become the residuals: what the value code did not send. */
static void encode_values(frugi_workspace *ws, const section_batch *s, float *values, frugi_block_offsets at) {
    const frugi_section *sec = s->section;
    uint32_t shared = frugi_value_scale_bytes(sec->value), bytes = frugi_value_bytes(sec->value), all = 0;
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        all += ws->batch.k[i];
    if (!shared) { /* no scale per block: encode all blocks in one call */
        frugi_value_encode(sec->value, values, all, NULL, s->payload + at.value);
        return;
    }
    for (uint32_t i = 0; i < ws->batch.blocks; i++) {
        uint32_t k = ws->batch.k[i];
        frugi_value_encode(sec->value, values, k, s->payload + at.scale, s->payload + at.value);
        values += k;
        at.scale += shared;
        at.value += (uint64_t)k * bytes;
    }
}

/* Option hold: the residual keeps the retained share besides the error of the value code. */
static void encode_retained(const frugi_compress_call *call, frugi_workspace *ws, const section_batch *s,
                            frugi_block_offsets at) {
    float *retained = ws->padded; /* free: the gradient in it was added to the accumulators */
    uint32_t all = 0;
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        all += ws->batch.k[i];
    frugi_feedback_retain(&call->feedback, ws->values, retained, all);
    encode_values(ws, s, ws->values, at);
    for (uint32_t e = 0; e < all; e++)
        ws->values[e] += retained[e];
}

/*
 * Stage by stage over the whole batch rather than block by block. This avoids store-forwarding stalls: floats that were
 * just written one by one are not read back as vectors.
 */
static void encode_batch(const frugi_compress_call *call, frugi_workspace *ws, const section_batch *s) {
    const frugi_section *sec = s->section;
    bool retain = s->has_residual && call->feedback.retained_share > 0;
    frugi_block_offsets at = frugi_section_block_offsets(sec, s->at);
    bool any_skipped = false;
    for (uint32_t i = 0; i < ws->batch.blocks; i++)
        any_skipped |= ws->batch.held[i];
    for (uint32_t i = 0; any_skipped && i < ws->batch.blocks; i++)
        if (ws->batch.held[i])
            skip_block(ws, s, i);
    if (sec->index == FRUGI_INDEX_CODE_NONE && !any_skipped && !retain) {
        encode_values(ws, s, s->acc, at);
        return;
    }
    if (sec->index == FRUGI_INDEX_CODE_NONE)
        list_all(ws);
    frugi_index_encode(sec->index, sec->block, ws->batch.blocks, ws->batch.k, ws->batch.idx, s->payload + at.index);
    if (sec->value == FRUGI_VALUE_F32 && !retain) {
        encode_f32(ws, s, at);
        return;
    }
    gather_batch(ws, s);
    if (retain)
        encode_retained(call, ws, s, at);
    else
        encode_values(ws, s, ws->values, at);
    scatter_batch(ws, s);
}

/* ---- store ------------------------------------------------------------------- */

/* Clear the momentum of sent entries. */
static void mask_momentum(const frugi_compress_call *call, frugi_workspace *ws, const section_batch *s) {
    const frugi_batch *b = &ws->batch;
    bool all = s->section->index == FRUGI_INDEX_CODE_NONE;
    for (uint32_t i = 0; i < b->blocks; i++)
        if (!b->held[i])
            frugi_feedback_mask(&call->c->feedback, ws->momentum + (size_t)i * b->block,
                                all ? NULL : b->idx + (size_t)i * b->block, b->k[i]);
}

/* Store residual and momentum of all blocks that were not skipped. */
static void store_batch(const frugi_compress_call *call, frugi_workspace *ws, const section_batch *s) {
    frugi_feedback_state *fb = &call->c->feedback;
    if (!s->has_residual)
        return;
    if (call->feedback.mask_momentum)
        mask_momentum(call, ws, s);
    frugi_feedback_store(fb, call->step, s->stored, ws->batch.blocks, ws->batch.held,
                         frugi_residual_in_place(fb) ? NULL : s->acc, frugi_has_momentum(fb) ? ws->momentum : NULL);
}

/* ---- batches ----------------------------------------------------------------- */

/* Run the four stages. weight: how many batches this one represents in the statistics; 0 if it is not sampled. */
static void run_stages(const frugi_compress_call *call, frugi_workspace *ws, section_batch *s, double weight) {
    frug_compressor *c = call->c;
    const frugi_block_kernel *kernel = ws->batch.length == ws->batch.block ? c->kernel : &frugi_block_kernel_ref;
    size_t n = (size_t)ws->batch.blocks * ws->batch.block;
    double t0 = weight > 0 ? frugi_clock() : 0;
    set_batch_buffers(call, ws, s);
    kernel->accumulate(&ws->batch);
    double t1 = weight > 0 ? frugi_clock() : 0, seen = weight > 0 ? frugi_energy(s->acc, n) : 0;
    double t2 = weight > 0 ? frugi_clock() : 0;
    if (s->section->index == FRUGI_INDEX_CODE_NONE)
        check_finite(&ws->batch);
    else
        kernel->select(&ws->batch);
    double t3 = weight > 0 ? frugi_clock() : 0;
    encode_batch(call, ws, s);
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
    b->lanes = &ws->lanes;
    uint64_t walk = (sec->first + at) * sec->kappa;
    for (uint32_t i = 0; i < b->blocks; i++)
        b->k[i] = frugi_count_next(sec->kappa, &walk);
    if (tail)
        b->k[0] = frugi_section_k(sec, at);
    section_batch s = {.section = sec,
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

/* Zero the bytes between the parts of a section. */
static void clear_padding(const frugi_frame_section *fs, unsigned char *frame) {
    const frugi_section *s = &fs->section;
    unsigned char *payload = frame + fs->payload_at;
    uint64_t scales, indices, values;
    if (s->block) {
        scales = s->blocks * frugi_value_scale_bytes(s->value);
        indices = s->index_at + frugi_index_bytes(s->index, s->block, s->blocks, s->entries);
        values = s->value_at + s->entries * frugi_value_bytes(s->value);
    } else {
        scales = frugi_value_group_scale_bytes(s);
        indices = s->index_at + s->index_bytes;
        values = s->value_at + frugi_value_group_bytes(s);
    }
    memset(payload + scales, 0, s->index_at - scales);
    memset(payload + indices, 0, s->value_at - indices);
    memset(payload + values, 0, s->bytes - values);
}

static void compress_blocks(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
#pragma omp parallel for num_threads(call->threads) schedule(static, 1) if (call->threads > 1)
    for (int i = 0; i < call->threads; i++) {
        uint64_t lo = size->batches * (uint64_t)i / (uint64_t)call->threads;
        uint64_t hi = size->batches * ((uint64_t)i + 1) / (uint64_t)call->threads;
        compress_batches(call, &c->workspace[i], lo, hi, size);
    }
}

/* Write headers and checksum. */
static void write_headers(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
    frugi_frame frame = {.bytes = size->bytes,
                         .step = call->step,
                         .layout_hash = c->layout_hash,
                         .source = c->source,
                         .sections = (uint32_t)size->sections};
    for (int i = 0; i < c->threads; i++)
        frame.held += (uint32_t)c->workspace[i].tally.skipped;
    for (size_t i = 0; i < size->sections; i++) {
        frugi_section_write(&c->section[i].section,
                            call->frame + c->section[i].payload_at - c->section[i].section.header);
        clear_padding(&c->section[i], call->frame);
    }
    frugi_frame_write(&frame, call->frame);
    frugi_frame_seal(call->frame, size->bytes, c->threads);
}

/* Elements of the range without gaps. Sections do not give this: a tensor may have none or several. */
static uint64_t count_elements(const frugi_compress_call *call) {
    uint64_t elements = 0;
    frugi_range_iter it = frugi_range_start(&call->c->partition, call->begin, call->begin + call->count);
    while (frugi_range_next(&it))
        elements += it.to - it.from;
    return elements;
}

static void update_stats(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
    uint64_t entries = 0;
    for (size_t i = 0; i < size->sections; i++)
        entries += c->section[i].section.entries;
    frugi_stats_count(c, size->bytes, entries, count_elements(call));
    frugi_stats_add_tallies(c);
}

/* ---- calls ------------------------------------------------------------------- */

/* Make the sections and check the room for them: everything that can fail, before the compressor changes. */
static frug_status make_sections(frugi_compress_call *call, size_t cap, frugi_frame_size *size) {
    frug_compressor *c = call->c;
    uint64_t bytes = 0;
    if (c->by_units && !call->send_all) {
        FRUG_TRY(frugi_make_sections(c, call->begin, call->count, call->step, FRUGI_SECTIONS_BOUND, NULL, size));
        FRUG_TRY(frugi_unit_sections_bound(c, call->begin, call->count, &bytes));
        bytes += size->bytes;
    } else {
        FRUG_TRY(frugi_make_sections(c, call->begin, call->count, call->step,
                                     call->send_all ? FRUGI_SECTIONS_DENSE : FRUGI_SECTIONS_STEP, c->section, size));
        bytes = size->bytes;
    }
    FRUG_FAIL_IF(cap < bytes, FRUG_ERR_SHORT_BUFFER,
                 "compress: the buffer has %zu bytes, and the frame may need %llu: see frug_compressor_bound()", cap,
                 (unsigned long long)bytes);
    return FRUG_OK;
}

/* Unit sections: accumulate, select, then make the sections, whose sizes are known now. */
static void select_units(const frugi_compress_call *call, frugi_frame_size *size) {
    frug_compressor *c = call->c;
    frugi_tally *tally = &c->workspace[0].tally;
    size_t first, end;
    double t0 = frugi_clock();
    frugi_select_groups_in(c, call->begin, call->count, &first, &end);
    frugi_accumulate_range(call);
    double t1 = frugi_clock();
    frugi_select_units(call, first, end);
    double t2 = frugi_clock();
    frugi_make_sections(c, call->begin, call->count, call->step, FRUGI_SECTIONS_STEP, c->section, size);
    tally->feedback += t1 - t0;
    tally->select += t2 - t1;
    tally->encode += frugi_clock() - t2;
}

static void encode_units(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
    frugi_tally *tally = &c->workspace[0].tally;
    double t0 = frugi_clock();
    for (size_t i = 0; i < size->sections; i++)
        if (!c->section[i].section.block)
            frugi_encode_unit_section(call, &c->section[i]);
    double t1 = frugi_clock();
    frugi_store_residual(call);
    tally->encode += t1 - t0;
    tally->store += frugi_clock() - t1;
}

/* Write all payloads. */
static void encode_frame(const frugi_compress_call *call, frugi_frame_size *size) {
    frug_compressor *c = call->c;
    bool by_units = c->by_units && !call->send_all;
    for (int i = 0; i < c->threads; i++)
        memset(&c->workspace[i].tally, 0, sizeof c->workspace[i].tally);
    if (by_units)
        select_units(call, size);
    compress_blocks(call, size);
    if (by_units)
        encode_units(call, size);
}

frug_status frug_compress(frug_compressor *c, uint64_t step, frug_range range, const float *grad, void *dst, size_t cap,
                          size_t *len) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!c || (!grad && count) || !dst || !len, FRUG_ERR_ARG,
                 "compress: compressor, gradient, destination or length is NULL");
    double start = frugi_clock();
    frugi_frame_size size;
    frugi_compress_call call = {.c = c, .step = step, .begin = begin, .count = count, .grad = grad, .frame = dst};
    FRUG_TRY(frugi_call_init(&call));
    frugi_control_densities(c->control, step, c->density);
    frug_status status = make_sections(&call, cap, &size);
    if (status != FRUG_OK) {
        if (c->config.norm != FRUGI_NORM_OFF)
            frugi_control_undo_norm(c->control);
        return status;
    }
    encode_frame(&call, &size);
    double encoded = frugi_clock();
    write_headers(&call, &size);
    update_stats(&call, &size);
    double end = frugi_clock();
    c->stats.seconds_checksum += end - encoded;
    c->stats.seconds_compress += end - start;
    *len = size.bytes;
    return FRUG_OK;
}

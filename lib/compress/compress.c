/*
 * compress.c - one pass over a gradient range: accumulate, select, encode, keep the rest.
 *
 * The sizes of all sections are known beforehand, so every batch of blocks knows where
 * its bytes go and the threads share nothing but the frame they write into: each takes
 * an equal run of batches. A batch stays in the first cache from the first stage to
 * the last. Energy and stage times are taken from one batch in FRUGI_SAMPLE of each tensor, which
 * costs nothing measurable; stats=full takes them from all.
 */
#include "compress/compressor.h"

#include "codec/unit_value.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/block_count.h"
#include "base/philox.h"
#include "base/status.h"

/** A batch in hand: blocks `at` .. at + blocks - 1 of a section. */
typedef struct stretch {
    const frugi_section *section;
    unsigned char *payload;
    uint64_t at;
    uint64_t stored; /* number of its first block in the residual stores */
    bool kept;       /* whether what is left over is kept at all */
    float *acc;
} stretch;

/* The gradient of a batch; a short last block is filled up with zeros, a clipped one scaled. */
static const float *gradient_of(const frugi_job *j, frugi_worker *w, const stretch *s) {
    const float *grad = j->grad + (s->section->begin - j->begin) + s->at * s->section->block;
    uint32_t length = w->batch.length, block = s->section->block, n = w->batch.blocks * block;
    if (length == block && j->gain == 1.0f)
        return grad;
    uint32_t here = length == block ? n : length;
    for (uint32_t i = 0; i < here; i++)
        w->padded[i] = j->gain * grad[i];
    memset(w->padded + here, 0, (n - here) * sizeof *grad);
    return w->padded;
}

/*
 * The smoothed gradient after this step, in scratch until the batch is known to be sound. Returns what it adds to the
 * accumulator: for dgc all of it, for ef21 how far it moves.
 */
static const float *smooth(const frugi_job *j, frugi_worker *w, const stretch *s, const float *grad) {
    const frug_compressor *c = j->c;
    size_t n = (size_t)w->batch.blocks * c->config.block;
    for (uint32_t b = 0; b < w->batch.blocks; b++)
        frugi_store_load(&c->momentum, s->stored + b, w->momentum + (size_t)b * c->config.block);
    return frugi_smooth(c, w->momentum, w->padded, grad, n);
}

/* Say where the batch reads and writes: in place for f32 residuals, in scratch for the others. */
static void aim(const frugi_job *j, frugi_worker *w, stretch *s) {
    frug_compressor *c = j->c;
    frugi_batch *b = &w->batch;
    const float *grad = gradient_of(j, w, s);
    b->acc = w->acc;
    b->saved = NULL;
    b->beta = c->beta;
    b->grad = grad;
    if (!s->kept) {
        b->before = grad;
        b->grad = c->zeros;
        b->beta = 1.0f;
    } else {
        if (frugi_has_momentum(c))
            b->grad = smooth(j, w, s, grad);
        if (c->config.residual == FRUGI_RESIDUAL_F32) {
            b->acc = frugi_store_floats(&c->residual, s->stored);
            b->saved = w->saved;
        } else {
            for (uint32_t i = 0; i < b->blocks; i++)
                frugi_store_load(&c->residual, s->stored + i, w->acc + (size_t)i * b->block);
        }
        b->before = b->acc;
    }
    s->acc = b->acc;
}

/* Everything leaves: no selection, only the check for what must not. */
static void select_all(frugi_batch *b) {
    for (uint32_t i = 0; i < b->blocks; i++)
        b->held[i] = frugi_largest_magnitude(b->acc + (size_t)i * b->block, b->length) >= FRUGI_INF_BITS;
}

/* Everything is sent: the index lists that say so. */
static void list_all(frugi_worker *w) {
    for (uint32_t i = 0; i < w->batch.blocks; i++)
        for (uint32_t e = 0; e < w->batch.length; e++)
            w->batch.idx[(size_t)i * w->batch.block + e] = (uint16_t)e;
}

/* A block that is held back sends zeros at its first k places, and what it had comes back. */
static void hold(frugi_worker *w, const stretch *s, uint32_t i) {
    uint32_t k = w->batch.k[i], block = s->section->block;
    uint16_t *idx = w->batch.idx + (size_t)i * block;
    for (uint32_t e = 0; e < k; e++)
        idx[e] = (uint16_t)e;
    if (w->batch.saved)
        memcpy(s->acc + (size_t)i * block, w->batch.saved + (size_t)i * block, block * sizeof *s->acc);
    w->tally.held++;
}

/* to[e] = from[idx[e]], eight at a time: a fixed number of rounds, which the compiler lays out flat. */
static inline void collect(const float *from, const uint16_t *idx, uint32_t k, float *to) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            to[e + i] = from[idx[e + i]];
    for (; e < k; e++)
        to[e] = from[idx[e]];
}

/* to[idx[e]] = from[e], likewise. */
static inline void spread(const float *from, const uint16_t *idx, uint32_t k, float *to) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            to[idx[e + i]] = from[e + i];
    for (; e < k; e++)
        to[idx[e]] = from[e];
}

/* f32 values of a batch go straight into the payload and leave nothing over. */
static void move_f32(frugi_worker *w, const stretch *s, frugi_place at) {
    const frugi_batch *b = &w->batch;
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

/* The entries of all blocks of the batch, in order. */
static void gather(frugi_worker *w, const stretch *s) {
    const frugi_batch *b = &w->batch;
    float *values = w->values;
    for (uint32_t i = 0; i < b->blocks; values += b->k[i++])
        if (b->held[i])
            memset(values, 0, b->k[i] * sizeof *values);
        else
            collect(s->acc + (size_t)i * b->block, b->idx + (size_t)i * b->block, b->k[i], values);
}

/* Put what the value code left over back in place. */
static void scatter(frugi_worker *w, const stretch *s) {
    const frugi_batch *b = &w->batch;
    const float *values = w->values;
    for (uint32_t i = 0; i < b->blocks; values += b->k[i++])
        if (!b->held[i])
            spread(values, b->idx + (size_t)i * b->block, b->k[i], s->acc + (size_t)i * b->block);
}

/* Values of a batch, from w->values or, where everything is sent, from the accumulators themselves. */
static void encode_values(frugi_worker *w, const stretch *s, float *values, frugi_place at) {
    const frugi_section *sec = s->section;
    uint32_t shared = frugi_value_scale_bytes(sec->value), bytes = frugi_value_bytes(sec->value), all = 0;
    for (uint32_t i = 0; i < w->batch.blocks; i++)
        all += w->batch.k[i];
    if (!shared) { /* nothing is shared by a block's values: the blocks are one run */
        frugi_value_encode(sec->value, values, all, NULL, s->payload + at.value);
        return;
    }
    for (uint32_t i = 0; i < w->batch.blocks; i++) {
        uint32_t k = w->batch.k[i];
        frugi_value_encode(sec->value, values, k, s->payload + at.scale, s->payload + at.value);
        values += k;
        at.scale += shared;
        at.value += (uint64_t)k * bytes;
    }
}

/*
 * hold: what is sent is a part of an entry, and a share of the entry stays beside what the value code leaves over. All
 * gradients still leave with a weight of 1 in the long run where they are always sent: part + part (beta hold) + ...
 */
static void encode_part(const frugi_job *j, frugi_worker *w, const stretch *s, frugi_place at) {
    float *stays = w->padded; /* the gradient in it is in the accumulators by now */
    uint32_t all = 0;
    for (uint32_t i = 0; i < w->batch.blocks; i++)
        all += w->batch.k[i];
    for (uint32_t e = 0; e < all; e++) {
        stays[e] = j->hold * w->values[e];
        w->values[e] *= j->part;
    }
    encode_values(w, s, w->values, at);
    for (uint32_t e = 0; e < all; e++)
        w->values[e] += stays[e];
}

/*
 * Stage by stage through the batch rather than block by block: single floats that were just written cannot be read
 * back as vectors without waiting, and here they never are.
 */
static void encode(const frugi_job *j, frugi_worker *w, const stretch *s) {
    const frugi_section *sec = s->section;
    bool part = s->kept && j->hold > 0;
    frugi_place at = frugi_section_place(sec, s->at);
    bool any_held = false;
    for (uint32_t i = 0; i < w->batch.blocks; i++)
        any_held |= w->batch.held[i];
    for (uint32_t i = 0; any_held && i < w->batch.blocks; i++)
        if (w->batch.held[i])
            hold(w, s, i);
    if (sec->index == FRUGI_INDEX_CODE_NONE && !any_held && !part) {
        encode_values(w, s, s->acc, at);
        return;
    }
    if (sec->index == FRUGI_INDEX_CODE_NONE)
        list_all(w);
    frugi_index_encode(sec->index, sec->block, w->batch.blocks, w->batch.k, w->batch.idx, s->payload + at.index);
    if (sec->value == FRUGI_VALUE_F32 && !part) {
        move_f32(w, s, at);
        return;
    }
    gather(w, s);
    if (part)
        encode_part(j, w, s, at);
    else
        encode_values(w, s, w->values, at);
    scatter(w, s);
}

static void keep_momentum(const frugi_job *j, frugi_worker *w, const stretch *s, const uint32_t *dice) {
    uint32_t other[FRUGI_LANES], block = w->batch.block;
    for (uint32_t i = 0; i < w->batch.blocks; i++) {
        float *momentum = w->momentum + (size_t)i * block;
        const uint16_t *idx = w->batch.idx + (size_t)i * block;
        other[i] = ~dice[i];
        if (w->batch.held[i] || !j->mask)
            continue;
        if (s->section->index == FRUGI_INDEX_CODE_NONE)
            memset(momentum, 0, block * sizeof *momentum);
        else
            for (uint32_t e = 0; e < w->batch.k[i]; e++)
                momentum[idx[e]] = 0.0f;
    }
    frugi_store_save_run(&j->c->momentum, s->stored, w->batch.blocks, w->batch.held, w->momentum, other);
}

static void keep(const frugi_job *j, frugi_worker *w, const stretch *s) {
    frug_compressor *c = j->c;
    if (!s->kept || (c->config.residual == FRUGI_RESIDUAL_F32 && !frugi_has_momentum(c)))
        return;
    uint32_t dice[FRUGI_LANES];
    for (uint32_t i = 0; i < w->batch.blocks; i++)
        dice[i] = frugi_random(c->config.seed, j->step, s->stored + i);
    if (c->config.residual != FRUGI_RESIDUAL_F32)
        frugi_store_save_run(&c->residual, s->stored, w->batch.blocks, w->batch.held, s->acc, dice);
    if (frugi_has_momentum(c))
        keep_momentum(j, w, s, dice);
}

/* The four stages; weight is how many batches this one stands for in the statistics, or 0. */
static void run_batch(const frugi_job *j, frugi_worker *w, stretch *s, double weight) {
    frug_compressor *c = j->c;
    const frugi_kernel *kernel = w->batch.length == w->batch.block ? c->kernel : &frugi_kernel_ref;
    size_t n = (size_t)w->batch.blocks * w->batch.block;
    double t0 = weight > 0 ? frugi_clock() : 0;
    aim(j, w, s);
    kernel->accumulate(&w->batch);
    double t1 = weight > 0 ? frugi_clock() : 0, seen = weight > 0 ? frugi_energy(s->acc, n) : 0;
    double t2 = weight > 0 ? frugi_clock() : 0;
    if (s->section->index == FRUGI_INDEX_CODE_NONE)
        select_all(&w->batch);
    else
        kernel->select(&w->batch);
    double t3 = weight > 0 ? frugi_clock() : 0;
    encode(j, w, s);
    double t4 = weight > 0 ? frugi_clock() : 0, left = weight > 0 ? frugi_energy(s->acc, n) : 0;
    double t5 = weight > 0 ? frugi_clock() : 0;
    keep(j, w, s);
    if (weight > 0) {
        w->tally.feedback += weight * (t1 - t0);
        w->tally.select += weight * (t3 - t2);
        w->tally.encode += weight * (t4 - t3);
        w->tally.store += weight * (frugi_clock() - t5);
        if (seen - seen == 0 && left - left == 0) { /* finite: no block was held */
            w->tally.energy_seen += weight * seen;
            w->tally.energy_left += weight * left;
        }
    }
}

/* Batch number n of a slice. */
static void do_batch(const frugi_job *j, frugi_worker *w, const frugi_slice *slice, uint64_t n, double weight) {
    frug_compressor *c = j->c;
    const frugi_section *sec = &slice->section;
    uint64_t whole = sec->count / sec->block, at = n * c->batch_most;
    bool tail = at >= whole;
    at = tail ? whole : at;
    frugi_batch *b = &w->batch;
    b->block = sec->block;
    b->blocks = tail ? 1 : whole - at < c->batch_most ? (uint32_t)(whole - at) : c->batch_most;
    b->length = tail ? sec->last_length : sec->block;
    b->select = c->config.select;
    b->idx = w->idx;
    b->lanes = &w->lanes;
    uint64_t walk = (sec->first + at) * sec->kappa;
    for (uint32_t i = 0; i < b->blocks; i++)
        b->k[i] = frugi_count_next(sec->kappa, &walk);
    if (tail)
        b->k[0] = frugi_section_k(sec, at);
    stretch s = {.section = sec,
                 .payload = j->frame + slice->payload_at,
                 .at = at,
                 .stored = slice->stored + at,
                 .kept = c->config.feedback != FRUGI_FEEDBACK_NONE && !slice->dense};
    run_batch(j, w, &s, weight);
}

/* A thread's share: batches lo .. hi - 1 of all slices. */
static void do_share(const frugi_job *j, frugi_worker *w, uint64_t lo, uint64_t hi, const frugi_cutting *cut) {
    const frugi_slice *slice = j->c->slice, *end = slice + cut->slices;
    while (slice + 1 < end && slice[1].first_batch <= lo)
        slice++;
    for (uint64_t n = lo; n < hi; n++) {
        while (slice + 1 < end && slice[1].first_batch <= n)
            slice++;
        uint64_t next = slice + 1 < end ? slice[1].first_batch : cut->batches, at = n - slice->first_batch;
        frugi_sampled all = {.items = next - slice->first_batch,
                             .length = (uint64_t)j->c->batch_most * slice->section.block,
                             .total = slice->section.count};
        do_batch(j, w, slice, at, frugi_sample_weight(j->c, &all, at));
    }
}

static void clear_padding(const frugi_slice *slice, unsigned char *frame) {
    const frugi_section *s = &slice->section;
    unsigned char *payload = frame + slice->payload_at;
    uint64_t scales, indices, values;
    if (s->block) {
        scales = s->blocks * frugi_value_scale_bytes(s->value);
        indices = s->index_at + frugi_index_bytes(s->index, s->block, s->blocks, s->entries);
        values = s->value_at + s->entries * frugi_value_bytes(s->value);
    } else {
        scales = frugi_group_scale_bytes(s);
        indices = s->index_at + s->index_bytes;
        values = s->value_at + frugi_group_value_bytes(s);
    }
    memset(payload + scales, 0, s->index_at - scales);
    memset(payload + indices, 0, s->value_at - indices);
    memset(payload + values, 0, s->bytes - values);
}

static void do_all(const frugi_job *j, const frugi_cutting *cut) {
    frug_compressor *c = j->c;
#pragma omp parallel for num_threads(j->threads) schedule(static, 1) if (j->threads > 1)
    for (int i = 0; i < j->threads; i++) {
        uint64_t lo = cut->batches * (uint64_t)i / (uint64_t)j->threads;
        uint64_t hi = cut->batches * ((uint64_t)i + 1) / (uint64_t)j->threads;
        do_share(j, &c->worker[i], lo, hi, cut);
    }
}

static void finish_frame(const frugi_job *j, const frugi_cutting *cut) {
    frug_compressor *c = j->c;
    frugi_frame frame = {.bytes = cut->bytes,
                         .step = j->step,
                         .layout_hash = c->layout_hash,
                         .source = c->source,
                         .sections = (uint32_t)cut->slices};
    for (int i = 0; i < c->threads; i++)
        frame.held += (uint32_t)c->worker[i].tally.held;
    for (size_t i = 0; i < cut->slices; i++) {
        frugi_section_write(&c->slice[i].section, j->frame + c->slice[i].payload_at - c->slice[i].section.header);
        clear_padding(&c->slice[i], j->frame);
    }
    frugi_frame_write(&frame, j->frame);
    frugi_frame_seal(j->frame, cut->bytes, c->threads);
}

/* Elements of the range, gaps aside; not those of its sections, which may be none or several of a tensor. */
static uint64_t elements_of(const frugi_job *j) {
    const frug_compressor *c = j->c;
    uint64_t elements = 0, end = j->begin + j->count;
    for (size_t i = frugi_piece_at(c, j->begin); i < c->pieces && c->piece[i].begin < end; i++) {
        uint64_t from = c->piece[i].begin, to = from + c->piece[i].count;
        elements += (to < end ? to : end) - (from > j->begin ? from : j->begin);
    }
    return elements;
}

static void add_up(const frugi_job *j, const frugi_cutting *cut) {
    frug_compressor *c = j->c;
    frug_stats *t = &c->stats;
    double seen = 0, left = 0;
    uint64_t entries = 0, elements = elements_of(j);
    for (int i = 0; i < c->threads; i++) {
        const frugi_tally *w = &c->worker[i].tally;
        seen += w->energy_seen;
        left += w->energy_left;
        t->seconds_feedback += w->feedback;
        t->seconds_select += w->select;
        t->seconds_encode += w->encode;
        t->seconds_store += w->store;
        t->blocks_held += w->held;
    }
    for (size_t i = 0; i < cut->slices; i++)
        entries += c->slice[i].section.entries;
    c->energy_seen += seen;
    c->energy_left += left;
    t->calls++;
    t->bytes_sent += cut->bytes;
    t->bytes_dense += 4 * elements;
    t->entries_sent += entries;
    t->entries_seen += elements;
    t->density_now = elements ? (double)entries / (double)elements : 0;
    t->density_mean = t->entries_seen ? (double)t->entries_sent / (double)t->entries_seen : 0;
    t->energy_kept_now = seen > 0 ? 1 - left / seen : 0;
    t->energy_kept_mean = c->energy_seen > 0 ? 1 - c->energy_left / c->energy_seen : 0;
}

/* Everything that can fail, before anything of the compressor changes. */
static frug_status check_call(frugi_job *j, size_t cap, frugi_cutting *cut) {
    frug_compressor *c = j->c;
    uint64_t bytes = 0;
    if (c->by_units && !j->all) {
        FRUG_TRY(frugi_cut(c, j->begin, j->count, j->step, FRUGI_CUT_BOUND, NULL, cut));
        FRUG_TRY(frugi_units_bound(c, j->begin, j->count, &bytes));
        bytes += cut->bytes;
    } else {
        FRUG_TRY(frugi_cut(c, j->begin, j->count, j->step, j->all ? FRUGI_CUT_ALL : FRUGI_CUT_STEP, c->slice, cut));
        bytes = cut->bytes;
    }
    FRUG_FAIL_IF(cap < bytes, FRUG_ERR_SHORT_BUFFER, "compress: up to %llu bytes to write, room for %zu",
                 (unsigned long long)bytes, cap);
    return FRUG_OK;
}

/* Sections by units: all accumulators first, then the choice, then the sections' places in the frame. */
static void choose_units(const frugi_job *j, frugi_cutting *cut) {
    frug_compressor *c = j->c;
    frugi_tally *tally = &c->worker[0].tally;
    size_t first, end;
    double t0 = frugi_clock();
    frugi_contests_of(c, j->begin, j->count, &first, &end);
    frugi_accumulate(j);
    double t1 = frugi_clock();
    frugi_choose(j, first, end);
    double t2 = frugi_clock();
    frugi_cut(c, j->begin, j->count, j->step, FRUGI_CUT_STEP, c->slice, cut);
    tally->feedback += t1 - t0;
    tally->select += t2 - t1;
    tally->encode += frugi_clock() - t2;
}

static void say_units(const frugi_job *j, const frugi_cutting *cut) {
    frug_compressor *c = j->c;
    frugi_tally *tally = &c->worker[0].tally;
    double t0 = frugi_clock();
    for (size_t i = 0; i < cut->slices; i++)
        if (!c->slice[i].section.block)
            frugi_units_encode(j, &c->slice[i]);
    double t1 = frugi_clock();
    frugi_put_back(j);
    tally->encode += t1 - t0;
    tally->store += frugi_clock() - t1;
}

static void run(frugi_job *j, frugi_cutting *cut) {
    frug_compressor *c = j->c;
    bool by_units = c->by_units && !j->all;
    for (int i = 0; i < c->threads; i++)
        memset(&c->worker[i].tally, 0, sizeof c->worker[i].tally);
    if (by_units)
        choose_units(j, cut);
    do_all(j, cut);
    if (by_units)
        say_units(j, cut);
}

frug_status frug_compress(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                          void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!c || (!grad && count) || !dst || !len, FRUG_ERR_ARG,
                 "compress: no compressor, gradient, destination or place for the length");
    double start = frugi_clock();
    frugi_cutting cut;
    frugi_job j = {.c = c, .step = step, .begin = begin, .count = count, .grad = grad, .frame = dst};
    FRUG_TRY(frugi_job_start(&j));
    frugi_control_densities(c->control, step, c->density);
    frug_status status = check_call(&j, cap, &cut);
    if (status != FRUG_OK) {
        if (c->config.norm != FRUGI_NORM_OFF)
            frugi_control_unsay(c->control);
        return status;
    }
    run(&j, &cut);
    double sealing = frugi_clock();
    finish_frame(&j, &cut);
    add_up(&j, &cut);
    double end = frugi_clock();
    c->stats.seconds_checksum += end - sealing;
    c->stats.seconds_compress += end - start;
    *len = cut.bytes;
    return FRUG_OK;
}

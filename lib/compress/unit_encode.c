/*
 * unit_encode.c - encode unit sections.
 *
 * The index code is chosen by exact size before anything is written. Values are then copied from the accumulators and
 * encoded, and what the value code did not send is written back, in chunks of a few thousand: threads encode chunks in
 * parallel, and a chunk stays in the L1 cache.
 */
#include "compress/compress_path.h"

#include "codec/unit_value.h"
#include "select/n_of_m.h"
#include "base/float_bits.h"

/* ---- sections --------------------------------------------------------------- */

/* Number of elements of the selected units. */
static uint64_t count_entries(const frugi_grid *g, const uint32_t *list, uint64_t selected) {
    if (!list)
        return g->rows * g->cols;
    if (frugi_grid_is_uniform(g))
        return selected * g->h * g->w;
    uint64_t entries = 0;
    for (uint64_t i = 0; i < selected; i++)
        entries += frugi_grid_size(g, list[i]);
    return entries;
}

void frugi_set_index_code(frugi_index_choice choice, const uint32_t *list, frugi_section *s) {
    static const frugi_index code[] = {
        [FRUGI_INDEX_LOCAL] = FRUGI_INDEX_CODE_LOCAL, [FRUGI_INDEX_BITMAP] = FRUGI_INDEX_CODE_BITMAP,
        [FRUGI_INDEX_COO] = FRUGI_INDEX_CODE_COO,     [FRUGI_INDEX_CSR] = FRUGI_INDEX_CODE_CSR,
        [FRUGI_INDEX_RLE] = FRUGI_INDEX_CODE_RLE,     [FRUGI_INDEX_RICE] = FRUGI_INDEX_CODE_RICE,
    };
    bool requested = choice != FRUGI_INDEX_FIXED && choice != FRUGI_INDEX_AUTO;
    frugi_index last = choice == FRUGI_INDEX_FIXED ? FRUGI_INDEX_CODE_BITMAP : FRUGI_INDEX_CODE_RICE;
    uint64_t most = 0;
    s->index = requested ? code[choice] : FRUGI_INDEX_CODE_LOCAL;
    frugi_unit_index_bounds(s, &s->index_bytes, &most);
    if (requested && s->index_bytes == most) /* the size does not depend on the list */
        return;
    frugi_index_sizes sizes;
    frugi_unit_index_measure(&s->grid, list, s->kept, &sizes);
    for (frugi_index i = FRUGI_INDEX_CODE_BITMAP; !requested && i <= last; i++)
        s->index = sizes.bytes[i] < sizes.bytes[s->index] ? i : s->index;
    s->index_bytes = sizes.bytes[s->index];
    s->rice = s->index == FRUGI_INDEX_CODE_RICE ? sizes.rice : 0;
}

/* Whether a value code has a scale per value group. */
static bool has_scales(frugi_value value) {
    return value != FRUGI_VALUE_F32 && value != FRUGI_VALUE_BF16;
}

static frugi_frame_section make_section(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step,
                                        const uint32_t *list, uint64_t selected, frugi_encoder_selects selects,
                                        float draw_unit) {
    frugi_frame_section fs = {.view = view, .list = list, .selects = selects, .draw_unit = draw_unit};
    frugi_section *s = &fs.section;
    s->tensor = view->tensor;
    s->begin = view->begin;
    s->count = view->count;
    s->grid = view->grid;
    s->kept = selected;
    s->entries = selects ? selected : count_entries(&view->grid, list, selected);
    s->value = draw_unit != 0 ? FRUGI_VALUE_SIGN : c->config.value;
    s->group = draw_unit != 0 || !has_scales(s->value) ? 0 : c->config.bucket;
    s->levels = s->value == FRUGI_VALUE_QSGD ? c->config.levels : 0;
    if (selects) {
        uint64_t most;
        s->index = selects == FRUGI_ENCODER_SELECTS_FOURS ? FRUGI_INDEX_CODE_BITMAP : FRUGI_INDEX_CODE_COO;
        frugi_unit_index_bounds(s, &s->index_bytes, &most); /* the same for any selection */
    } else if (!list) {
        s->index = FRUGI_INDEX_CODE_NONE;
    } else if (c->config.rule == FRUGI_RULE_RANDOM && !c->units.select_group[view->select_group].heads) {
        s->index = FRUGI_INDEX_CODE_SEEDED;
        s->key = frugi_draw_key(c, step, view->select_group);
    } else {
        frugi_set_index_code(c->config.index, list, s);
    }
    frugi_section_measure(s);
    return fs;
}

void frugi_add_unit_sections(frugi_section_list *list, const frugi_range_iter *it) {
    const frugi_unit_selection *s = &list->c->units.selection[it->view->number];
    if (list->mode != FRUGI_SECTIONS_STEP)
        return; /* not selected yet: frugi_unit_sections_bound() */
    if (s->selected) {
        frugi_frame_section fs = make_section(list->c, it->view, list->step, s->list, s->selected, s->selects, 0);
        fs.values = s->values;
        fs.cutoff = s->cutoff;
        fs.rest_left = s->rest_left;
        frugi_append_section(list, fs);
    }
    if (s->draws)
        frugi_append_section(list, make_section(list->c, it->view, list->step, s->drawn, s->draws,
                                                FRUGI_ENCODER_SELECTS_NOTHING, s->draw_unit));
}

/* ---- values ------------------------------------------------------------------- */

/* Workers round independently of each other, so the key depends on their rank. */
uint64_t frugi_rounding_key(const frug_compressor *c, uint64_t step, size_t number) {
    return frugi_draw_key(c, step, number) ^ ((uint64_t)c->source * 0x9e3779b97f4a7c15u);
}

/** Position in the sequence of values: element `inside` of the unit at index `unit` of the list. */
typedef struct value_pos {
    uint64_t unit, inside;
} value_pos;

static uint64_t unit_at(const frugi_frame_section *fs, uint64_t i) {
    return fs->list ? fs->list[i] : i;
}

/* The position n values further on. */
static value_pos advance(const frugi_frame_section *fs, value_pos at, uint64_t n) {
    const frugi_grid *g = &fs->section.grid;
    at.inside += n;
    if (frugi_grid_is_uniform(g))
        return (value_pos){at.unit + at.inside / (g->h * g->w), at.inside % (g->h * g->w)};
    while (at.unit < fs->section.kept && frugi_grid_size(g, unit_at(fs, at.unit)) <= at.inside)
        at.inside -= frugi_grid_size(g, unit_at(fs, at.unit++));
    return at;
}

/** Called for n consecutive elements, which are the values from number `value` on. */
typedef void run_fn(void *ctx, uint64_t element, uint64_t value, uint64_t n);

/* Call fn for each run of consecutive elements among n values. */
static void for_each_run(const frugi_frame_section *fs, value_pos at, uint64_t n, run_fn *fn, void *ctx) {
    const frugi_grid *g = &fs->section.grid;
    for (uint64_t value = 0; value < n; at = (value_pos){at.unit + 1, 0}) {
        frugi_tile t = frugi_grid_tile(g, unit_at(fs, at.unit));
        uint64_t size = t.h * t.w, row = at.inside / t.w, col = at.inside % t.w;
        for (; at.inside < size && value < n; row++, col = 0) {
            uint64_t run = t.w - col < n - value ? t.w - col : n - value;
            fn(ctx, t.at + row * g->cols + col, value, run);
            at.inside += run;
            value += run;
        }
    }
}

/** A chunk of values. */
typedef struct value_chunk {
    const float *acc;
    float *values;
    float *residual; /* destination of what was not sent; NULL for feedback=none */
    float *momentum; /* where the momentum of sent elements is cleared, or NULL */
    uint8_t *sent;   /* where sent elements are marked, or NULL */
} value_chunk;

static void read_run(void *ctx, uint64_t element, uint64_t value, uint64_t n) {
    const value_chunk *s = ctx;
    memcpy(s->values + value, s->acc + element, n * sizeof(float));
}

static void write_run(void *ctx, uint64_t element, uint64_t value, uint64_t n) {
    const value_chunk *s = ctx;
    if (s->residual + element != s->values + value)
        memcpy(s->residual + element, s->values + value, n * sizeof(float));
    if (s->momentum)
        memset(s->momentum + element, 0, n * sizeof(float));
    if (s->sent)
        memset(s->sent + element, 1, n);
}

/* The same for units that are elements, the usual case, without a call per run. */
static void read_elements(const value_chunk *s, const uint32_t *list, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        s->values[i] = s->acc[list[i]];
}

static void write_elements(const value_chunk *s, const uint32_t *list, uint64_t n, bool rest_left) {
    for (uint64_t i = 0; !rest_left && i < n; i++)
        s->residual[list[i]] = s->values[i];
    for (uint64_t i = 0; s->momentum && i < n; i++)
        s->momentum[list[i]] = 0.0f;
    for (uint64_t i = 0; s->sent && i < n; i++)
        s->sent[list[i]] = 1;
}

/** A section being written. */
typedef struct section_writer {
    const frugi_compress_call *call;
    const frugi_frame_section *fs;
    frugi_value_group_options how;
    float gain;     /* rule=random without feedback: units / selected units; else the share of an entry that is sent */
    float retained; /* option hold: share of an entry that stays in the residual */
    unsigned char *scales, *index, *values;
} section_writer;

/* Encode n values from number `from` on; v becomes the residual of these values, if it is needed. */
static void encode_values(const section_writer *w, uint64_t from, uint64_t n, bool residual_needed, float *v,
                          float *copy) {
    const frugi_frame_section *fs = w->fs;
    float unit = fs->draw_unit;
    frugi_value_group_options how = w->how;
    how.error_ignored = !residual_needed;
    if (unit == 0 && w->gain == 1.0f && w->retained == 0) {
        frugi_value_group_encode(&fs->section, &how, from, n, v, w->scales, w->values);
        return;
    }
    memcpy(copy, v, n * sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = unit == 0 ? frugi_clamp_finite(w->gain * v[i]) : frugi_f32_bits(v[i]) >> 31 ? -unit : unit;
    for (uint64_t i = 0; i < n; i++)
        copy[i] = w->retained > 0 ? w->retained * copy[i] : copy[i] - v[i];
    frugi_value_group_encode(&fs->section, &how, from, n, v, w->scales, w->values);
    for (uint64_t i = 0; i < n; i++)
        v[i] += copy[i];
}

/* Select the elements of the values from .. from + n - 1: N of every 4. Writes their bits; returns their list. */
static const uint32_t *select_chunk(const section_writer *w, frugi_workspace *ws, const value_chunk *s, uint64_t from,
                                    uint64_t n) {
    const frug_compressor *c = w->call->c;
    uint64_t bits[FRUGI_TOPK_SHORT / 64], begin = from / c->config.group_keep * 4;
    uint32_t count = (uint32_t)(n / c->config.group_keep * 4);
    frugi_mark_n_of_4(c->units.topk, s->acc + begin, count, c->config.group_keep, c->config.select, bits);
    memcpy(w->index + begin / 8, bits, (count + 7) / 8);
    frugi_topk_take(c->units.topk, s->acc + begin, bits, count, (uint32_t)begin, ws->units, s->values);
    return ws->units;
}

/* The accumulators, and what changes where elements are sent. */
static value_chunk open_chunk(const section_writer *w) {
    const frug_compressor *c = w->call->c;
    const frugi_tensor_view *view = w->fs->view;
    value_chunk s = {.acc = frugi_accumulators(w->call, view)};
    if (c->config.feedback == FRUGI_FEEDBACK_NONE)
        return s;
    s.residual = (float *)s.acc;
    s.sent = c->units.sent_mask ? c->units.sent_mask + view->first_block * c->config.block : NULL;
    if (w->call->feedback.mask_momentum && !s.sent)
        s.momentum = frugi_store_floats(&c->feedback.momentum, view->first_block);
    return s;
}

/* Whether n consecutive elements can be encoded without copies: their errors are their residuals, or not needed. */
static bool encodes_in_place(const section_writer *w, const value_chunk *s, bool residual_needed) {
    bool unchanged = w->fs->draw_unit == 0 && w->gain == 1.0f && w->retained == 0;
    return s->residual || (!residual_needed && unchanged && w->fs->section.value > FRUGI_VALUE_INT8);
}

/* Read, encode and write back a chunk of n values. weight: of the chunk in the statistics, or 0. */
static void encode_chunk(const section_writer *w, frugi_workspace *ws, value_pos at, uint64_t from, uint64_t n,
                         double weight) {
    const frugi_frame_section *fs = w->fs;
    const frugi_grid *g = &fs->section.grid;
    const uint32_t *list = fs->list ? fs->list + from : NULL;
    bool elements = fs->selects || (list && g->h == 1 && g->w == 1), flat = !list && frugi_grid_is_contiguous(g);
    value_chunk s = open_chunk(w);
    bool residual_needed = s.residual || weight > 0;
    s.values = ws->values;
    if (fs->selects)
        list = select_chunk(w, ws, &s, from, n);
    else if (fs->values)
        memcpy(s.values, fs->values + from, n * sizeof *s.values);
    else if (elements)
        read_elements(&s, list, n);
    else if (flat && encodes_in_place(w, &s, residual_needed))
        s.values = (float *)s.acc + from;
    else if (flat)
        read_run(&s, from, 0, n);
    else
        for_each_run(fs, at, n, read_run, &s);
    double before = weight > 0 ? frugi_energy(s.values, n) : 0;
    encode_values(w, from, n, residual_needed, s.values, ws->padded);
    if (weight > 0)
        ws->tally.energy_left -= weight * (before - frugi_energy(s.values, n));
    if (s.residual && elements)
        write_elements(&s, list, n, fs->rest_left);
    else if (s.residual && flat)
        write_run(&s, from, 0, n);
    else if (s.residual)
        for_each_run(fs, at, n, write_run, &s);
}

/* Values in a chunk: a whole number of value groups. */
static uint64_t chunk_length(const struct frug_config *config, const frugi_frame_section *fs) {
    const frugi_section *s = &fs->section;
    if (fs->selects == FRUGI_ENCODER_SELECTS_FOURS)
        return FRUGI_TOPK_SHORT / 4 * config->group_keep;
    uint64_t fit = s->group ? FRUGI_BATCH_ELEMENTS / s->group : 0;
    return !s->group ? FRUGI_BATCH_ELEMENTS : fit ? fit * s->group : s->group;
}

/* Encode all values, a range of chunks per thread. */
static void encode_chunks(const section_writer *w) {
    const frugi_compress_call *call = w->call;
    const frugi_section *s = &w->fs->section;
    uint64_t length = chunk_length(&call->c->config, w->fs), chunks = (s->entries - 1) / length + 1;
    frugi_stats_items all = {.items = chunks, .length = length, .total = s->entries};
#pragma omp parallel for num_threads(call->threads) schedule(static, 1) if (call->threads > 1)
    for (int t = 0; t < call->threads; t++) {
        uint64_t lo = chunks * (uint64_t)t / (uint64_t)call->threads;
        uint64_t hi = chunks * ((uint64_t)t + 1) / (uint64_t)call->threads;
        value_pos at = advance(w->fs, (value_pos){0, 0}, lo * length);
        for (uint64_t i = lo; i < hi; i++) {
            uint64_t from = i * length, n = s->entries - from < length ? s->entries - from : length;
            encode_chunk(w, &call->c->workspace[t], at, from, n, frugi_stats_weight(call->c, &all, i));
            at = advance(w->fs, at, n);
        }
    }
}

/* Emit the entries above the cutoff into the frame and clear them: f32 values leave no residual. */
static void encode_above(const section_writer *w) {
    const frugi_compress_call *call = w->call;
    frug_compressor *c = call->c;
    const frugi_section *s = &w->fs->section;
    frugi_workspace *ws = &c->workspace[0];
    frugi_cutoff cut = w->fs->cutoff;
    value_chunk all = open_chunk(w);
    frugi_float_array span = {all.acc, s->count};
    frugi_topk_rest rest = {all.residual, false};
    frugi_topk_emit_to(c->units.topk, &span, &cut, rest, w->index, w->values, call->threads);
    uint64_t length = FRUGI_BATCH_ELEMENTS, chunks = (s->entries - 1) / length + 1;
    frugi_stats_items items = {.items = chunks, .length = length, .total = s->entries};
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t from = i * length, n = s->entries - from < length ? s->entries - from : length;
        double weight = frugi_stats_weight(c, &items, i);
        if (!(weight > 0))
            continue;
        memcpy(ws->values, w->values + from * sizeof(float), n * sizeof(float));
        ws->tally.energy_left -= weight * frugi_energy(ws->values, n);
    }
}

void frugi_encode_unit_section(const frugi_compress_call *call, const frugi_frame_section *fs) {
    const frug_compressor *c = call->c;
    const frugi_section *s = &fs->section;
    unsigned char *payload = call->frame + fs->payload_at;
    bool compensate = c->config.rule == FRUGI_RULE_RANDOM && c->config.feedback == FRUGI_FEEDBACK_NONE;
    section_writer w = {.call = call, .fs = fs, .scales = payload};
    w.index = payload + s->index_at;
    w.values = payload + s->value_at;
    w.how.kernel = c->units.value_kernel;
    w.how.norm = c->config.qnorm;
    w.how.key = frugi_rounding_key(c, call->step, fs->view->number);
    w.gain = compensate ? (float)((double)s->grid.units / (double)s->kept) : call->feedback.sent_share;
    w.retained = call->feedback.retained_share;
    if (fs->draw_unit != 0)
        frugi_put16(payload, frugi_f32_bf16(fs->draw_unit));
    if (fs->selects == FRUGI_ENCODER_SELECTS_ABOVE) {
        encode_above(&w);
        return;
    }
    if (!fs->selects)
        frugi_unit_index_encode(s, fs->list, w.index);
    encode_chunks(&w);
}

/*
 * unit_encode.c - sections by units: how what was chosen is put into bytes.
 *
 * The index code is picked by exact size before anything is written. Values are then taken out of the accumulators,
 * encoded and what the code left over put back, a stretch of a few thousand at a time, so that threads can take
 * stretches side by side and none of it leaves the first cache in between.
 */
#include "compress/compressor.h"

#include "codec/unit_value.h"
#include "base/float_bits.h"

/* ---- sections --------------------------------------------------------------- */

static uint64_t entries_of(const frugi_grid *g, const uint32_t *list, uint64_t kept) {
    if (!list)
        return g->rows * g->cols;
    if (frugi_grid_even(g))
        return kept * g->h * g->w;
    uint64_t entries = 0;
    for (uint64_t i = 0; i < kept; i++)
        entries += frugi_grid_size(g, list[i]);
    return entries;
}

/* The code that was asked for, or the shortest for this list. */
static void pick_index(frugi_index_choice choice, const uint32_t *list, frugi_section *s) {
    static const frugi_index code[] = {
        [FRUGI_INDEX_LOCAL] = FRUGI_INDEX_CODE_LOCAL, [FRUGI_INDEX_BITMAP] = FRUGI_INDEX_CODE_BITMAP,
        [FRUGI_INDEX_COO] = FRUGI_INDEX_CODE_COO,     [FRUGI_INDEX_CSR] = FRUGI_INDEX_CODE_CSR,
        [FRUGI_INDEX_RLE] = FRUGI_INDEX_CODE_RLE,     [FRUGI_INDEX_RICE] = FRUGI_INDEX_CODE_RICE,
    };
    bool asked = choice != FRUGI_INDEX_FIXED && choice != FRUGI_INDEX_AUTO;
    frugi_index last = choice == FRUGI_INDEX_FIXED ? FRUGI_INDEX_CODE_BITMAP : FRUGI_INDEX_CODE_RICE;
    uint64_t most = 0;
    s->index = asked ? code[choice] : FRUGI_INDEX_CODE_LOCAL;
    frugi_unit_index_bounds(s, &s->index_bytes, &most);
    if (asked && s->index_bytes == most) /* the list makes no difference */
        return;
    frugi_index_sizes sizes;
    frugi_unit_index_measure(&s->grid, list, s->kept, &sizes);
    for (frugi_index i = FRUGI_INDEX_CODE_BITMAP; !asked && i <= last; i++)
        s->index = sizes.bytes[i] < sizes.bytes[s->index] ? i : s->index;
    s->index_bytes = sizes.bytes[s->index];
    s->rice = s->index == FRUGI_INDEX_CODE_RICE ? sizes.rice : 0;
}

static bool shares_scales(frugi_value value) {
    return value != FRUGI_VALUE_F32 && value != FRUGI_VALUE_BF16;
}

static frugi_slice section_of(const frug_compressor *c, const frugi_piece *p, uint64_t step, const uint32_t *list,
                              uint64_t kept, float draw_unit) {
    frugi_slice slice = {.piece = p, .list = list, .draw_unit = draw_unit};
    frugi_section *s = &slice.section;
    s->tensor = p->tensor;
    s->begin = p->begin;
    s->count = p->count;
    s->grid = p->grid;
    s->kept = kept;
    s->entries = entries_of(&p->grid, list, kept);
    s->value = draw_unit != 0 ? FRUGI_VALUE_SIGN : c->config.value;
    s->group = draw_unit != 0 || !shares_scales(s->value) ? 0 : c->config.bucket;
    s->levels = s->value == FRUGI_VALUE_QSGD ? c->config.levels : 0;
    if (!list) {
        s->index = FRUGI_INDEX_CODE_NONE;
    } else if (c->config.rule == FRUGI_RULE_RANDOM && !c->contest[p->contest].heads) {
        s->index = FRUGI_INDEX_CODE_SEEDED;
        s->key = frugi_draw_key(c, step, p->contest);
    } else {
        pick_index(c->config.index, list, s);
    }
    frugi_section_measure(s);
    return slice;
}

size_t frugi_units_sections(const frug_compressor *c, const frugi_piece *p, uint64_t step, frugi_slice *slice) {
    size_t n = 0;
    if (p->kept)
        slice[n++] = section_of(c, p, step, p->list, p->kept, 0);
    if (n)
        slice[0].values = p->values;
    if (p->draws)
        slice[n++] = section_of(c, p, step, p->drawn, p->draws, p->draw_unit);
    return n;
}

/* ---- values ------------------------------------------------------------------- */

/** A place in the sequence of values: inside the unit that stands at `unit` of the list. */
typedef struct place {
    uint64_t unit, inside;
} place;

static uint64_t unit_at(const frugi_slice *slice, uint64_t i) {
    return slice->list ? slice->list[i] : i;
}

/* The place n values further on. */
static place advance(const frugi_slice *slice, place at, uint64_t n) {
    const frugi_grid *g = &slice->section.grid;
    at.inside += n;
    if (frugi_grid_even(g))
        return (place){at.unit + at.inside / (g->h * g->w), at.inside % (g->h * g->w)};
    while (at.unit < slice->section.kept && frugi_grid_size(g, unit_at(slice, at.unit)) <= at.inside)
        at.inside -= frugi_grid_size(g, unit_at(slice, at.unit++));
    return at;
}

/** What is done with each run of neighbours among the values. */
typedef void visit_fn(void *ctx, uint64_t element, uint64_t value, uint64_t n);

/* Visit n values from a place on, run by run. */
static void visit(const frugi_slice *slice, place at, uint64_t n, visit_fn *fn, void *ctx) {
    const frugi_grid *g = &slice->section.grid;
    for (uint64_t value = 0; value < n; at = (place){at.unit + 1, 0}) {
        frugi_tile t = frugi_grid_tile(g, unit_at(slice, at.unit));
        uint64_t size = t.h * t.w, row = at.inside / t.w, col = at.inside % t.w;
        for (; at.inside < size && value < n; row++, col = 0) {
            uint64_t run = t.w - col < n - value ? t.w - col : n - value;
            fn(ctx, t.at + row * g->cols + col, value, run);
            at.inside += run;
            value += run;
        }
    }
}

/** A stretch of values in hand. */
typedef struct stretch {
    const float *acc;
    float *values;
    float *put;    /* where what is left goes; NULL where nothing is kept */
    uint8_t *sent; /* where sent elements are marked, or NULL */
} stretch;

static void take_run(void *ctx, uint64_t element, uint64_t value, uint64_t n) {
    const stretch *s = ctx;
    memcpy(s->values + value, s->acc + element, n * sizeof(float));
}

static void put_run(void *ctx, uint64_t element, uint64_t value, uint64_t n) {
    const stretch *s = ctx;
    memcpy(s->put + element, s->values + value, n * sizeof(float));
    if (s->sent)
        memset(s->sent + element, 1, n);
}

/* Single elements, the usual case, without the detour. */
static void take_elements(const stretch *s, const uint32_t *list, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        s->values[i] = s->acc[list[i]];
}

static void put_elements(const stretch *s, const uint32_t *list, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        s->put[list[i]] = s->values[i];
    for (uint64_t i = 0; s->sent && i < n; i++)
        s->sent[list[i]] = 1;
}

/** A slice being written. */
typedef struct writing {
    const frugi_job *j;
    const frugi_slice *slice;
    frugi_group_how how;
    float gain; /* rule=random without feedback: makes up for what is not sent; hold: the part that is */
    float stay; /* hold: the share that stays */
    unsigned char *scales, *values;
} writing;

/* v becomes what is left of the accumulators after these values are sent. */
static void encode_values(const writing *w, uint64_t from, uint64_t n, float *v, float *copy) {
    const frugi_slice *slice = w->slice;
    float unit = slice->draw_unit;
    if (unit == 0 && w->gain == 1.0f && w->stay == 0) {
        frugi_group_encode(&slice->section, &w->how, from, n, v, w->scales, w->values);
        return;
    }
    memcpy(copy, v, n * sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = unit == 0 ? frugi_tame(w->gain * v[i]) : frugi_f32_bits(v[i]) >> 31 ? -unit : unit;
    for (uint64_t i = 0; i < n; i++)
        copy[i] = w->stay > 0 ? w->stay * copy[i] : copy[i] - v[i];
    frugi_group_encode(&slice->section, &w->how, from, n, v, w->scales, w->values);
    for (uint64_t i = 0; i < n; i++)
        v[i] += copy[i];
}

static void do_stretch(const writing *w, frugi_worker *worker, place at, uint64_t from, uint64_t n, double weight) {
    frug_compressor *c = w->j->c;
    const frugi_slice *slice = w->slice;
    const frugi_grid *g = &slice->section.grid;
    stretch s = {.acc = frugi_accumulated(w->j, slice->piece), .values = worker->values};
    bool elements = slice->list && g->h == 1 && g->w == 1, whole = !slice->list && frugi_grid_flat(g);
    if (c->config.feedback != FRUGI_FEEDBACK_NONE) {
        s.put = (float *)s.acc;
        s.sent = c->sent ? c->sent + slice->piece->first_block * c->config.block : NULL;
    }
    if (slice->values)
        memcpy(s.values, slice->values + from, n * sizeof *s.values);
    else if (elements)
        take_elements(&s, slice->list + from, n);
    else if (whole)
        take_run(&s, from, 0, n);
    else
        visit(slice, at, n, take_run, &s);
    double before = weight > 0 ? frugi_energy(s.values, n) : 0;
    encode_values(w, from, n, s.values, worker->padded);
    if (weight > 0)
        worker->tally.energy_left -= weight * (before - frugi_energy(s.values, n));
    if (s.put && elements)
        put_elements(&s, slice->list + from, n);
    else if (s.put && whole)
        put_run(&s, from, 0, n);
    else if (s.put)
        visit(slice, at, n, put_run, &s);
}

/* Values at a time: whole groups. */
static uint64_t stretch_length(const frugi_section *s) {
    uint64_t fit = s->group ? FRUGI_BATCH_ELEMENTS / s->group : 0;
    return !s->group ? FRUGI_BATCH_ELEMENTS : fit ? fit * s->group : s->group;
}

static void write_values(const writing *w) {
    const frugi_job *j = w->j;
    const frugi_section *s = &w->slice->section;
    uint64_t length = stretch_length(s), stretches = (s->entries - 1) / length + 1;
    frugi_sampled all = {.items = stretches, .length = length, .total = s->entries};
#pragma omp parallel for num_threads(j->threads) schedule(static, 1) if (j->threads > 1)
    for (int t = 0; t < j->threads; t++) {
        uint64_t lo = stretches * (uint64_t)t / (uint64_t)j->threads;
        uint64_t hi = stretches * ((uint64_t)t + 1) / (uint64_t)j->threads;
        place at = advance(w->slice, (place){0, 0}, lo * length);
        for (uint64_t i = lo; i < hi; i++) {
            uint64_t from = i * length, n = s->entries - from < length ? s->entries - from : length;
            do_stretch(w, &j->c->worker[t], at, from, n, frugi_sample_weight(j->c, &all, i));
            at = advance(w->slice, at, n);
        }
    }
}

void frugi_units_encode(const frugi_job *j, const frugi_slice *slice) {
    const frug_compressor *c = j->c;
    const frugi_section *s = &slice->section;
    unsigned char *payload = j->frame + slice->payload_at;
    bool makes_up = c->config.rule == FRUGI_RULE_RANDOM && c->config.feedback == FRUGI_FEEDBACK_NONE;
    writing w = {.j = j, .slice = slice, .scales = payload, .values = payload + s->value_at};
    w.how.norm = c->config.qnorm;
    w.how.key = frugi_draw_key(c, j->step, slice->piece->number) ^ ((uint64_t)c->source * 0x9e3779b97f4a7c15u);
    w.gain = makes_up ? (float)((double)s->grid.units / (double)s->kept) : j->part;
    w.stay = j->hold;
    if (slice->draw_unit != 0)
        frugi_put16(payload, frugi_f32_bf16(slice->draw_unit));
    frugi_unit_index_encode(s, slice->list, payload + s->index_at);
    write_values(&w);
}

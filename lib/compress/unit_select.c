/*
 * unit_select.c - select units: one function per rule, over selection groups (select_groups.c).
 *
 * Units are compared by their accumulators (elements) or scores. A rule turns a group, or with segment=all several
 * groups together, into ascending lists of units. The lists are written one after the other to c->units.list, whose
 * capacity was computed when the compressor was created.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"
#include "base/block_count.h"
#include "base/philox.h"
#include "base/seeded_sample.h"
#include "schedule/density.h"
#include "select/probabilistic.h"
#include "select/n_of_m.h"
#include "select/hybrid_budget.h"
#include "select/unit_score.h"
#include "select/block_select.h"

#define TRACK_GAIN    1.012f /* rule=threshold:track: factor by which the threshold changes in a step */
#define BUDGET_PERIOD 100u   /* layers=budget: steps between two updates of the densities */

/** Groups first .. end - 1, which are selected from together, and where their lists go. */
typedef struct selection {
    const frugi_compress_call *call;
    size_t first, end;
    uint32_t **list;  /* end of the lists so far */
    uint32_t **drawn; /* rule=probabilistic: likewise */
} selection;

/* ---- scores ------------------------------------------------------------------ */

/* Tensor i of a group. */
static const frugi_tensor_view *group_view(const frug_compressor *c, const frugi_select_group *group, size_t i) {
    return &c->partition.view[c->units.member[group->first + i]];
}

/* The selection of tensor i of a group. */
static frugi_unit_selection *group_selection(const frug_compressor *c, const frugi_select_group *group, size_t i) {
    return &c->units.selection[group_view(c, group, i)->number];
}

/* The score of a head is the sum (score=max: the maximum) of the scores of its units in all tensors. */
static void score_heads(const frugi_compress_call *call, const frugi_select_group *group) {
    frug_compressor *c = call->c;
    float *score = c->units.score + group->first_unit;
    if (group->scores_given) {
        memcpy(score, c->units.given_scores + group->first_unit, group->units * sizeof *score);
        return;
    }
    frugi_score how = c->config.score == FRUGI_SCORE_GIVEN ? FRUGI_SCORE_L2 : c->config.score;
    memset(score, 0, group->units * sizeof *score);
    for (size_t i = 0; i < group->views; i++) {
        const frugi_tensor_view *view = group_view(c, group, i);
        frugi_score_units(&view->grid, frugi_accumulators(call, view), how, c->units.unit_scratch, call->threads);
        for (uint64_t u = 0; u < view->grid.units; u++) {
            float *s = &score[u % group->units];
            *s = how == FRUGI_SCORE_MAX ? (*s > c->units.unit_scratch[u] ? *s : c->units.unit_scratch[u])
                                        : *s + c->units.unit_scratch[u];
            *s = frugi_magnitude(*s) < FRUGI_INF_BITS ? *s : frugi_bits_f32(FRUGI_INF_BITS - 1);
        }
    }
}

/* Set c->units.span[i]: the accumulators or scores by which the units of group i are compared. */
static void score_group(const frugi_compress_call *call, size_t i) {
    frug_compressor *c = call->c;
    const frugi_select_group *group = &c->units.select_group[i];
    const frugi_tensor_view *view = group_view(c, group, 0);
    bool learned = c->config.rule == FRUGI_RULE_LEARNED;
    c->units.span[i] = (frugi_float_array){frugi_accumulators(call, view), group->units};
    if (group->elementwise)
        return;
    float *score = c->units.score + group->first_unit;
    c->units.span[i].x = score;
    if (group->heads)
        score_heads(call, group);
    else
        frugi_score_units(&view->grid, frugi_accumulators(call, view), learned ? FRUGI_SCORE_L2 : c->config.score,
                          score, call->threads);
}

/* ---- results ----------------------------------------------------------------- */

/* Make lists of the units of the selected heads: unit u of a tensor belongs to head u modulo the number of heads. */
static void expand_heads(const selection *sel, const frugi_select_group *group, const uint32_t *heads,
                         uint64_t selected) {
    const frug_compressor *c = sel->call->c;
    for (size_t i = 0; i < group->views; i++) {
        frugi_unit_selection *made = group_selection(c, group, i);
        uint64_t ranges = group_view(c, group, i)->grid.units / group->units;
        made->list = *sel->list;
        made->selected = ranges * selected;
        for (uint64_t range = 0; range < ranges; range++)
            for (uint64_t h = 0; h < selected; h++)
                *(*sel->list)++ = (uint32_t)(range * group->units + heads[h]);
    }
}

/* Set the selection of group i: the last `selected` units that were written to the lists. */
static void set_selected(const selection *sel, size_t i, uint64_t selected) {
    const frug_compressor *c = sel->call->c;
    const frugi_select_group *group = &c->units.select_group[i];
    const uint32_t *list = *sel->list;
    *sel->list += selected;
    if (group->heads) {
        expand_heads(sel, group, list, selected);
        return;
    }
    group_selection(c, group, 0)->list = list;
    group_selection(c, group, 0)->selected = selected;
}

/* Select all units of group i; no list is needed. */
static void select_all(const selection *sel, size_t i) {
    const frug_compressor *c = sel->call->c;
    const frugi_select_group *group = &c->units.select_group[i];
    for (size_t m = 0; m < group->views; m++)
        group_selection(c, group, m)->selected = group_view(c, group, m)->grid.units;
}

/* How selected elements of group i can be replaced by their residuals at once, if these depend on nothing else. */
static frugi_topk_rest rest_of_group(const selection *sel, size_t i) {
    const frug_compressor *c = sel->call->c;
    bool replaced = c->units.select_group[i].elementwise && c->config.feedback != FRUGI_FEEDBACK_NONE &&
                    c->config.value <= FRUGI_VALUE_BF16 && sel->call->feedback.retained_share == 0;
    return (frugi_topk_rest){replaced ? (float *)c->units.span[i].x : NULL, c->config.value == FRUGI_VALUE_BF16};
}

/* Select the units of group i above a cutoff. Elements are copied along with the list, while they are in the cache. */
static void select_group_above(const selection *sel, size_t i, frugi_cutoff *cut) {
    const frug_compressor *c = sel->call->c;
    float *values = c->units.select_group[i].elementwise ? c->units.list_values + (*sel->list - c->units.list) : NULL;
    frugi_topk_rest rest = rest_of_group(sel, i);
    uint64_t selected = frugi_topk_emit_to(c->units.topk, &c->units.span[i], cut, rest, (unsigned char *)*sel->list,
                                           (unsigned char *)values, sel->call->threads);
    set_selected(sel, i, selected);
    group_selection(c, &c->units.select_group[i], 0)->values = values;
    group_selection(c, &c->units.select_group[i], 0)->rest_left = rest.x != NULL;
}

static void select_above(const selection *sel, frugi_cutoff cut) {
    for (size_t i = sel->first; i < sel->end; i++)
        select_group_above(sel, i, &cut);
}

uint64_t frugi_target_count(const frug_compressor *c, size_t first, size_t end) {
    uint64_t k = 0;
    for (size_t i = first; i < end; i++)
        k += frugi_select_group_count(&c->units.select_group[i],
                                      frugi_select_group_density(c, &c->units.select_group[i], c->density));
    return k;
}

static uint64_t target_count(const selection *sel) {
    return frugi_target_count(sel->call->c, sel->first, sel->end);
}

static uint64_t count_units(const selection *sel) {
    uint64_t units = 0;
    for (size_t i = sel->first; i < sel->end; i++)
        units += sel->call->c->units.select_group[i].units;
    return units;
}

/* The cutoff that k units reach. */
static frugi_cutoff find_cutoff(const selection *sel, uint64_t k) {
    const frug_compressor *c = sel->call->c;
    const frugi_select_group *group = &c->units.select_group[sel->first];
    if (group->found_for == k)
        return group->found;
    return frugi_topk_cutoff(c->units.topk, c->units.span + sel->first, sel->end - sel->first, k, sel->call->threads);
}

/* ---- top-k over whole groups -------------------------------------------------- */

/* Whether the encoder can emit the entries above a cutoff: straight into the frame, exactly and without other effects.
 */
static bool encoder_selects_above(const selection *sel) {
    const frug_compressor *c = sel->call->c;
    return sel->end - sel->first == 1 && c->units.select_group[sel->first].elementwise &&
           c->config.index == FRUGI_INDEX_COO && c->config.value == FRUGI_VALUE_F32 &&
           sel->call->feedback.retained_share == 0 && !sel->call->feedback.mask_momentum && !c->units.sent_mask;
}

static void select_topk(const selection *sel) {
    const frug_compressor *c = sel->call->c;
    uint64_t k = target_count(sel), units = count_units(sel);
    if (k >= units)
        for (size_t i = sel->first; i < sel->end; i++)
            select_all(sel, i);
    else if (encoder_selects_above(sel))
        *group_selection(c, &c->units.select_group[sel->first], 0) = (frugi_unit_selection){
            .selects = FRUGI_ENCODER_SELECTS_ABOVE, .selected = k, .cutoff = find_cutoff(sel, k)};
    else
        select_above(sel, find_cutoff(sel, k));
}

/* ---- top-k in segments --------------------------------------------------------- */

/** How many units of each segment are selected. */
typedef struct quota {
    uint64_t units, segments;
    uint32_t length;       /* units of a segment; the last may have fewer */
    uint64_t kappa, first; /* segment=block */
    uint32_t per_segment;  /* segment=N:M: N; else 0 */
    const uint16_t *count; /* rule=hybrid: of each segment; else NULL */
    uint32_t near;         /* rule=hybrid: the threshold of most segments */
} quota;

static uint32_t segment_length(const quota *q, uint64_t s) {
    return s + 1 == q->segments ? (uint32_t)(q->units - s * q->length) : q->length;
}

static uint32_t segment_quota(const quota *q, uint64_t s) {
    if (q->count)
        return q->count[s];
    uint32_t k = q->per_segment ? q->per_segment : frugi_count(q->kappa, q->first + s), length = segment_length(q, s);
    return length < q->length ? frugi_tail_count(k, length, q->length) : k;
}

/* Sum of the quotas of all segments before s. */
static uint64_t quota_before(const quota *q, uint64_t s) {
    uint64_t sum = 0;
    if (q->count) {
        for (uint64_t i = 0; i < s; i++)
            sum += q->count[i];
        return sum;
    }
    bool ends_short = s == q->segments && s > 0;
    uint64_t full = ends_short ? s - 1 : s;
    sum = q->per_segment ? full * q->per_segment : frugi_count_range(q->kappa, q->first, full);
    return sum + (ends_short ? segment_quota(q, s - 1) : 0);
}

/* Select from n whole segments with the SIMD kernel. */
static uint32_t *select_batch(const frug_compressor *c, frugi_workspace *ws, const float *x, const quota *q, uint64_t s,
                              uint32_t n, uint32_t *out) {
    frugi_batch *b = &ws->batch;
    *b = (frugi_batch){
        .block = q->length, .blocks = n, .length = q->length, .grad = c->zeros, .acc = ws->acc, .beta = 1.0f};
    b->before = x + s * q->length;
    b->select = c->config.select;
    b->idx = ws->idx;
    b->lanes = &ws->lanes;
    for (uint32_t i = 0; i < n; i++)
        b->k[i] = segment_quota(q, s + i);
    c->kernel->accumulate(b);
    c->kernel->select(b);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = 0; e < b->k[i]; e++)
            *out++ = (uint32_t)((s + i) * q->length) + b->idx[(size_t)i * q->length + e];
    return out;
}

/* Select from one segment with the reference. */
static uint32_t *select_segment(const frug_compressor *c, frugi_workspace *ws, const float *x, const quota *q,
                                uint64_t s, uint32_t *out) {
    uint32_t k = segment_quota(q, s), base = (uint32_t)(s * q->length);
    frugi_select_ref(x + s * q->length, segment_length(q, s), k, c->config.select, ws->idx);
    for (uint32_t e = 0; e < k; e++)
        *out++ = base + ws->idx[e];
    return out;
}

/* rule=hybrid: select from one block, by the common threshold if possible, and copy the values. */
static uint32_t *select_near(const frug_compressor *c, frugi_workspace *ws, const float *x, const quota *q, uint64_t s,
                             frugi_topk_rest rest, uint32_t *out) {
    uint32_t k = segment_quota(q, s), length = segment_length(q, s), base = (uint32_t)(s * q->length);
    uint32_t mask = c->config.select == FRUGI_SELECT_EXACT ? UINT32_MAX : 0xffff0000u;
    float *values = c->units.list_values + (out - c->units.list);
    frugi_topk_rest own = {rest.x ? rest.x + base : NULL, rest.bf16};
    if (length <= FRUGI_TOPK_SHORT &&
        frugi_topk_emit_near(c->units.topk, x + base, length, k, q->near, mask, base, own, out, values))
        return out + k;
    if (length == q->length)
        select_batch(c, ws, x, q, s, 1, out);
    else
        select_segment(c, ws, x, q, s, out);
    for (uint32_t e = 0; e < k; e++)
        values[e] = x[out[e]];
    if (rest.x)
        frugi_topk_leave_rest(rest, out, k);
    return out + k;
}

static void select_in_segments(const selection *sel, size_t i, const quota *q) {
    const frug_compressor *c = sel->call->c;
    const float *x = c->units.span[i].x;
    frugi_topk_rest rest = rest_of_group(sel, i);
    uint32_t *list = *sel->list;
#pragma omp parallel for num_threads(sel->call->threads) schedule(static, 1) if (sel->call->threads > 1)
    for (int t = 0; t < sel->call->threads; t++) {
        uint64_t s = q->segments * (uint64_t)t / (uint64_t)sel->call->threads;
        uint64_t end = q->segments * ((uint64_t)t + 1) / (uint64_t)sel->call->threads;
        uint32_t *out = list + quota_before(q, s);
        while (s < end) {
            uint64_t whole = q->units / q->length, left = (end < whole ? end : whole) - (s < whole ? s : whole);
            uint32_t n = left < c->max_batch_blocks ? (uint32_t)left : c->max_batch_blocks;
            if (q->count) {
                out = select_near(c, &c->workspace[t], x, q, s++, rest, out);
            } else if (n && q->per_segment && q->length <= FRUGI_N_OF_M_MAX) {
                out = frugi_select_n_of_m(x, s, s + left, q->length, q->per_segment, c->config.select, out);
                s += left;
            } else if (n && q->length == c->config.block) {
                out = select_batch(c, &c->workspace[t], x, q, s, n, out);
                s += n;
            } else {
                out = select_segment(c, &c->workspace[t], x, q, s++, out);
            }
        }
    }
    set_selected(sel, i, quota_before(q, q->segments));
    if (q->count) {
        group_selection(c, &c->units.select_group[i], 0)->values = c->units.list_values + (list - c->units.list);
        group_selection(c, &c->units.select_group[i], 0)->rest_left = rest.x != NULL;
    }
}

/*
 * Whether the encoder can select N of every 4 elements of a group by itself. The index code must be the bitmap, which
 * is the shorter of the fixed ones at these densities, and chunks must consist of whole value groups.
 */
static bool encoder_selects_fours(const frug_compressor *c, const frugi_select_group *group) {
    const struct frug_config *f = &c->config;
    bool bitmap = f->index == FRUGI_INDEX_BITMAP || f->index == FRUGI_INDEX_FIXED;
    bool whole_groups = f->value <= FRUGI_VALUE_BF16 || FRUGI_TOPK_SHORT / 4 * f->group_keep % f->bucket == 0;
    return f->segment == FRUGI_SEGMENT_GROUP && f->group_of == 4 && group->units % 4 == 0 && group->elementwise &&
           bitmap && whole_groups;
}

static void select_topk_in_segments(const selection *sel) {
    const frug_compressor *c = sel->call->c;
    for (size_t i = sel->first; i < sel->end; i++) {
        const frugi_select_group *group = &c->units.select_group[i];
        quota q = {.units = group->units, .length = (uint32_t)frugi_select_group_segment(c, group)};
        q.segments = (group->units - 1) / q.length + 1;
        q.first = group->first_segment + sel->call->step % FRUGI_PHASES;
        q.kappa = frugi_kappa_at_least_one(frugi_select_group_density(c, group, c->density), q.length);
        q.per_segment = c->config.segment == FRUGI_SEGMENT_GROUP ? c->config.group_keep : 0;
        if (!q.per_segment && q.kappa == (uint64_t)q.length << 32)
            select_all(sel, i);
        else if (encoder_selects_fours(c, group))
            *group_selection(c, group, 0) = (frugi_unit_selection){.selects = FRUGI_ENCODER_SELECTS_FOURS,
                                                                   .selected = quota_before(&q, q.segments)};
        else
            select_in_segments(sel, i, &q);
    }
}

/* ---- other rules ----------------------------------------------------------------- */

/* l2 scores are sums of squares, so a threshold on norms is squared. */
static uint32_t absolute_key(const frug_compressor *c) {
    double t = c->config.threshold_at;
    bool squares = c->config.unit != FRUGI_UNIT_ELEMENT && c->config.score == FRUGI_SCORE_L2;
    return frugi_magnitude((float)(squares ? t * t : t));
}

/* The threshold that k units reach, rounded down to a relative precision of 1/128; ties are selected too. */
static uint32_t percentile_key(const selection *sel, uint64_t k) {
    return find_cutoff(sel, k).key & 0xffff0000u;
}

/*
 * The threshold of the last step, adjusted by TRACK_GAIN towards the target count. It is computed anew if the count is
 * off by more than a factor of 2.
 */
static uint32_t tracked_key(const selection *sel, uint64_t k) {
    const frug_compressor *c = sel->call->c;
    frugi_select_group *lead = &c->units.select_group[sel->first];
    uint64_t count = lead->threshold > 0
                         ? frugi_topk_count(c->units.topk, c->units.span + sel->first, sel->end - sel->first,
                                            frugi_magnitude(lead->threshold), sel->call->threads)
                         : 0;
    uint32_t key = frugi_magnitude(lead->threshold);
    if (count > 2 * k || count < k / 2 || count == 0) {
        key = find_cutoff(sel, k).key;
        count = k;
    }
    float next = frugi_bits_f32(key);
    next = count > k ? next * TRACK_GAIN : count < k ? next / TRACK_GAIN : next;
    lead->threshold = frugi_magnitude(next) < FRUGI_INF_BITS ? next : frugi_bits_f32(key);
    return key;
}

static void select_by_threshold(const selection *sel) {
    const frug_compressor *c = sel->call->c;
    uint64_t k = target_count(sel), most = 2 * k < count_units(sel) ? 2 * k : count_units(sel);
    uint32_t key = c->config.threshold == FRUGI_THRESHOLD_ABSOLUTE     ? absolute_key(c)
                   : c->config.threshold == FRUGI_THRESHOLD_PERCENTILE ? percentile_key(sel, k)
                                                                       : tracked_key(sel, k);
    key = key ? key : 1; /* zeros are never selected */
    if (frugi_topk_count(c->units.topk, c->units.span + sel->first, sel->end - sel->first, key, sel->call->threads) >
        most)
        select_above(sel, find_cutoff(sel, c->config.threshold == FRUGI_THRESHOLD_ABSOLUTE ? most : k));
    else
        select_above(sel, (frugi_cutoff){.key = key - 1});
}

uint64_t frugi_draw_key(const frug_compressor *c, uint64_t step, size_t number) {
    uint64_t high = frugi_random(c->config.seed, step, 2 * (uint64_t)number);
    return high << 32 | frugi_random(c->config.seed, step, 2 * (uint64_t)number + 1);
}

static void select_random(const selection *sel) {
    const frug_compressor *c = sel->call->c;
    for (size_t i = sel->first; i < sel->end; i++) {
        const frugi_select_group *group = &c->units.select_group[i];
        uint64_t selected = frugi_select_group_count(group, frugi_select_group_density(c, group, c->density));
        frugi_sample sample = frugi_sample_start(frugi_draw_key(c, sel->call->step, i), group->units, selected);
        uint32_t *out = *sel->list;
        for (uint64_t b = 0; b * FRUGI_SAMPLE_BLOCK < group->units; b++) {
            uint8_t index[FRUGI_SAMPLE_BLOCK];
            uint32_t n = frugi_sample_draw(&sample, b, index);
            for (uint32_t e = 0; e < n; e++)
                *out++ = (uint32_t)(b * FRUGI_SAMPLE_BLOCK) + index[e];
        }
        if (selected == group->units)
            select_all(sel, i);
        else
            set_selected(sel, i, selected);
    }
}

/* Workers draw independently of each other, so the key depends on their rank. */
static void select_probabilistic(const selection *sel) {
    const frug_compressor *c = sel->call->c;
    float unit = frugi_probabilistic_scale(c->units.topk, c->units.span + sel->first, sel->end - sel->first,
                                           target_count(sel), sel->call->threads);
    for (size_t i = sel->first; i < sel->end; i++) {
        frugi_unit_selection *made = group_selection(c, &c->units.select_group[i], 0);
        uint32_t random = frugi_random(c->config.seed ^ ((uint64_t)c->source << 32), sel->call->step, i);
        made->draw_unit = unit;
        made->list = *sel->list;
        made->drawn = *sel->drawn;
        frugi_probabilistic_draw(c->units.topk, &c->units.span[i], unit, random, *sel->list, &made->selected,
                                 *sel->drawn, &made->draws, sel->call->threads);
        *sel->list += made->selected;
        *sel->drawn += made->draws;
    }
}

static void select_hybrid(const selection *sel) {
    frug_compressor *c = sel->call->c;
    uint64_t k = target_count(sel), first = group_view(c, &c->units.select_group[sel->first], 0)->first_block,
             blocks = 0;
    if (k >= count_units(sel)) {
        select_topk(sel);
        return;
    }
    frugi_cutoff cut = find_cutoff(sel, k);
    for (size_t i = sel->first; i < sel->end; i++) {
        frugi_hybrid_count_claims(c->units.topk, &c->units.span[i], c->config.block, &cut,
                                  c->units.hybrid_count + first + blocks, sel->call->threads);
        blocks += c->units.hybrid_blocks[i];
    }
    if (c->config.frequency)
        frugi_hybrid_scale_by_frequency(c->units.hybrid_count + first, c->units.hybrid_frequency + first, blocks,
                                        c->config.hybrid_most);
    frugi_hybrid_fit_budget(c->units.hybrid_count + first, c->units.hybrid_blocks + sel->first,
                            c->units.hybrid_last_length + sel->first, sel->end - sel->first, c->config.block,
                            c->config.hybrid_most, k);
    if (c->config.frequency)
        frugi_hybrid_update_frequency(c->units.hybrid_count + first, c->units.hybrid_frequency + first, blocks,
                                      sel->call->step);
    for (size_t i = sel->first; i < sel->end; i++) {
        quota q = {
            .units = c->units.select_group[i].units, .segments = c->units.hybrid_blocks[i], .length = c->config.block};
        q.count = c->units.hybrid_count + first;
        q.near = cut.key;
        select_in_segments(sel, i, &q);
        first += c->units.hybrid_blocks[i];
    }
}

static void select_learned(const selection *sel) {
    frug_compressor *c = sel->call->c;
    for (size_t i = sel->first; i < sel->end; i++) {
        frugi_select_group *group = &c->units.select_group[i];
        uint64_t selected = frugi_select_group_count(group, frugi_select_group_density(c, group, c->density));
        set_selected(sel, i,
                     frugi_learned_step(&group->learned, c->units.topk, c->units.span[i].x, selected, sel->call->step,
                                        c->config.refresh, c->config.age, c->config.rate, c->units.unit_scratch,
                                        *sel->list, sel->call->threads));
    }
}

/*
 * layers=budget: the total energy of the residual is least if one threshold holds for all tensors. So every
 * BUDGET_PERIOD steps the density of each tensor becomes the share of its entries that are among the largest of all.
 */
static void update_budget(const frugi_compress_call *call, size_t first, size_t end) {
    frug_compressor *c = call->c;
    uint64_t elements = 0;
    size_t spans = 0;
    for (size_t i = first; i < end; i++)
        for (size_t m = 0; m < c->units.select_group[i].views; m++) {
            const frugi_tensor_view *view = group_view(c, &c->units.select_group[i], m);
            c->units.span[spans++] = (frugi_float_array){frugi_accumulators(call, view), view->count};
            elements += view->count;
        }
    double base = frugi_schedule_density(&c->config.schedule, call->step, c->total_steps);
    uint64_t k = (uint64_t)(base * (double)elements + 0.5);
    if (k == 0 || k >= elements)
        return;
    uint32_t key = frugi_topk_cutoff(c->units.topk, c->units.span, spans, k, call->threads).key;
    spans = 0;
    for (size_t i = first; i < end; i++)
        for (size_t m = 0; m < c->units.select_group[i].views; m++, spans++) {
            uint64_t reaching = frugi_topk_count(c->units.topk, &c->units.span[spans], 1, key ? key : 1, call->threads);
            double share = (double)(reaching ? reaching : 1) / (double)c->units.span[spans].n;
            frugi_control_set_weight(c->control, group_view(c, &c->units.select_group[i], m)->number, share);
        }
    frugi_control_densities(c->control, call->step, c->density);
}

void frugi_select_units(const frugi_compress_call *call, size_t first, size_t end) {
    static void (*const rules[])(const selection *) = {
        [FRUGI_RULE_TOPK] = select_topk,     [FRUGI_RULE_THRESHOLD] = select_by_threshold,
        [FRUGI_RULE_RANDOM] = select_random, [FRUGI_RULE_PROBABILISTIC] = select_probabilistic,
        [FRUGI_RULE_HYBRID] = select_hybrid, [FRUGI_RULE_LEARNED] = select_learned,
    };
    const frug_compressor *c = call->c;
    uint32_t *list = c->units.list, *drawn = c->units.list + c->units.list_capacity;
    bool by_segments = c->config.segment == FRUGI_SEGMENT_BLOCK || c->config.segment == FRUGI_SEGMENT_GROUP;
    void (*select)(const selection *) =
        c->config.rule == FRUGI_RULE_TOPK && by_segments ? select_topk_in_segments : rules[c->config.rule];
    if (c->config.layers == FRUGI_LAYERS_BUDGET && call->step % BUDGET_PERIOD == 0)
        update_budget(call, first, end);
    for (size_t i = first; i < end; i++) {
        for (size_t m = 0; m < c->units.select_group[i].views; m++)
            *group_selection(c, &c->units.select_group[i], m) = (frugi_unit_selection){0};
        if (c->config.rule != FRUGI_RULE_RANDOM)
            score_group(call, i);
    }
    if (c->config.segment == FRUGI_SEGMENT_ALL && first < end) {
        select(&(selection){call, first, end, &list, &drawn});
        return;
    }
    for (size_t i = first; i < end; i++)
        select(&(selection){call, i, i + 1, &list, &drawn});
}

/*
 * unit_select.c - which units leave: one function per rule, over contests (partition.c) whose units are accumulators or
 * scores.
 *
 * A rule turns a contest, or with segment=all several at once, into ascending lists of units. Lists are laid one after
 * the other into c->list, whose room was reckoned when the compressor was made.
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

#define TRACK_GAIN   1.012f /* rule=threshold:track: the step of the threshold */
#define BUDGET_EVERY 100u   /* steps between two looks at what layers=budget should give each tensor */

/** Contests decided together, and where their lists go. */
typedef struct round {
    const frugi_job *j;
    size_t first, end;
    uint32_t **list;
    uint32_t **drawn; /* rule=probabilistic */
} round;

/* ---- what competes --------------------------------------------------------- */

static frugi_piece *piece_of(const frug_compressor *c, const frugi_contest *k, size_t i) {
    return &c->piece[c->member[k->first + i]];
}

/* The score of a head is the sum over its slices of all tensors. */
static void score_heads(const frugi_job *j, const frugi_contest *k) {
    frug_compressor *c = j->c;
    float *score = c->score + k->first_unit;
    if (k->told) {
        memcpy(score, c->given + k->first_unit, k->units * sizeof *score);
        return;
    }
    frugi_score how = c->config.score == FRUGI_SCORE_GIVEN ? FRUGI_SCORE_L2 : c->config.score;
    memset(score, 0, k->units * sizeof *score);
    for (size_t i = 0; i < k->pieces; i++) {
        const frugi_piece *p = piece_of(c, k, i);
        frugi_score_units(&p->grid, frugi_accumulated(j, p), how, c->scratch, j->threads);
        for (uint64_t u = 0; u < p->grid.units; u++) {
            float *s = &score[u % k->units];
            *s = how == FRUGI_SCORE_MAX ? (*s > c->scratch[u] ? *s : c->scratch[u]) : *s + c->scratch[u];
            *s = frugi_magnitude(*s) < FRUGI_INF_BITS ? *s : frugi_bits_f32(FRUGI_INF_BITS - 1);
        }
    }
}

/* Fill c->span with what the units of contest i are compared by. */
static void weigh(const frugi_job *j, size_t i) {
    frug_compressor *c = j->c;
    const frugi_contest *k = &c->contest[i];
    const frugi_piece *p = piece_of(c, k, 0);
    bool learned = c->config.rule == FRUGI_RULE_LEARNED;
    c->span[i] = (frugi_span){frugi_accumulated(j, p), k->units};
    if (k->single)
        return;
    float *score = c->score + k->first_unit;
    c->span[i].x = score;
    if (k->heads)
        score_heads(j, k);
    else
        frugi_score_units(&p->grid, frugi_accumulated(j, p), learned ? FRUGI_SCORE_L2 : c->config.score, score,
                          j->threads);
}

/* ---- what is decided ------------------------------------------------------- */

/* The slices of the heads that leave: unit u of a tensor belongs to head u modulo the number of heads. */
static void expand_heads(const round *r, const frugi_contest *k, const uint32_t *heads, uint64_t kept) {
    const frug_compressor *c = r->j->c;
    for (size_t i = 0; i < k->pieces; i++) {
        frugi_piece *p = piece_of(c, k, i);
        uint64_t parts = p->grid.units / k->units;
        p->list = *r->list;
        p->kept = parts * kept;
        for (uint64_t part = 0; part < parts; part++)
            for (uint64_t h = 0; h < kept; h++)
                *(*r->list)++ = (uint32_t)(part * k->units + heads[h]);
    }
}

/* What a rule has written at the end of the lists is what leaves of contest i. */
static void take(const round *r, size_t i, uint64_t kept) {
    const frug_compressor *c = r->j->c;
    const frugi_contest *k = &c->contest[i];
    const uint32_t *list = *r->list;
    *r->list += kept;
    if (k->heads) {
        expand_heads(r, k, list, kept);
        return;
    }
    piece_of(c, k, 0)->list = list;
    piece_of(c, k, 0)->kept = kept;
}

/* Everything leaves; no list is needed. */
static void take_all(const round *r, size_t i) {
    const frug_compressor *c = r->j->c;
    for (size_t m = 0; m < c->contest[i].pieces; m++)
        piece_of(c, &c->contest[i], m)->kept = piece_of(c, &c->contest[i], m)->grid.units;
}

/* Elements are taken along with their places: they will not be nearer later. */
static void take_emitted(const round *r, size_t i, frugi_cutoff *cut) {
    const frug_compressor *c = r->j->c;
    float *values = c->contest[i].single ? c->taken + (*r->list - c->list) : NULL;
    uint64_t kept = frugi_whole_emit(c->whole, &c->span[i], cut, *r->list, values, r->j->threads);
    take(r, i, kept);
    piece_of(c, &c->contest[i], 0)->values = values;
}

static void take_cut(const round *r, frugi_cutoff cut) {
    for (size_t i = r->first; i < r->end; i++)
        take_emitted(r, i, &cut);
}

static uint64_t wanted(const round *r) {
    const frug_compressor *c = r->j->c;
    uint64_t k = 0;
    for (size_t i = r->first; i < r->end; i++)
        k += frugi_contest_count(&c->contest[i], frugi_contest_density(c, &c->contest[i], c->density));
    return k;
}

static uint64_t units_in(const round *r) {
    uint64_t units = 0;
    for (size_t i = r->first; i < r->end; i++)
        units += r->j->c->contest[i].units;
    return units;
}

static frugi_cutoff cutoff(const round *r, uint64_t k) {
    const frug_compressor *c = r->j->c;
    return frugi_whole_cutoff(c->whole, c->span + r->first, r->end - r->first, k, r->j->threads);
}

/* ---- top-k over many --------------------------------------------------------- */

static void choose_top(const round *r) {
    uint64_t k = wanted(r), units = units_in(r);
    if (k >= units)
        for (size_t i = r->first; i < r->end; i++)
            take_all(r, i);
    else
        take_cut(r, cutoff(r, k));
}

/* ---- top-k by segments --------------------------------------------------------- */

/** How many of each segment leave. */
typedef struct quota {
    uint64_t units, segments;
    uint32_t length;       /* units of a segment; the last may have fewer */
    uint64_t kappa, first; /* segment=block */
    uint32_t keep;         /* segment=N:M, where not 0 */
    const uint16_t *count; /* rule=hybrid, where not NULL */
} quota;

static uint32_t quota_length(const quota *q, uint64_t s) {
    return s + 1 == q->segments ? (uint32_t)(q->units - s * q->length) : q->length;
}

static uint32_t quota_of(const quota *q, uint64_t s) {
    if (q->count)
        return q->count[s];
    uint32_t k = q->keep ? q->keep : frugi_count(q->kappa, q->first + s), length = quota_length(q, s);
    return length < q->length ? frugi_tail_count(k, length, q->length) : k;
}

/* Of all segments before s. */
static uint64_t quota_before(const quota *q, uint64_t s) {
    uint64_t sum = 0;
    if (q->count) {
        for (uint64_t i = 0; i < s; i++)
            sum += q->count[i];
        return sum;
    }
    bool ends_short = s == q->segments && s > 0;
    uint64_t full = ends_short ? s - 1 : s;
    sum = q->keep ? full * q->keep : frugi_count_range(q->kappa, q->first, full);
    return sum + (ends_short ? quota_of(q, s - 1) : 0);
}

/* Some whole segments as a batch of the fast kernel. */
static uint32_t *choose_batch(const frug_compressor *c, frugi_worker *w, const float *x, const quota *q, uint64_t s,
                              uint32_t n, uint32_t *out) {
    frugi_batch *b = &w->batch;
    *b = (frugi_batch){
        .block = q->length, .blocks = n, .length = q->length, .grad = c->zeros, .acc = w->acc, .beta = 1.0f};
    b->before = x + s * q->length;
    b->select = c->config.select;
    b->idx = w->idx;
    b->lanes = &w->lanes;
    for (uint32_t i = 0; i < n; i++)
        b->k[i] = quota_of(q, s + i);
    c->kernel->accumulate(b);
    c->kernel->select(b);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = 0; e < b->k[i]; e++)
            *out++ = (uint32_t)((s + i) * q->length) + b->idx[(size_t)i * q->length + e];
    return out;
}

static uint32_t *choose_one(const frug_compressor *c, frugi_worker *w, const float *x, const quota *q, uint64_t s,
                            uint32_t *out) {
    uint32_t k = quota_of(q, s), base = (uint32_t)(s * q->length);
    frugi_select_ref(x + s * q->length, quota_length(q, s), k, c->config.select, w->idx);
    for (uint32_t e = 0; e < k; e++)
        *out++ = base + w->idx[e];
    return out;
}

static void choose_segments(const round *r, size_t i, const quota *q) {
    const frug_compressor *c = r->j->c;
    const float *x = c->span[i].x;
    uint32_t *list = *r->list;
#pragma omp parallel for num_threads(r->j->threads) schedule(static, 1) if (r->j->threads > 1)
    for (int t = 0; t < r->j->threads; t++) {
        uint64_t s = q->segments * (uint64_t)t / (uint64_t)r->j->threads;
        uint64_t end = q->segments * ((uint64_t)t + 1) / (uint64_t)r->j->threads;
        uint32_t *out = list + quota_before(q, s);
        while (s < end) {
            uint64_t whole = q->units / q->length, left = (end < whole ? end : whole) - (s < whole ? s : whole);
            uint32_t n = left < c->batch_most ? (uint32_t)left : c->batch_most;
            if (n && q->keep && q->length <= FRUGI_GROUPS_MOST) {
                out = frugi_select_groups(x, s, s + left, q->length, q->keep, c->config.select, out);
                s += left;
            } else if (n && q->length == c->config.block) {
                out = choose_batch(c, &c->worker[t], x, q, s, n, out);
                s += n;
            } else {
                out = choose_one(c, &c->worker[t], x, q, s++, out);
            }
        }
    }
    take(r, i, quota_before(q, q->segments));
}

static void choose_top_of_segments(const round *r) {
    const frug_compressor *c = r->j->c;
    for (size_t i = r->first; i < r->end; i++) {
        const frugi_contest *k = &c->contest[i];
        quota q = {.units = k->units, .length = (uint32_t)frugi_contest_segment(c, k)};
        q.segments = (k->units - 1) / q.length + 1;
        q.first = k->first_segment + r->j->step % FRUGI_PHASES;
        q.kappa = frugi_kappa_one(frugi_contest_density(c, k, c->density), q.length);
        q.keep = c->config.segment == FRUGI_SEGMENT_GROUP ? c->config.group_keep : 0;
        if (!q.keep && q.kappa == (uint64_t)q.length << 32)
            take_all(r, i);
        else
            choose_segments(r, i, &q);
    }
}

/* ---- the other rules ------------------------------------------------------------- */

/* A threshold on l2 scores, which are sums of squares, is one on norms. */
static uint32_t absolute_key(const frug_compressor *c) {
    double t = c->config.threshold_at;
    bool squares = c->config.unit != FRUGI_UNIT_ELEMENT && c->config.score == FRUGI_SCORE_L2;
    return frugi_magnitude((float)(squares ? t * t : t));
}

/* The threshold that lets k through, but no finer than a 128th: those that tie with it go too. */
static uint32_t percentile_key(const round *r, uint64_t k) {
    return cutoff(r, k).key & 0xffff0000u;
}

/* What followed the right count up to now; found anew when it is off by more than a factor of two. */
static uint32_t tracked_key(const round *r, uint64_t k) {
    const frug_compressor *c = r->j->c;
    frugi_contest *lead = &c->contest[r->first];
    uint64_t count = lead->level > 0 ? frugi_whole_count(c->whole, c->span + r->first, r->end - r->first,
                                                         frugi_magnitude(lead->level), r->j->threads)
                                     : 0;
    uint32_t key = frugi_magnitude(lead->level);
    if (count > 2 * k || count < k / 2 || count == 0) {
        key = cutoff(r, k).key;
        count = k;
    }
    float next = frugi_bits_f32(key);
    next = count > k ? next * TRACK_GAIN : count < k ? next / TRACK_GAIN : next;
    lead->level = frugi_magnitude(next) < FRUGI_INF_BITS ? next : frugi_bits_f32(key);
    return key;
}

static void choose_reaching(const round *r) {
    const frug_compressor *c = r->j->c;
    uint64_t k = wanted(r), most = 2 * k < units_in(r) ? 2 * k : units_in(r);
    uint32_t key = c->config.threshold == FRUGI_THRESHOLD_ABSOLUTE     ? absolute_key(c)
                   : c->config.threshold == FRUGI_THRESHOLD_PERCENTILE ? percentile_key(r, k)
                                                                       : tracked_key(r, k);
    key = key ? key : 1; /* zeros never leave */
    if (frugi_whole_count(c->whole, c->span + r->first, r->end - r->first, key, r->j->threads) > most)
        take_cut(r, cutoff(r, c->config.threshold == FRUGI_THRESHOLD_ABSOLUTE ? most : k));
    else
        take_cut(r, (frugi_cutoff){.key = key - 1});
}

uint64_t frugi_draw_key(const frug_compressor *c, uint64_t step, size_t contest) {
    uint64_t high = frugi_random(c->config.seed, step, 2 * (uint64_t)contest);
    return high << 32 | frugi_random(c->config.seed, step, 2 * (uint64_t)contest + 1);
}

static void choose_at_random(const round *r) {
    const frug_compressor *c = r->j->c;
    for (size_t i = r->first; i < r->end; i++) {
        const frugi_contest *k = &c->contest[i];
        uint64_t kept = frugi_contest_count(k, frugi_contest_density(c, k, c->density));
        frugi_sample sample = frugi_sample_start(frugi_draw_key(c, r->j->step, i), k->units, kept);
        uint32_t *out = *r->list;
        for (uint64_t b = 0; b * FRUGI_SAMPLE_BLOCK < k->units; b++) {
            uint8_t place[FRUGI_SAMPLE_BLOCK];
            uint32_t n = frugi_sample_draw(&sample, b, place);
            for (uint32_t e = 0; e < n; e++)
                *out++ = (uint32_t)(b * FRUGI_SAMPLE_BLOCK) + place[e];
        }
        if (kept == k->units)
            take_all(r, i);
        else
            take(r, i, kept);
    }
}

/* Workers draw independently of each other, so their rank goes into the dice. */
static void choose_by_chance(const round *r) {
    const frug_compressor *c = r->j->c;
    float unit = frugi_draw_unit(c->whole, c->span + r->first, r->end - r->first, wanted(r), r->j->threads);
    for (size_t i = r->first; i < r->end; i++) {
        frugi_piece *p = piece_of(c, &c->contest[i], 0);
        uint32_t dice = frugi_random(c->config.seed ^ ((uint64_t)c->source << 32), r->j->step, i);
        p->draw_unit = unit;
        p->list = *r->list;
        p->drawn = *r->drawn;
        frugi_draw(c->whole, &c->span[i], unit, dice, *r->list, &p->kept, *r->drawn, &p->draws, r->j->threads);
        *r->list += p->kept;
        *r->drawn += p->draws;
    }
}

static void choose_hybrid(const round *r) {
    frug_compressor *c = r->j->c;
    uint64_t k = wanted(r), first = piece_of(c, &c->contest[r->first], 0)->first_block, blocks = 0;
    if (k >= units_in(r)) {
        choose_top(r);
        return;
    }
    frugi_cutoff cut = cutoff(r, k);
    for (size_t i = r->first; i < r->end; i++) {
        frugi_hybrid_claims(&c->span[i], c->config.block, &cut, c->claim + first + blocks, r->j->threads);
        blocks += c->claim_blocks[i];
    }
    if (c->config.frequency)
        frugi_hybrid_favour(c->claim + first, c->often + first, blocks, c->config.hybrid_most);
    frugi_hybrid_settle(c->claim + first, c->claim_blocks + r->first, c->claim_last + r->first, r->end - r->first,
                        c->config.block, c->config.hybrid_most, k);
    if (c->config.frequency)
        frugi_hybrid_learn(c->claim + first, c->often + first, blocks, r->j->step);
    for (size_t i = r->first; i < r->end; i++) {
        quota q = {.units = c->contest[i].units, .segments = c->claim_blocks[i], .length = c->config.block};
        q.count = c->claim + first;
        choose_segments(r, i, &q);
        first += c->claim_blocks[i];
    }
}

static void choose_learned(const round *r) {
    frug_compressor *c = r->j->c;
    for (size_t i = r->first; i < r->end; i++) {
        frugi_contest *k = &c->contest[i];
        uint64_t kept = frugi_contest_count(k, frugi_contest_density(c, k, c->density));
        take(r, i,
             frugi_learned_step(&k->learned, c->whole, c->span[i].x, kept, r->j->step, c->config.refresh, c->config.age,
                                c->config.rate, c->scratch, *r->list, r->j->threads));
    }
}

/*
 * layers=budget: what is left behind weighs least in all when the same threshold holds everywhere; so every so often
 * each tensor gets the share of its entries that are among the largest of all, and keeps it until the next look.
 */
static void share_budget(const frugi_job *j, size_t first, size_t end) {
    frug_compressor *c = j->c;
    uint64_t elements = 0;
    size_t spans = 0;
    for (size_t i = first; i < end; i++)
        for (size_t m = 0; m < c->contest[i].pieces; m++) {
            const frugi_piece *p = piece_of(c, &c->contest[i], m);
            c->span[spans++] = (frugi_span){frugi_accumulated(j, p), p->count};
            elements += p->count;
        }
    double base = frugi_schedule_density(&c->config.schedule, j->step, c->total_steps);
    uint64_t k = (uint64_t)(base * (double)elements + 0.5);
    if (k == 0 || k >= elements)
        return;
    uint32_t key = frugi_whole_cutoff(c->whole, c->span, spans, k, j->threads).key;
    spans = 0;
    for (size_t i = first; i < end; i++)
        for (size_t m = 0; m < c->contest[i].pieces; m++, spans++) {
            uint64_t reaching = frugi_whole_count(c->whole, &c->span[spans], 1, key ? key : 1, j->threads);
            double share = (double)(reaching ? reaching : 1) / (double)c->span[spans].n;
            frugi_control_weight(c->control, piece_of(c, &c->contest[i], m)->number, share);
        }
    frugi_control_densities(c->control, j->step, c->density);
}

void frugi_choose(const frugi_job *j, size_t first, size_t end) {
    static void (*const rules[])(const round *) = {
        [FRUGI_RULE_TOPK] = choose_top,         [FRUGI_RULE_THRESHOLD] = choose_reaching,
        [FRUGI_RULE_RANDOM] = choose_at_random, [FRUGI_RULE_PROBABILISTIC] = choose_by_chance,
        [FRUGI_RULE_HYBRID] = choose_hybrid,    [FRUGI_RULE_LEARNED] = choose_learned,
    };
    const frug_compressor *c = j->c;
    uint32_t *list = c->list, *drawn = c->list + c->list_room;
    bool by_segments = c->config.segment == FRUGI_SEGMENT_BLOCK || c->config.segment == FRUGI_SEGMENT_GROUP;
    void (*choose)(const round *) =
        c->config.rule == FRUGI_RULE_TOPK && by_segments ? choose_top_of_segments : rules[c->config.rule];
    if (c->config.layers == FRUGI_LAYERS_BUDGET && j->step % BUDGET_EVERY == 0)
        share_budget(j, first, end);
    for (size_t i = first; i < end; i++) {
        for (size_t m = 0; m < c->contest[i].pieces; m++) {
            frugi_piece *p = piece_of(c, &c->contest[i], m);
            p->list = p->drawn = NULL;
            p->values = NULL;
            p->kept = p->draws = 0;
        }
        if (c->config.rule != FRUGI_RULE_RANDOM)
            weigh(j, i);
    }
    if (c->config.segment == FRUGI_SEGMENT_ALL && first < end) {
        choose(&(round){j, first, end, &list, &drawn});
        return;
    }
    for (size_t i = first; i < end; i++)
        choose(&(round){j, i, i + 1, &list, &drawn});
}

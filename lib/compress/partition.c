/*
 * partition.c - what competes with what: from the layout and the config to pieces, their units, and contests.
 *
 * A config that is fixed blocks of elements by top-k (the default) needs none of this: its sections go by
 * blocks. All others go by units: every compressed tensor is a grid of tiles (common/grid.h), and the tiles of a
 * tensor, or the heads of an attention module, make up a contest. What does not fit the layout is refused here, when
 * the compressor is made.
 */
#include "compress/compressor.h"

#include "codec/unit_value.h"
#include "base/block_count.h"
#include "base/alloc.h"
#include "base/status.h"

static const frug_tensor *tensor_of(const frug_compressor *c, const frugi_piece *p) {
    return &c->layout->tensor[p->tensor];
}

/* ---- units -------------------------------------------------------------- */

static bool has_heads(const frug_tensor *t) {
    bool attention = t->role == FRUG_ROLE_ATTN_QKV || (t->role >= FRUG_ROLE_ATTN_Q && t->role <= FRUG_ROLE_ATTN_O);
    return attention && t->heads && t->module && t->ndim == 2;
}

/* Heads compete in groups that share keys and values. */
static uint64_t head_groups(const frug_tensor *t) {
    return t->kv_heads ? t->kv_heads : t->heads;
}

/*
 * The slices of a head: rows of queries, keys and values, columns of the output; the other way round where weights are
 * stored input first. Queries, keys and values in one tensor make three slices of a head.
 */
static frug_status head_grid(const frug_tensor *t, frugi_grid *g) {
    uint64_t parts = head_groups(t) * (t->role == FRUG_ROLE_ATTN_QKV ? 3 : 1);
    bool across = (t->role == FRUG_ROLE_ATTN_O) != (t->input_first != 0);
    uint64_t side = across ? g->cols : g->rows;
    FRUG_FAIL_IF(t->kv_heads && t->heads % t->kv_heads != 0, FRUG_ERR_CONFIG,
                 "config: unit=head: tensor '%s' has %u heads that do not share %u evenly", t->name, t->heads,
                 t->kv_heads);
    FRUG_FAIL_IF(
        t->role == FRUG_ROLE_ATTN_QKV && head_groups(t) != t->heads, FRUG_ERR_CONFIG,
        "config: unit=head: tensor '%s' holds queries and fewer keys in one; give them as tensors of their own",
        t->name);
    FRUG_FAIL_IF(side % parts != 0, FRUG_ERR_CONFIG,
                 "config: unit=head: %llu %s of tensor '%s' are no whole number of %u heads", (unsigned long long)side,
                 across ? "columns" : "rows", t->name, t->heads);
    g->h = across ? g->rows : side / parts;
    g->w = across ? side / parts : g->cols;
    return FRUG_OK;
}

static uint64_t at_most(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The grid of a tensor: its first dimension down, the others across. */
static frug_status make_grid(const frug_compressor *c, frugi_piece *p) {
    const frug_tensor *t = tensor_of(c, p);
    frugi_grid g = {.rows = t->ndim > 1 ? t->shape[0] : 1, .h = 1, .w = 1};
    bool column = c->config.unit == FRUGI_UNIT_COLUMN || (c->config.unit == FRUGI_UNIT_CHANNEL && t->input_first);
    g.cols = p->count / g.rows;
    switch (c->config.unit) {
    case FRUGI_UNIT_ELEMENT: break;
    case FRUGI_UNIT_RUN:
        g.rows = 1;
        g.cols = p->count;
        g.w = at_most(c->config.unit_w, g.cols);
        break;
    case FRUGI_UNIT_TILE:
        g.h = at_most(c->config.unit_h, g.rows);
        g.w = at_most(c->config.unit_w, g.cols);
        break;
    case FRUGI_UNIT_ROW:
    case FRUGI_UNIT_COLUMN:
    case FRUGI_UNIT_CHANNEL:
        g.h = column ? g.rows : 1;
        g.w = column ? 1 : g.cols;
        break;
    case FRUGI_UNIT_HEAD:
        if (has_heads(t))
            FRUG_TRY(head_grid(t, &g));
        break;
    }
    FRUG_FAIL_IF(!frugi_grid_measure(&g), FRUG_ERR_CONFIG, "config: tensor '%s' has more than 2^32 units", t->name);
    p->grid = g;
    return FRUG_OK;
}

/* ---- contests ----------------------------------------------------------- */

static frug_status join_contest(frug_compressor *c, frugi_piece *p) {
    const frug_tensor *t = tensor_of(c, p);
    bool heads = c->config.unit == FRUGI_UNIT_HEAD && has_heads(t);
    uint64_t units = heads ? head_groups(t) : p->grid.units;
    size_t at = heads ? 0 : c->contests;
    while (at < c->contests && !(c->contest[at].heads && c->contest[at].module == t->module))
        at++;
    if (at == c->contests)
        c->contest[c->contests++] = (frugi_contest){
            .units = units,
            .heads = heads,
            .module = t->module,
            .single = !heads && p->grid.h * p->grid.w == 1 && c->config.rule != FRUGI_RULE_LEARNED,
        };
    FRUG_FAIL_IF(c->contest[at].units != units, FRUG_ERR_CONFIG,
                 "config: unit=head: the tensors of module %u disagree on the number of heads ('%s')", t->module,
                 t->name);
    c->contest[at].pieces++;
    p->contest = at;
    return FRUG_OK;
}

/* Put each contest's pieces in a row, and number units and segments. */
static void arrange(frug_compressor *c) {
    size_t members = 0;
    uint64_t units = 0, segments = 0;
    for (size_t i = 0; i < c->contests; i++) {
        frugi_contest *k = &c->contest[i];
        k->first = members;
        k->first_unit = units;
        k->first_segment = segments;
        members += k->pieces;
        units += k->units;
        segments += (k->units - 1) / frugi_contest_segment(c, k) + 1;
        k->pieces = 0;
    }
    for (size_t i = 0; i < c->pieces; i++)
        if (!c->piece[i].dense) {
            frugi_contest *k = &c->contest[c->piece[i].contest];
            c->member[k->first + k->pieces++] = i;
        }
}

static frug_status check_heads(const frug_compressor *c) {
    bool any = c->config.unit != FRUGI_UNIT_HEAD || c->contests == 0;
    for (size_t i = 0; i < c->contests; i++)
        any |= c->contest[i].heads;
    FRUG_FAIL_IF(!any, FRUG_ERR_CONFIG,
                 "config: unit=head, but no tensor of the layout has heads: they need a role attn_q, attn_k, attn_v, "
                 "attn_o or attn_qkv, a number of heads and a module");
    return FRUG_OK;
}

uint64_t frugi_contest_segment(const frug_compressor *c, const frugi_contest *contest) {
    switch (c->config.segment) {
    case FRUGI_SEGMENT_BLOCK: return c->config.block;
    case FRUGI_SEGMENT_GROUP: return c->config.group_of;
    default: return contest->units;
    }
}

double frugi_contest_density(const frug_compressor *c, const frugi_contest *k, const double *density) {
    double sum = 0;
    for (size_t i = 0; i < k->pieces; i++)
        sum += density[c->piece[c->member[k->first + i]].number];
    return sum / (double)k->pieces;
}

static double most_density(const frug_compressor *c, const frugi_contest *k) {
    double sum = 0;
    for (size_t i = 0; i < k->pieces; i++)
        sum += frugi_control_most(c->control, c->piece[c->member[k->first + i]].number);
    return sum / (double)k->pieces;
}

uint64_t frugi_contest_count(const frugi_contest *contest, double density) {
    double share = density * (double)contest->units + 0.5;
    if (share >= (double)contest->units)
        return contest->units;
    return share < 1 ? 1 : (uint64_t)share;
}

/*
 * The most units of a contest that leave at a step. With segment=all this is what it adds to the most of all, which may
 * well leave from another contest: it is not limited by its own units.
 */
static uint64_t most_kept(const frug_compressor *c, const frugi_contest *k) {
    double density = most_density(c, k);
    uint64_t count = frugi_contest_count(k, density), segment = frugi_contest_segment(c, k);
    uint64_t segments = (k->units - 1) / segment + 1, blocks = (k->units - 1) / c->config.block + 1;
    switch (c->config.rule) {
    case FRUGI_RULE_TOPK:
        if (c->config.segment == FRUGI_SEGMENT_BLOCK)
            count = segments * ((frugi_kappa_one(density, c->config.block) + UINT32_MAX) >> 32);
        if (c->config.segment == FRUGI_SEGMENT_GROUP)
            count = segments * c->config.group_keep;
        break;
    case FRUGI_RULE_THRESHOLD: count *= 2; break;
    case FRUGI_RULE_PROBABILISTIC: count += 2; break;
    case FRUGI_RULE_HYBRID: count = count > blocks ? count : blocks; break;
    default: break;
    }
    return c->config.segment == FRUGI_SEGMENT_ALL ? count : at_most(count, k->units);
}

/* ---- making -------------------------------------------------------------- */

static frug_status make_contests(frug_compressor *c) {
    c->contest = frugi_calloc(c->pieces + 1, sizeof *c->contest);
    c->member = frugi_calloc(c->pieces + 1, sizeof *c->member);
    c->span = frugi_calloc(c->pieces + 1, sizeof *c->span);
    FRUG_FAIL_IF(!c->contest || !c->member || !c->span, FRUG_ERR_MEMORY, "compressor: out of memory");
    for (size_t i = 0; i < c->pieces; i++)
        if (!c->piece[i].dense) {
            FRUG_TRY(make_grid(c, &c->piece[i]));
            FRUG_TRY(join_contest(c, &c->piece[i]));
        }
    FRUG_TRY(check_heads(c));
    arrange(c);
    return FRUG_OK;
}

/* What rule=hybrid and rule=learned remember. */
static frug_status make_memory(frug_compressor *c) {
    for (size_t i = 0; c->config.rule == FRUGI_RULE_LEARNED && i < c->contests; i++)
        FRUG_TRY(frugi_learned_create(c->contest[i].units, &c->contest[i].learned));
    if (c->config.rule != FRUGI_RULE_HYBRID)
        return FRUG_OK;
    c->claim = frugi_calloc(c->blocks + 1, sizeof *c->claim);
    c->claim_blocks = frugi_calloc(c->contests + 1, sizeof *c->claim_blocks);
    c->claim_last = frugi_calloc(c->contests + 1, sizeof *c->claim_last);
    c->often = frugi_calloc(c->blocks + 1, sizeof *c->often);
    FRUG_FAIL_IF(!c->claim || !c->claim_blocks || !c->claim_last || !c->often, FRUG_ERR_MEMORY,
                 "compressor: out of memory");
    for (size_t i = 0; i < c->contests; i++) {
        c->claim_blocks[i] = (c->contest[i].units - 1) / c->config.block + 1;
        c->claim_last[i] = (uint32_t)(c->contest[i].units - (c->claim_blocks[i] - 1) * c->config.block);
    }
    return FRUG_OK;
}

/* The accumulators are not cleared here: where the gradient serves as it is, they are never touched. */
static frug_status make_arrays(frug_compressor *c) {
    uint64_t units = 0, widest = 0, elements = c->blocks * c->config.block;
    bool in_place = c->config.feedback != FRUGI_FEEDBACK_NONE && c->config.residual == FRUGI_RESIDUAL_F32;
    bool scores = c->config.unit != FRUGI_UNIT_ELEMENT || c->config.rule == FRUGI_RULE_LEARNED;
    for (size_t i = 0; i < c->contests; i++) {
        units += c->contest[i].units;
        c->list_room += most_kept(c, &c->contest[i]);
    }
    c->list_room = at_most(c->list_room, units);
    for (size_t i = 0; i < c->pieces; i++) {
        const frugi_piece *p = &c->piece[i];
        if (p->dense)
            continue;
        widest = p->grid.units > widest ? p->grid.units : widest;
        if (c->contest[p->contest].heads) /* lists of heads and of their slices */
            c->list_room += p->grid.units;
    }
    c->whole = frugi_whole_create(c->threads);
    c->list = frugi_malloc((c->config.rule == FRUGI_RULE_PROBABILISTIC ? 2 : 1) * (c->list_room + 1) * sizeof *c->list);
    c->taken = frugi_malloc((c->list_room + 1) * sizeof *c->taken);
    c->held = frugi_calloc(c->blocks + 1, 1);
    c->work = in_place ? NULL : frugi_malloc((elements + 1) * sizeof *c->work);
    c->score = scores ? frugi_calloc(units + 1, sizeof *c->score) : NULL;
    c->given = scores && c->config.score == FRUGI_SCORE_GIVEN ? frugi_calloc(units + 1, sizeof *c->given) : NULL;
    c->scratch = scores ? frugi_calloc(widest + 1, sizeof *c->scratch) : NULL;
    c->sent = c->config.feedback == FRUGI_FEEDBACK_DGC ? frugi_calloc(elements + 1, 1) : NULL;
    FRUG_FAIL_IF(!c->whole || !c->list || !c->taken || !c->held || (!in_place && !c->work) ||
                     (scores && (!c->score || !c->scratch)) || (c->config.score == FRUGI_SCORE_GIVEN && !c->given) ||
                     (c->config.feedback == FRUGI_FEEDBACK_DGC && !c->sent),
                 FRUG_ERR_MEMORY, "compressor: no memory for the accumulators of %llu elements",
                 (unsigned long long)elements);
    return FRUG_OK;
}

static bool fits_blocks(const struct frug_config *f) {
    return f->rule == FRUGI_RULE_TOPK && f->segment == FRUGI_SEGMENT_BLOCK && f->unit == FRUGI_UNIT_ELEMENT &&
           f->layers != FRUGI_LAYERS_BUDGET && f->value <= FRUGI_VALUE_INT8 &&
           (f->index == FRUGI_INDEX_FIXED || f->index == FRUGI_INDEX_LOCAL || f->index == FRUGI_INDEX_BITMAP);
}

frug_status frugi_plan(frug_compressor *c) {
    c->by_units = !fits_blocks(&c->config);
    if (!c->by_units)
        return FRUG_OK;
    FRUG_TRY(make_contests(c));
    FRUG_TRY(make_memory(c));
    return make_arrays(c);
}

void frugi_plan_destroy(frug_compressor *c) {
    for (size_t i = 0; i < c->contests; i++)
        frugi_learned_destroy(&c->contest[i].learned);
    frugi_whole_destroy(c->whole);
    void *const arrays[] = {c->contest, c->taken,        c->member,     c->span,  c->list,
                            c->held,    c->work,         c->score,      c->given, c->scratch,
                            c->sent,    c->claim_blocks, c->claim_last, c->claim, c->often};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        frugi_free(arrays[i]);
}

/* ---- ranges and bounds --------------------------------------------------- */

frug_status frugi_contests_of(const frug_compressor *c, uint64_t begin, uint64_t count, size_t *first, size_t *end) {
    uint64_t stop = begin + count;
    size_t lo = c->contests, hi = 0;
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < stop; i++) {
        const frugi_piece *p = &c->piece[i];
        if (p->dense)
            continue;
        FRUG_FAIL_IF(p->begin < begin || p->begin + p->count > stop, FRUG_ERR_ARG,
                     "range: it cuts tensor '%s', whose units compete with each other", tensor_of(c, p)->name);
        lo = p->contest < lo ? p->contest : lo;
        hi = p->contest + 1 > hi ? p->contest + 1 : hi;
    }
    for (size_t i = lo; i < hi; i++)
        for (size_t m = 0; m < c->contest[i].pieces; m++) {
            const frugi_piece *p = &c->piece[c->member[c->contest[i].first + m]];
            FRUG_FAIL_IF(p->begin < begin || p->begin + p->count > stop, FRUG_ERR_ARG,
                         "range: it cuts an attention module: tensor '%s' lies outside", tensor_of(c, p)->name);
        }
    *first = lo < hi ? lo : 0;
    *end = lo < hi ? hi : 0;
    return FRUG_OK;
}

/* Index bytes of one section: a part that goes with the grid, and a part that goes with the units sent. */
typedef struct index_cost {
    uint64_t fixed, each;
} index_cost;

static index_cost cost_of(frugi_index_choice code, const frugi_grid *g) {
    switch (code) {
    case FRUGI_INDEX_LOCAL: return (index_cost){g->units / 256 + 1, 1};
    case FRUGI_INDEX_BITMAP: return (index_cost){g->units / 8 + 1, 0};
    case FRUGI_INDEX_CSR: return (index_cost){4 * (g->down + 1), 4};
    case FRUGI_INDEX_RLE: return (index_cost){0, 10};
    case FRUGI_INDEX_RICE: return (index_cost){8, 4};
    default: return (index_cost){0, 4}; /* coo, and what auto need not exceed */
    }
}

static uint64_t value_bound(const frug_compressor *c, uint64_t entries) {
    frugi_section s = {
        .value = c->config.value, .group = c->config.bucket, .levels = c->config.levels, .entries = entries};
    return frugi_group_scale_bytes(&s) + frugi_group_value_bytes(&s);
}

/* Headers, padding and a group that is not full, of every section that a piece can take. */
#define PIECE_FIXED (FRUGI_LAYERS * (FRUGI_UNIT_SECTION_HEADER + 3 * 4 + 16))

frug_status frugi_units_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t *bytes) {
    size_t first, end;
    uint64_t total = 0, kept = 0, entries = 0, bitmap = 0, units = 0, elements = 0, largest = 0;
    FRUG_TRY(frugi_contests_of(c, begin, count, &first, &end));
    frugi_index_choice code = c->config.index == FRUGI_INDEX_FIXED ? FRUGI_INDEX_LOCAL : c->config.index;
    for (size_t i = first; i < end; i++) {
        const frugi_contest *k = &c->contest[i];
        for (size_t m = 0; m < k->pieces; m++) {
            const frugi_piece *p = &c->piece[c->member[k->first + m]];
            uint64_t most = most_kept(c, k) * (p->grid.units / k->units);
            uint64_t whole = most * p->grid.h * p->grid.w;
            total += PIECE_FIXED + FRUGI_LAYERS * cost_of(code, &p->grid).fixed;
            bitmap += FRUGI_LAYERS * cost_of(FRUGI_INDEX_BITMAP, &p->grid).fixed;
            kept += most;
            entries += at_most(whole, p->count);
            units += p->grid.units;
            elements += p->count;
            largest = p->grid.h * p->grid.w > largest ? p->grid.h * p->grid.w : largest;
        }
    }
    if (c->config.segment == FRUGI_SEGMENT_ALL) { /* they may all leave from the tensor with the largest units */
        kept = at_most(kept, units);
        entries = at_most(kept * largest, elements);
    }
    uint64_t each = cost_of(code, &(frugi_grid){0}).each * kept;
    bool may_choose = c->config.index == FRUGI_INDEX_AUTO || c->config.index == FRUGI_INDEX_FIXED;
    *bytes = total + (may_choose ? at_most(each, bitmap) : each) + value_bound(c, entries);
    return FRUG_OK;
}

/* ---- what a step would send ---------------------------------------------- */

static double planned_density(const frug_compressor *c, const frugi_contest *k, uint64_t step) {
    double sum = 0;
    for (size_t i = 0; i < k->pieces; i++)
        sum += frugi_control_density(c->control, step, c->piece[c->member[k->first + i]].number);
    return sum / (double)k->pieces;
}

/* What frugi_hybrid_settle() makes of a count. */
static uint64_t settled(const frug_compressor *c, const frugi_contest *k, uint64_t count) {
    size_t i = (size_t)(k - c->contest);
    uint64_t blocks = c->claim_blocks[i], most = c->config.hybrid_most;
    uint64_t room = (blocks - 1) * at_most(c->config.block, most) + at_most(c->claim_last[i], most);
    return count >= k->units ? k->units : count < blocks ? blocks : at_most(count, room);
}

static uint64_t planned(const frug_compressor *c, const frugi_contest *k, uint64_t step, double density) {
    uint64_t segment = frugi_contest_segment(c, k), whole = k->units / segment, rest = k->units % segment;
    if (c->config.rule == FRUGI_RULE_TOPK && c->config.segment == FRUGI_SEGMENT_BLOCK) {
        uint64_t kappa = frugi_kappa_one(density, c->config.block), first = k->first_segment + step % FRUGI_PHASES;
        uint32_t last = rest ? frugi_tail_count(frugi_count(kappa, first + whole), (uint32_t)rest, c->config.block) : 0;
        return frugi_count_range(kappa, first, whole) + last;
    }
    if (c->config.segment == FRUGI_SEGMENT_GROUP)
        return whole * c->config.group_keep +
               (rest ? frugi_tail_count(c->config.group_keep, (uint32_t)rest, c->config.group_of) : 0);
    uint64_t count = frugi_contest_count(k, density);
    return c->config.rule == FRUGI_RULE_HYBRID ? settled(c, k, count) : count;
}

static void plan_blocks(const frug_compressor *c, const frugi_piece *p, uint64_t step, frug_plan *plan) {
    frugi_section s = {.block = c->config.block, .begin = p->begin, .count = p->count, .index = FRUGI_INDEX_CODE_LOCAL};
    plan->density = frugi_control_density(c->control, step, p->number);
    s.kappa = frugi_kappa(plan->density, s.block);
    s.first = p->first_block + step % FRUGI_PHASES;
    frugi_section_measure(&s);
    plan->units = p->count;
    plan->segments = s.blocks;
    plan->kept = s.entries;
}

static void plan_units(const frug_compressor *c, const frugi_piece *p, uint64_t step, frug_plan *plan) {
    static const char *const names[] = {"element", "run", "tile", "row", "column", "channel", "head"};
    const frugi_contest *k = &c->contest[p->contest];
    bool element = p->grid.h == 1 && p->grid.w == 1;
    plan->unit = names[element ? FRUGI_UNIT_ELEMENT : c->config.unit];
    plan->unit_h = p->grid.h;
    plan->unit_w = p->grid.w;
    plan->units = p->grid.units;
    plan->segments = c->config.segment == FRUGI_SEGMENT_ALL ? 0 : (k->units - 1) / frugi_contest_segment(c, k) + 1;
    plan->density = planned_density(c, k, step);
    plan->kept = planned(c, k, step, plan->density) * (p->grid.units / k->units);
}

frug_status frug_compressor_plan(const frug_compressor *c, uint64_t step, size_t tensor, frug_plan *plan) {
    FRUG_FAIL_IF(!c || !plan || plan->struct_size < sizeof *plan, FRUG_ERR_ARG,
                 "plan: no compressor, no place for the result or its struct_size unset");
    FRUG_FAIL_IF(tensor >= c->layout->count, FRUG_ERR_ARG, "plan: no tensor %zu, there are %zu", tensor,
                 c->layout->count);
    const frug_tensor *t = &c->layout->tensor[tensor];
    frug_plan made = {.struct_size = sizeof made, .unit = "element", .unit_h = 1, .unit_w = 1, .density = 1};
    size_t i = frugi_piece_at(c, t->offset);
    made.units = made.kept = frugi_tensor_elements(t);
    made.dense = 1;
    if (made.units && !c->piece[i].dense && !frugi_control_all(&c->config, step)) {
        made.dense = 0;
        (c->by_units ? plan_units : plan_blocks)(c, &c->piece[i], step, &made);
    }
    *plan = made;
    return FRUG_OK;
}

/*
 * select_groups.c - units and selection groups, made from layout and config when a compressor is created.
 *
 * The default, top-k of elements in fixed blocks, uses block sections and needs none of this. All other configs use
 * unit sections: every compressed tensor is a grid of units (layout/tile_grid.h), and the units of a tensor, or the
 * heads of an attention module, are a selection group. Configs that do not fit the layout are rejected here.
 */
#include "compress/compressor.h"

#include "base/block_count.h"
#include "base/alloc.h"
#include "base/status.h"

static const frug_tensor *tensor_of(const frug_compressor *c, const frugi_tensor_view *view) {
    return &c->layout->tensor[view->tensor];
}

/* ---- units -------------------------------------------------------------- */

static bool has_heads(const frug_tensor *t) {
    bool attention = t->role == FRUG_ROLE_ATTN_QKV || (t->role >= FRUG_ROLE_ATTN_Q && t->role <= FRUG_ROLE_ATTN_O);
    return attention && t->heads && t->module && t->ndim == 2;
}

/* Heads that share keys and values are selected together. */
static uint64_t head_groups(const frug_tensor *t) {
    return t->kv_heads ? t->kv_heads : t->heads;
}

/*
 * A head is a range of rows in queries, keys and values, and of columns in the output; the other way round where
 * weights are stored input first. In a tensor that has queries, keys and values, a head has three such ranges.
 */
static frug_status head_grid(const frug_tensor *t, frugi_grid *g) {
    uint64_t ranges = head_groups(t) * (t->role == FRUG_ROLE_ATTN_QKV ? 3 : 1);
    bool across = (t->role == FRUG_ROLE_ATTN_O) != (t->input_first != 0);
    uint64_t side = across ? g->cols : g->rows;
    FRUG_FAIL_IF(t->kv_heads && t->heads % t->kv_heads != 0, FRUG_ERR_CONFIG,
                 "config: unit=head: tensor '%s' has %u heads, which is not a multiple of its %u key/value heads",
                 t->name, t->heads, t->kv_heads);
    FRUG_FAIL_IF(
        t->role == FRUG_ROLE_ATTN_QKV && head_groups(t) != t->heads, FRUG_ERR_CONFIG,
        "config: unit=head: tensor '%s' (attn_qkv) has fewer key/value heads than heads; use separate tensors for "
        "queries, keys and values",
        t->name);
    FRUG_FAIL_IF(side % ranges != 0, FRUG_ERR_CONFIG,
                 "config: unit=head: %llu %s of tensor '%s' are no whole number of %u heads", (unsigned long long)side,
                 across ? "columns" : "rows", t->name, t->heads);
    g->h = across ? g->rows : side / ranges;
    g->w = across ? side / ranges : g->cols;
    return FRUG_OK;
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The units of a tensor, as a matrix of its first dimension by all others. */
static frug_status make_grid(const frug_compressor *c, frugi_tensor_view *view) {
    const frug_tensor *t = tensor_of(c, view);
    frugi_grid g = {.rows = t->ndim > 1 ? t->shape[0] : 1, .h = 1, .w = 1};
    bool column = c->config.unit == FRUGI_UNIT_COLUMN || (c->config.unit == FRUGI_UNIT_CHANNEL && t->input_first);
    g.cols = view->count / g.rows;
    switch (c->config.unit) {
    case FRUGI_UNIT_ELEMENT: break;
    case FRUGI_UNIT_RUN:
        g.rows = 1;
        g.cols = view->count;
        g.w = min_u64(c->config.unit_w, g.cols);
        break;
    case FRUGI_UNIT_TILE:
        g.h = min_u64(c->config.unit_h, g.rows);
        g.w = min_u64(c->config.unit_w, g.cols);
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
    view->grid = g;
    return FRUG_OK;
}

/* ---- selection groups ---------------------------------------------------- */

/* Add a tensor to the group of its attention module, or to a new group. */
static frug_status join_select_group(frug_compressor *c, frugi_tensor_view *view) {
    const frug_tensor *t = tensor_of(c, view);
    bool heads = c->config.unit == FRUGI_UNIT_HEAD && has_heads(t);
    uint64_t units = heads ? head_groups(t) : view->grid.units;
    size_t at = heads ? 0 : c->units.select_groups;
    while (at < c->units.select_groups &&
           !(c->units.select_group[at].heads && c->units.select_group[at].module == t->module))
        at++;
    if (at == c->units.select_groups)
        c->units.select_group[c->units.select_groups++] = (frugi_select_group){
            .units = units,
            .absent = true,
            .heads = heads,
            .module = t->module,
            .elementwise = !heads && view->grid.h * view->grid.w == 1 && c->config.rule != FRUGI_RULE_LEARNED,
        };
    FRUG_FAIL_IF(c->units.select_group[at].units != units, FRUG_ERR_CONFIG,
                 "config: unit=head: the tensors of module %u disagree on the number of heads ('%s')", t->module,
                 t->name);
    c->units.select_group[at].views++;
    c->units.select_group[at].absent &= view->absent;
    view->select_group = at;
    return FRUG_OK;
}

/* Fill c->units.member, and number the units and segments of all groups. */
static void number_groups(frug_compressor *c) {
    size_t members = 0;
    uint64_t units = 0, segments = 0;
    for (size_t i = 0; i < c->units.select_groups; i++) {
        frugi_select_group *group = &c->units.select_group[i];
        group->first = members;
        group->first_unit = units;
        group->first_segment = segments;
        members += group->views;
        units += group->absent ? 0 : group->units;
        segments += (group->units - 1) / frugi_select_group_segment(c, group) + 1;
        group->views = 0;
    }
    for (size_t i = 0; i < c->partition.views; i++)
        if (!c->partition.view[i].dense) {
            frugi_select_group *group = &c->units.select_group[c->partition.view[i].select_group];
            c->units.member[group->first + group->views++] = i;
        }
}

static frug_status check_heads(const frug_compressor *c) {
    bool any = c->config.unit != FRUGI_UNIT_HEAD || c->units.select_groups == 0;
    for (size_t i = 0; i < c->units.select_groups; i++)
        any |= c->units.select_group[i].heads;
    FRUG_FAIL_IF(
        !any, FRUG_ERR_CONFIG,
        "config: unit=head, but no tensor of the layout has heads: it needs a role (attn_q, attn_k, attn_v, attn_o "
        "or attn_qkv), a number of heads and a module");
    return FRUG_OK;
}

uint64_t frugi_select_group_segment(const frug_compressor *c, const frugi_select_group *group) {
    switch (c->config.segment) {
    case FRUGI_SEGMENT_BLOCK: return c->config.block;
    case FRUGI_SEGMENT_GROUP: return c->config.group_of;
    default: return group->units;
    }
}

double frugi_select_group_density(const frug_compressor *c, const frugi_select_group *group, const double *density) {
    double sum = 0;
    for (size_t i = 0; i < group->views; i++)
        sum += density[c->partition.view[c->units.member[group->first + i]].number];
    return sum / (double)group->views;
}

static double max_density(const frug_compressor *c, const frugi_select_group *group) {
    double sum = 0;
    for (size_t i = 0; i < group->views; i++)
        sum += frugi_control_max_density(c->control, c->partition.view[c->units.member[group->first + i]].number);
    return sum / (double)group->views;
}

uint64_t frugi_select_group_count(const frugi_select_group *group, double density) {
    double share = density * (double)group->units + 0.5;
    if (share >= (double)group->units)
        return group->units;
    return share < 1 ? 1 : (uint64_t)share;
}

uint64_t frugi_select_group_most(const frug_compressor *c, const frugi_select_group *group) {
    double density = max_density(c, group);
    uint64_t count = frugi_select_group_count(group, density), segment = frugi_select_group_segment(c, group);
    uint64_t segments = (group->units - 1) / segment + 1, blocks = (group->units - 1) / c->config.block + 1;
    switch (c->config.rule) {
    case FRUGI_RULE_TOPK:
        if (c->config.segment == FRUGI_SEGMENT_BLOCK)
            count = segments * ((frugi_kappa_at_least_one(density, c->config.block) + UINT32_MAX) >> 32);
        if (c->config.segment == FRUGI_SEGMENT_GROUP)
            count = segments * c->config.group_keep;
        break;
    case FRUGI_RULE_THRESHOLD: count *= 2; break;
    case FRUGI_RULE_PROBABILISTIC: count += 2; break;
    case FRUGI_RULE_HYBRID: count = count > blocks ? count : blocks; break;
    default: break;
    }
    return c->config.segment == FRUGI_SEGMENT_ALL ? count : min_u64(count, group->units);
}

/* ---- creation ------------------------------------------------------------ */

static frug_status make_select_groups(frug_compressor *c) {
    c->units.select_group = frugi_calloc(c->partition.views + 1, sizeof *c->units.select_group);
    c->units.member = frugi_calloc(c->partition.views + 1, sizeof *c->units.member);
    c->units.selection = frugi_calloc(c->partition.views + 1, sizeof *c->units.selection);
    c->units.span = frugi_calloc(c->partition.views + 1, sizeof *c->units.span);
    FRUG_FAIL_IF(!c->units.select_group || !c->units.member || !c->units.selection || !c->units.span, FRUG_ERR_MEMORY,
                 "compressor: out of memory");
    for (size_t i = 0; i < c->partition.views; i++)
        if (!c->partition.view[i].dense) {
            FRUG_TRY(make_grid(c, &c->partition.view[i]));
            FRUG_TRY(join_select_group(c, &c->partition.view[i]));
        }
    FRUG_TRY(check_heads(c));
    number_groups(c);
    return FRUG_OK;
}

/* State of rule=hybrid and rule=learned. */
static frug_status make_rule_state(frug_compressor *c) {
    for (size_t i = 0; c->config.rule == FRUGI_RULE_LEARNED && i < c->units.select_groups; i++)
        if (!c->units.select_group[i].absent)
            FRUG_TRY(frugi_learned_create(c->units.select_group[i].units, &c->units.select_group[i].learned));
    if (c->config.rule != FRUGI_RULE_HYBRID)
        return FRUG_OK;
    c->units.hybrid_count = frugi_calloc(c->partition.blocks + 1, sizeof *c->units.hybrid_count);
    c->units.hybrid_blocks = frugi_calloc(c->units.select_groups + 1, sizeof *c->units.hybrid_blocks);
    c->units.hybrid_last_length = frugi_calloc(c->units.select_groups + 1, sizeof *c->units.hybrid_last_length);
    c->units.hybrid_frequency = frugi_calloc(c->partition.blocks + 1, sizeof *c->units.hybrid_frequency);
    FRUG_FAIL_IF(!c->units.hybrid_count || !c->units.hybrid_blocks || !c->units.hybrid_last_length ||
                     !c->units.hybrid_frequency,
                 FRUG_ERR_MEMORY, "compressor: out of memory");
    for (size_t i = 0; i < c->units.select_groups; i++) {
        c->units.hybrid_blocks[i] = (c->units.select_group[i].units - 1) / c->config.block + 1;
        c->units.hybrid_last_length[i] =
            (uint32_t)(c->units.select_group[i].units - (c->units.hybrid_blocks[i] - 1) * c->config.block);
    }
    return FRUG_OK;
}

/* The accumulators are not cleared: where the gradient is used as it is, their pages are never touched. */
static frug_status make_arrays(frug_compressor *c) {
    uint64_t units = 0, widest = 0, elements = c->partition.blocks * c->config.block;
    bool in_place = c->config.feedback != FRUGI_FEEDBACK_NONE && c->config.residual == FRUGI_RESIDUAL_F32;
    bool scores = c->config.unit != FRUGI_UNIT_ELEMENT || c->config.rule == FRUGI_RULE_LEARNED;
    bool marks = c->config.feedback == FRUGI_FEEDBACK_DGC && !in_place;
    for (size_t i = 0; i < c->units.select_groups; i++) {
        const frugi_select_group *group = &c->units.select_group[i];
        units += group->absent ? 0 : group->units;
        c->units.list_capacity += group->absent ? 0 : frugi_select_group_most(c, group);
    }
    c->units.list_capacity = min_u64(c->units.list_capacity, units);
    for (size_t i = 0; i < c->partition.views; i++) {
        const frugi_tensor_view *view = &c->partition.view[i];
        if (view->dense || view->absent)
            continue;
        widest = view->grid.units > widest ? view->grid.units : widest;
        if (c->units.select_group[view->select_group].heads) /* lists of heads, and of the units of these heads */
            c->units.list_capacity += view->grid.units;
    }
    c->units.topk = frugi_topk_create(c->threads);
    c->units.value_kernel = frugi_value_kernel_chosen();
    c->units.list = frugi_malloc((c->config.rule == FRUGI_RULE_PROBABILISTIC ? 2 : 1) * (c->units.list_capacity + 1) *
                                 sizeof *c->units.list);
    c->units.list_values = frugi_malloc((c->units.list_capacity + 1) * sizeof *c->units.list_values);
    c->units.skipped = frugi_calloc(c->partition.blocks + 1, 1);
    c->units.accumulators = in_place ? NULL : frugi_malloc((elements + 1) * sizeof *c->units.accumulators);
    c->units.score = scores ? frugi_calloc(units + 1, sizeof *c->units.score) : NULL;
    c->units.given_scores =
        scores && c->config.score == FRUGI_SCORE_GIVEN ? frugi_calloc(units + 1, sizeof *c->units.given_scores) : NULL;
    c->units.unit_scratch = scores ? frugi_calloc(widest + 1, sizeof *c->units.unit_scratch) : NULL;
    c->units.sent_mask = marks ? frugi_calloc(elements + 1, 1) : NULL;
    FRUG_FAIL_IF(!c->units.topk || !c->units.list || !c->units.list_values || !c->units.skipped ||
                     (!in_place && !c->units.accumulators) || (scores && (!c->units.score || !c->units.unit_scratch)) ||
                     (c->config.score == FRUGI_SCORE_GIVEN && !c->units.given_scores) || (marks && !c->units.sent_mask),
                 FRUG_ERR_MEMORY, "compressor: out of memory for the accumulators of %llu elements",
                 (unsigned long long)elements);
    return FRUG_OK;
}

frug_status frugi_select_groups_create(frug_compressor *c) {
    FRUG_TRY(make_select_groups(c));
    FRUG_TRY(make_rule_state(c));
    return make_arrays(c);
}

void frugi_select_all_units(frug_compressor *c) {
    for (size_t i = 0; i < c->partition.views; i++) {
        const frugi_tensor_view *view = &c->partition.view[i];
        if (!view->dense)
            c->units.selection[view->number] = (frugi_unit_selection){.selected = view->grid.units};
    }
}

void frugi_select_groups_destroy(frug_compressor *c) {
    for (size_t i = 0; i < c->units.select_groups; i++)
        frugi_learned_destroy(&c->units.select_group[i].learned);
    frugi_topk_destroy(c->units.topk);
    void *const arrays[] = {c->units.select_group,  c->units.list_values,
                            c->units.member,        c->units.selection,
                            c->units.span,          c->units.list,
                            c->units.skipped,       c->units.accumulators,
                            c->units.score,         c->units.given_scores,
                            c->units.unit_scratch,  c->units.sent_mask,
                            c->units.hybrid_blocks, c->units.hybrid_last_length,
                            c->units.hybrid_count,  c->units.hybrid_frequency};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        frugi_free(arrays[i]);
}

/* ---- ranges --------------------------------------------------------------- */

frug_status frugi_select_groups_in(const frug_compressor *c, uint64_t begin, uint64_t count, size_t *first,
                                   size_t *end) {
    uint64_t stop = begin + count;
    size_t lo = c->units.select_groups, hi = 0;
    frugi_range_iter it = frugi_range_start(&c->partition, begin, stop);
    while (frugi_range_next(&it)) {
        const frugi_tensor_view *view = it.view;
        if (view->dense)
            continue;
        FRUG_FAIL_IF(view->begin < begin || view->begin + view->count > stop, FRUG_ERR_ARG,
                     "range: it cuts tensor '%s', whose units are selected together", tensor_of(c, view)->name);
        lo = view->select_group < lo ? view->select_group : lo;
        hi = view->select_group + 1 > hi ? view->select_group + 1 : hi;
    }
    for (size_t i = lo; i < hi; i++)
        for (size_t m = 0; m < c->units.select_group[i].views; m++) {
            const frugi_tensor_view *view = &c->partition.view[c->units.member[c->units.select_group[i].first + m]];
            FRUG_FAIL_IF(view->begin < begin || view->begin + view->count > stop, FRUG_ERR_ARG,
                         "range: it cuts an attention module: tensor '%s' lies outside", tensor_of(c, view)->name);
        }
    *first = lo < hi ? lo : 0;
    *end = lo < hi ? hi : 0;
    return FRUG_OK;
}

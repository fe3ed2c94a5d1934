/*
 * unit_plan.c - what is known of unit sections before anything is selected: the most bytes they can take, and how many
 * units a step selects.
 */
#include "compress/compress_path.h"

#include "base/block_count.h"
#include "base/status.h"
#include "codec/unit_value.h"

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- bound ------------------------------------------------------------------ */

/** Index bytes of one section: fixed ones, which depend on the grid, and bytes per selected unit. */
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
    default: return (index_cost){0, 4}; /* coo; auto needs no more */
    }
}

static uint64_t value_bound(const frug_compressor *c, uint64_t entries) {
    frugi_section s = {
        .value = c->config.value, .group = c->config.bucket, .levels = c->config.levels, .entries = entries};
    return frugi_value_group_scale_bytes(&s) + frugi_value_group_bytes(&s);
}

/* Headers, padding and one value group that is not full, for the sections of a tensor. */
#define TENSOR_FIXED (FRUGI_SECTIONS_PER_TENSOR * (FRUGI_UNIT_SECTION_HEADER + 3 * 4 + 16))

frug_status frugi_unit_sections_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t *bytes) {
    size_t first, end;
    uint64_t total = 0, selected = 0, entries = 0, bitmap = 0, units = 0, elements = 0, largest = 0;
    FRUG_TRY(frugi_select_groups_in(c, begin, count, &first, &end));
    frugi_index_choice code = c->config.index == FRUGI_INDEX_FIXED ? FRUGI_INDEX_LOCAL : c->config.index;
    for (size_t i = first; i < end; i++) {
        const frugi_select_group *group = &c->units.select_group[i];
        for (size_t m = 0; m < group->views; m++) {
            const frugi_tensor_view *view = &c->partition.view[c->units.member[group->first + m]];
            uint64_t most = frugi_select_group_most(c, group) * (view->grid.units / group->units);
            uint64_t whole = most * view->grid.h * view->grid.w;
            total += TENSOR_FIXED + FRUGI_SECTIONS_PER_TENSOR * cost_of(code, &view->grid).fixed;
            bitmap += FRUGI_SECTIONS_PER_TENSOR * cost_of(FRUGI_INDEX_BITMAP, &view->grid).fixed;
            selected += most;
            entries += min_u64(whole, view->count);
            units += view->grid.units;
            elements += view->count;
            largest = view->grid.h * view->grid.w > largest ? view->grid.h * view->grid.w : largest;
        }
    }
    if (c->config.segment == FRUGI_SEGMENT_ALL) { /* all may be selected from the tensor with the largest units */
        selected = min_u64(selected, units);
        entries = min_u64(selected * largest, elements);
    }
    uint64_t each = cost_of(code, &(frugi_grid){0}).each * selected;
    bool shortest = c->config.index == FRUGI_INDEX_AUTO || c->config.index == FRUGI_INDEX_FIXED;
    *bytes = total + (shortest ? min_u64(each, bitmap) : each) + value_bound(c, entries);
    return FRUG_OK;
}

/* ---- plan ------------------------------------------------------------------- */

static double planned_density(const frug_compressor *c, const frugi_select_group *group, uint64_t step) {
    double sum = 0;
    for (size_t i = 0; i < group->views; i++)
        sum += frugi_control_density(c->control, step, c->partition.view[c->units.member[group->first + i]].number);
    return sum / (double)group->views;
}

/* The number of entries that frugi_hybrid_fit_budget() gives for a count. */
static uint64_t planned_hybrid(const frug_compressor *c, const frugi_select_group *group, uint64_t count) {
    size_t i = (size_t)(group - c->units.select_group);
    uint64_t blocks = c->units.hybrid_blocks[i], most = c->config.hybrid_most;
    uint64_t room = (blocks - 1) * min_u64(c->config.block, most) + min_u64(c->units.hybrid_last_length[i], most);
    return count >= group->units ? group->units : count < blocks ? blocks : min_u64(count, room);
}

/* Units of a group that a step would select. */
static uint64_t planned_units(const frug_compressor *c, const frugi_select_group *group, uint64_t step,
                              double density) {
    uint64_t segment = frugi_select_group_segment(c, group), whole = group->units / segment,
             rest = group->units % segment;
    if (c->config.rule == FRUGI_RULE_TOPK && c->config.segment == FRUGI_SEGMENT_BLOCK) {
        uint64_t kappa = frugi_kappa_at_least_one(density, c->config.block),
                 first = group->first_segment + step % FRUGI_PHASES;
        uint32_t last = rest ? frugi_tail_count(frugi_count(kappa, first + whole), (uint32_t)rest, c->config.block) : 0;
        return frugi_count_range(kappa, first, whole) + last;
    }
    if (c->config.segment == FRUGI_SEGMENT_GROUP)
        return whole * c->config.group_keep +
               (rest ? frugi_tail_count(c->config.group_keep, (uint32_t)rest, c->config.group_of) : 0);
    uint64_t count = frugi_select_group_count(group, density);
    return c->config.rule == FRUGI_RULE_HYBRID ? planned_hybrid(c, group, count) : count;
}

void frugi_plan_units(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step, frug_tensor_plan *plan) {
    static const char *const names[] = {"element", "run", "tile", "row", "column", "channel", "head"};
    const frugi_select_group *group = &c->units.select_group[view->select_group];
    bool element = view->grid.h == 1 && view->grid.w == 1;
    plan->unit = names[element ? FRUGI_UNIT_ELEMENT : c->config.unit];
    plan->unit_h = view->grid.h;
    plan->unit_w = view->grid.w;
    plan->units = view->grid.units;
    plan->segments =
        c->config.segment == FRUGI_SEGMENT_ALL ? 0 : (group->units - 1) / frugi_select_group_segment(c, group) + 1;
    plan->density = planned_density(c, group, step);
    plan->selected = planned_units(c, group, step, plan->density) * (view->grid.units / group->units);
}

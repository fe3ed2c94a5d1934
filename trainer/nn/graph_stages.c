/*
 * graph_stages.c - places at which one value crosses, estimated costs, and the removal of other stages' nodes.
 *
 * The cost of a node is its multiplications, or some operations for each number where memory is the limit. The division
 * with the smallest maximum is found by dynamic programming over all places: stages x places^2 steps.
 */
#include "trainer/nn/graph_stages.h"

#include "io/error.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_COST 8u /* of a number that an operation reads and writes, in multiplications */

static bool is_tied(const fgt_node *node) {
    return strcmp(node->op->name, "tied") == 0;
}

/* Of one sample. */
static uint64_t cost_of(const fgt_node *node) {
    const fgt_value *out = node->out, *in = node->in[0];
    uint64_t size = out->sample_size, cost = MEMORY_COST * size;
    if (node->op->is_product) {
        uint64_t outputs = out->ndim == 3 ? out->dims[0] : out->dims[out->ndim - 1];
        cost += size / outputs * node->param[0]->rows * node->param[0]->cols;
    } else if (is_tied(node)) {
        cost += size * in->dims[1];
    } else if (strcmp(node->op->name, "attention") == 0) {
        cost += 2 * size * out->dims[0];
    }
    return cost;
}

/* The one value that nodes before `at` make and others from `at` on use; NULL: there are several, or it cannot be sent.
 */
static fgt_value *crossing_value(const fgt_graph *g, uint32_t at) {
    fgt_value *found = NULL;
    for (const fgt_node *node = g->first; node; node = node->next)
        for (int i = 0; i < 3 && node->number >= at; i++) {
            fgt_value *in = node->in[i];
            if (!in || in->producer >= at || in == found)
                continue;
            if (found || in->external || !in->wants_grad)
                return NULL;
            found = in;
        }
    return found;
}

/** Places to divide at, with the cost of all nodes before each; the first is 0, the last the end. */
typedef struct place_list {
    uint32_t *at;
    uint64_t *cost;
    uint32_t count;
    uint64_t tied_cost; /* of the nodes from the tied layer on, which stage 0 runs too */
    uint32_t tied_at;   /* their begin; 0: there is no such layer */
} place_list;

static void find_places(const fgt_graph *g, place_list *p) {
    uint64_t sum = 0;
    for (const fgt_node *node = g->first; node; node = node->next) {
        if (is_tied(node))
            p->tied_at = node->number;
        if (!p->tied_at && (node == g->first || crossing_value(g, node->number))) {
            p->at[p->count] = node->number;
            p->cost[p->count++] = sum;
        }
        *(p->tied_at ? &p->tied_cost : &sum) += cost_of(node);
    }
    p->at[p->count] = p->tied_at ? p->tied_at : g->nodes;
    p->cost[p->count++] = sum;
}

/* best[s * count + j]: the smallest maximum of s + 1 stages that end at place j; from[]: where the last of them begins.
 */
static void divide(const place_list *p, uint32_t stages, uint64_t *best, uint32_t *from, fgt_stage_plan *plan) {
    for (uint32_t s = 0; s < stages; s++)
        for (uint32_t j = s + 1; j < p->count; j++) {
            uint64_t *to = &best[s * p->count + j];
            *to = s == 0 ? p->cost[j] + p->tied_cost : UINT64_MAX;
            for (uint32_t i = s; s > 0 && i < j; i++) {
                uint64_t before = best[(s - 1) * p->count + i], last = p->cost[j] - p->cost[i];
                uint64_t most = before > last ? before : last;
                if (most < *to) {
                    *to = most;
                    from[s * p->count + j] = i;
                }
            }
        }
    uint32_t j = p->count - 1;
    for (uint32_t s = stages; s-- > 0; j = from[s * p->count + j])
        plan->begin[s + 1] = p->at[j];
    plan->begin[0] = 0;
}

int fgt_stages_plan(const fgt_graph *g, const char *model, uint32_t stages, fgt_stage_plan *plan) {
    place_list p = {.at = calloc(g->nodes + 2, sizeof *p.at), .cost = calloc(g->nodes + 2, sizeof *p.cost)};
    uint64_t *best = calloc((size_t)stages * (g->nodes + 2), sizeof *best);
    uint32_t *from = calloc((size_t)stages * (g->nodes + 2), sizeof *from);
    int status = FGIO_EXIT_OK;
    if (!p.at || !p.cost || !best || !from || g->build_failed) {
        status = fgio_error("not enough memory for the stages of %s", model);
    } else {
        find_places(g, &p);
        if (stages >= p.count)
            status = fgio_error("--stages %u: %s can be divided into at most %u stages", stages, model, p.count - 1);
    }
    if (status == FGIO_EXIT_OK) {
        *plan = (fgt_stage_plan){.stages = stages, .chunks = stages + (p.tied_at ? 1 : 0)};
        divide(&p, stages, best, from, plan);
        plan->begin[plan->chunks] = g->nodes;
    }
    free(p.at);
    free(p.cost);
    free(best);
    free(from);
    return status;
}

uint64_t fgt_stages_link_floats(const fgt_graph *g, const fgt_stage_plan *plan) {
    uint64_t floats[FGT_STAGES_MAX] = {0}, most = 0;
    for (uint32_t c = 1; c < plan->chunks; c++) {
        const uint64_t size = crossing_value(g, plan->begin[c])->sample_size;
        floats[(c - 1) % plan->stages] += size;
        floats[c % plan->stages] += size;
    }
    for (uint32_t s = 0; s < plan->stages; s++)
        most = floats[s] > most ? floats[s] : most;
    return most;
}

uint32_t fgt_stages_copies(const fgt_stage_plan *plan, uint32_t stage, uint32_t micro_batches) {
    const uint32_t most = plan->chunks - stage;
    return most < micro_batches ? most : micro_batches;
}

/* ---- removing ---- */

static uint32_t chunk_of(const fgt_stage_plan *plan, uint32_t node) {
    uint32_t chunk = 0;
    while (node >= plan->begin[chunk + 1])
        chunk++;
    return chunk;
}

static bool is_kept(const fgt_stage_plan *plan, uint32_t node, uint32_t stage) {
    return chunk_of(plan, node) % plan->stages == stage;
}

/* The input of a chunk has memory of its own, and its gradient is kept for the stage before. */
static void make_input(fgt_value *in) {
    in->alias = NULL;
    in->used_outside_block = true;
}

/* The gradient of an output, which comes from the next stage, is live from the last node of the chunk. */
static void make_output(fgt_value *out, const fgt_node *last) {
    while (out->alias)
        out = out->alias;
    out->last_use = last->number;
    out->used_outside_block = true;
}

static void remove_nodes(fgt_graph *g, const fgt_stage_plan *plan, uint32_t stage) {
    fgt_node *node = g->first;
    g->first = g->last = NULL;
    for (fgt_node *next; node; node = next) {
        next = node->next;
        node->next = NULL;
        if (!is_kept(plan, node->number, stage)) {
            fgt_node_destroy(node);
            continue;
        }
        node->previous = g->last;
        *(g->last ? &g->last->next : &g->first) = node;
        g->last = node;
    }
}

static void remove_values(fgt_graph *g, const fgt_stage_plan *plan, uint32_t stage, const fgt_chunk *chunks,
                          uint32_t count) {
    for (fgt_value **at = &g->values; *at;) {
        fgt_value *v = *at;
        bool input = false;
        for (uint32_t i = 0; i < count; i++)
            input |= v == chunks[i].in;
        if (input || is_kept(plan, v->producer, stage)) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        free(v);
    }
}

uint32_t fgt_stages_keep(fgt_graph *g, const fgt_stage_plan *plan, uint32_t stage, fgt_chunk chunks[2]) {
    uint32_t count = 0;
    for (uint32_t c = stage; c < plan->chunks; c += plan->stages) {
        fgt_chunk *k = &chunks[count++];
        *k = (fgt_chunk){.number = c};
        k->in = c > 0 ? crossing_value(g, plan->begin[c]) : NULL;
        k->out = c + 1 < plan->chunks ? crossing_value(g, plan->begin[c + 1]) : NULL;
        for (fgt_node *node = g->first; node; node = node->next) {
            k->first = node->number == plan->begin[c] ? node : k->first;
            k->last = node->number + 1 == plan->begin[c + 1] ? node : k->last;
        }
    }
    for (fgt_param *p = g->params; p; p = p->next)
        p->frozen = true;
    for (const fgt_node *node = g->first; node; node = node->next)
        for (int i = 0; i < 3; i++)
            if (node->param[i]) {
                node->param[i]->stage = chunk_of(plan, node->number) % plan->stages;
                node->param[i]->frozen = node->param[i]->stage != stage;
                node->param[i]->tensor.absent = node->param[i]->frozen;
            }
    for (fgt_buffer *b = g->buffers; b; b = b->next)
        b->stage = chunk_of(plan, b->node) % plan->stages;
    remove_nodes(g, plan, stage);
    remove_values(g, plan, stage, chunks, count);
    for (uint32_t i = 0; i < count; i++) {
        if (chunks[i].in)
            make_input(chunks[i].in);
        if (chunks[i].out)
            make_output(chunks[i].out, chunks[i].last);
    }
    return count;
}

/*
 * buckets_plan.c - which parameters make a bucket, and how much memory the buckets need.
 *
 * The plan visits the parameters from the last to the first, as the backward pass does. A parameter that is larger than
 * a bucket is cut into tiles of rows that end on block boundaries, each a bucket of its own.
 */
#include "trainer/exchange/buckets_internal.h"

#include "io/error.h"
#include "trainer/base/counted_alloc.h"

#include <stdlib.h>

#define BLOCK            256u /* tiles end on multiples of it: the longest block that divides rows */
#define BUCKET_BYTES_MIN (1u << 20)
#define BUCKET_BYTES_MAX (25u << 20)
#define SPARE_SLOTS      1u  /* buckets in the exchange while others fill */
#define SMALL_SHARE      16u /* a bucket is small if the largest one has at least this many times its elements */

static fgt_bucket *add_bucket(fgt_buckets *b, uint64_t begin, uint64_t count, size_t tiles) {
    if (b->count == b->capacity) {
        size_t capacity = 2 * b->capacity + 64;
        fgt_bucket *grown = realloc(b->bucket, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        b->bucket = grown;
        b->capacity = capacity;
    }
    b->bucket[b->count] = (fgt_bucket){.begin = begin, .count = count, .tiles = tiles};
    b->max_count = b->max_count > count ? b->max_count : count;
    return &b->bucket[b->count++];
}

static size_t gcd(size_t a, size_t c) {
    while (c) {
        size_t rest = a % c;
        a = c;
        c = rest;
    }
    return a;
}

/* Rows of a tile of at most `most` elements, or of as few as end on a block boundary. */
static size_t tile_rows(const fgt_param *p, uint64_t most) {
    size_t step = BLOCK / gcd(p->cols, BLOCK), rows = (size_t)(most / p->cols) / step * step;
    return rows > step ? rows : step;
}

/* A method or an optimizer that needs whole tensors refuses a range of one. */
static bool can_split(const fgt_buckets *b, const fgt_param *p, size_t number, size_t rows) {
    size_t bytes;
    if ((b->options.full_gradient && b->options.passes <= 1) || b->options.packed ||
        !frug_optimizer_can_split(b->options.optimizer, number))
        return false;
    if (!b->options.reducer)
        return true;
    return frug_compressor_bound(frug_reducer_compressor(b->options.reducer),
                                 (frug_range){p->tensor.offset, rows * p->cols}, &bytes) == FRUG_OK;
}

static int plan_tiles(fgt_buckets *b, fgt_param *p, bool target) {
    p->bucket = b->count;
    for (size_t row = 0; row < p->rows; row += p->tile) {
        fgt_bucket *k = add_bucket(b, p->tensor.offset + row * p->cols, fgt_tile_rows(p, row) * p->cols, 1);
        if (!k)
            return -1;
        k->targets = target;
    }
    return 0;
}

/* Whether a parameter can be added at the front of the last bucket: no frozen parameter may be between, and measured
 * tensors do not share a bucket with others. */
static bool can_join(const fgt_bucket *last, const fgt_param *p, bool target, uint64_t most) {
    const fgt_param *after = p->next;
    return !(after && after->frozen) && last->targets == target && last->begin + last->count - p->tensor.offset <= most;
}

/* Number of the i-th of `count` trainable parameters, from the last on, in the layout of the optimizer. */
static size_t layout_number(const fgt_buckets *b, const fgt_param *p, size_t i, size_t count) {
    size_t number = 0;
    if (!b->options.all_numbered)
        return count - 1 - i;
    for (const fgt_param *q = b->options.graph->params; q != p; q = q->next)
        number++;
    return number;
}

/* params: from the last to the first of the layout. Adjacent small ones share a bucket. */
static int plan_buckets(fgt_buckets *b, fgt_param **params, size_t count, uint64_t most) {
    bool open = false; /* the last bucket can take more */
    for (size_t i = 0; i < count; i++) {
        fgt_param *p = params[i];
        uint64_t size = (uint64_t)p->rows * p->cols;
        size_t number = layout_number(b, p, i, count);
        bool target = b->options.optimizer && !frug_optimizer_can_split(b->options.optimizer, number);
        p->tile = p->rows;
        if (size > most) {
            size_t rows = tile_rows(p, most);
            if (rows < p->rows && can_split(b, p, number, rows))
                p->tile = rows;
            open = false;
        }
        fgt_bucket *last = open ? &b->bucket[b->count - 1] : NULL;
        if (last && can_join(last, p, target, most)) {
            last->count += last->begin - p->tensor.offset;
            last->begin = p->tensor.offset;
            last->tiles++;
            p->bucket = b->count - 1;
            b->max_count = b->max_count > last->count ? b->max_count : last->count;
        } else {
            if (plan_tiles(b, p, target) != 0)
                return -1;
            open = size <= most;
        }
    }
    return 0;
}

/* Maximum of small or of large buckets that are open at once in a backward pass, which visits the nodes from the last
 * to the first. */
static size_t max_open_buckets(fgt_buckets *b, bool small) {
    size_t open = 0, most = 0;
    for (const fgt_node *node = b->options.graph->last; node; node = node->previous)
        for (int i = 0; i < 3; i++) {
            const fgt_param *p = node->param[i];
            for (size_t row = 0; p && !p->frozen && row < p->rows; row += p->tile) {
                fgt_bucket *k = &b->bucket[p->bucket + row / p->tile];
                if ((k->count <= b->small_count) != small)
                    continue;
                open += k->closed_tiles == 0;
                most = open > most ? open : most;
                open -= ++k->closed_tiles == k->tiles;
            }
        }
    for (size_t i = 0; i < b->count; i++)
        b->bucket[i].closed_tiles = 0;
    return most;
}

static int plan_params(fgt_buckets *b) {
    const fgt_graph *g = b->options.graph;
    size_t count = 0;
    for (const fgt_param *p = g->params; p; p = p->next)
        count += !p->frozen;
    fgt_param **params = calloc(count + 1, sizeof *params);
    if (!params)
        return -1;
    size_t i = count;
    for (fgt_param *p = g->params; p; p = p->next)
        if (!p->frozen)
            params[--i] = p;
    uint64_t bytes = b->options.bytes;
    if (bytes == 0) {
        bytes = 4 * g->elements / 64;
        bytes = bytes < BUCKET_BYTES_MIN ? BUCKET_BYTES_MIN : bytes > BUCKET_BYTES_MAX ? BUCKET_BYTES_MAX : bytes;
    }
    int status = plan_buckets(b, params, count, bytes / sizeof(float) ? bytes / sizeof(float) : 1);
    free(params);
    return status;
}

int fgt_buckets_assign_packed(fgt_graph *g, uint64_t bytes) {
    fgt_buckets plan = {.options = {.graph = g, .bytes = bytes, .packed = true}};
    int status = plan_params(&plan);
    free(plan.bucket);
    return status == 0 ? FGIO_EXIT_OK : fgio_error("not enough memory for buckets");
}

/* Offsets of the measurements of buckets in the vector. */
static int plan_measured(fgt_buckets *b) {
    uint64_t at = 0;
    for (const fgt_param *p = b->options.graph->params; p && b->options.measured; p = p->next) {
        if (p->frozen || p->head)
            continue;
        uint64_t some = b->options.measured_each < (uint64_t)p->rows * p->cols ? b->options.measured_each : 0;
        fgt_bucket *k = &b->bucket[p->bucket];
        k->measured_offset = k->measured_count ? k->measured_offset : at;
        k->measured_count += some;
        at += some;
    }
    b->measured_vector =
        b->options.measured ? fgt_counted_alloc(FGT_USE_GRADIENTS, (size_t)b->options.measured * sizeof(float)) : NULL;
    return b->options.measured && !b->measured_vector ? -1 : 0;
}

void fgt_buckets_set_ranges(fgt_buckets *b) {
    for (size_t i = 0; i < b->count; i++)
        b->bucket[i].sent =
            b->options.packed ? (frug_range){UINT64_MAX, 0} : (frug_range){b->bucket[i].begin, b->bucket[i].count};
    for (const fgt_param *p = b->options.graph->params; p && b->options.packed; p = p->next) {
        frug_range *sent = &b->bucket[p->bucket].sent;
        sent->begin = p->frozen || sent->begin < p->packed_offset ? sent->begin : p->packed_offset;
        sent->count += p->packed_count;
    }
}

int fgt_buckets_plan(fgt_buckets *b) {
    if (plan_params(b) != 0 || plan_measured(b) != 0)
        return -1;
    fgt_buckets_set_ranges(b);
    return 0;
}

/* The full gradient: one bucket after the other. */
static int alloc_full_gradient(fgt_buckets *b) {
    uint64_t floats = 0;
    for (size_t i = 0; i < b->count; i++) {
        b->bucket[i].full_offset = floats;
        floats += (b->bucket[i].count + 15) / 16 * 16;
    }
    b->full_gradient = fgt_counted_alloc(FGT_USE_GRADIENTS, (size_t)floats * sizeof(float));
    return b->full_gradient ? 0 : -1;
}

typedef struct slot_plan {
    size_t slots, floats; /* of a slot */
} slot_plan;

static slot_plan plan_slots(fgt_buckets *b, bool small) {
    size_t open = max_open_buckets(b, small), count = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < b->count; i++)
        if ((b->bucket[i].count <= b->small_count) == small) {
            count++;
            most = b->bucket[i].count > most ? b->bucket[i].count : most;
        }
    const bool passes = b->options.passes > 1;
    return (slot_plan){open + (count > open && !passes ? SPARE_SLOTS : 0), (size_t)(most + 15) / 16 * 16};
}

static size_t slot_floats(const slot_plan *plan) {
    return plan->slots * plan->floats;
}

/* Returns the end of the pool's slots. */
static float *fill_pool(fgt_slot_pool *pool, const slot_plan *plan, float *begin) {
    pool->begin = begin;
    for (pool->free_count = 0; pool->free_count < plan->slots; pool->free_count++)
        pool->free_slots[pool->free_count] = begin + pool->free_count * plan->floats;
    return begin + slot_floats(plan);
}

/* Gives small buckets slots of their own if that saves memory: one that is open beside a large one takes as much as
 * that otherwise. */
static void use_small_slots(fgt_buckets *b, slot_plan *large, slot_plan *small) {
    b->small_count = b->max_count / SMALL_SHARE;
    const slot_plan alone = plan_slots(b, false), besides = plan_slots(b, true);
    if (slot_floats(&alone) + slot_floats(&besides) < slot_floats(large)) {
        *large = alone;
        *small = besides;
    } else {
        b->small_count = 0;
    }
}

int fgt_buckets_alloc(fgt_buckets *b) {
    const bool passes = b->options.passes > 1;
    if (b->options.packed) {
        b->packed_weights = fgt_counted_alloc(FGT_USE_GRADIENTS, (size_t)b->max_count * sizeof(float));
        if (!b->packed_weights)
            return -1;
    }
    if ((b->options.full_gradient || passes) && alloc_full_gradient(b) != 0)
        return -1;
    if (b->options.full_gradient && !passes)
        return 0;
    slot_plan large = plan_slots(b, false), small = {0};
    use_small_slots(b, &large, &small);
    if (large.slots > FGT_SLOTS_MAX || small.slots > FGT_SLOTS_MAX)
        return -1;
    b->memory = fgt_counted_alloc(FGT_USE_GRADIENTS, (slot_floats(&large) + slot_floats(&small)) * sizeof(float));
    if (!b->memory)
        return -1;
    float *end = fill_pool(&b->large, &large, b->memory);
    fill_pool(&b->small, &small, end);
    return 0;
}

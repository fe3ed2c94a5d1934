/*
 * buckets_plan.c - which parameters make a bucket, and how much memory all of them take.
 *
 * The plan goes through the parameters from the last to the first, as the backward pass does. A parameter that is
 * larger than a bucket is cut into tiles of rows that end on block boundaries, each a bucket of its own.
 */
#include "trainer/exchange/buckets_internal.h"

#include "trainer/base/counted_alloc.h"

#include <stdlib.h>

#define BLOCK    256u /* tiles end on multiples: the longest block that cuts rows */
#define SMALLEST (1u << 20)
#define LARGEST  (25u << 20)
#define SPARE    1u /* buckets on their way while others fill */

static fgt_bucket *add_bucket(fgt_buckets *b, uint64_t begin, uint64_t count, size_t tiles) {
    if (b->count == b->room) {
        size_t room = 2 * b->room + 64;
        fgt_bucket *grown = realloc(b->bucket, room * sizeof *grown);
        if (!grown)
            return NULL;
        b->bucket = grown;
        b->room = room;
    }
    b->bucket[b->count] = (fgt_bucket){.begin = begin, .count = count, .tiles = tiles};
    b->longest = b->longest > count ? b->longest : count;
    return &b->bucket[b->count++];
}

static size_t common_divisor(size_t a, size_t c) {
    while (c) {
        size_t rest = a % c;
        a = c;
        c = rest;
    }
    return a;
}

/* Rows of a tile of at most `most` elements, or of as few as end on a block boundary. */
static size_t tile_rows(const fgt_param *p, uint64_t most) {
    size_t step = BLOCK / common_divisor(p->cols, BLOCK), rows = (size_t)(most / p->cols) / step * step;
    return rows > step ? rows : step;
}

/* A method or an optimiser that looks at whole tensors refuses a part of one. */
static bool may_cut(const fgt_buckets *b, const fgt_param *p, size_t number, size_t rows) {
    size_t bytes;
    if ((b->want.whole && b->want.passes <= 1) || !frug_optimizer_cuts(b->want.optimizer, number))
        return false;
    if (!b->want.reducer)
        return true;
    return frug_compressor_bound(frug_reducer_compressor(b->want.reducer), p->tensor.offset, rows * p->cols, &bytes) ==
           FRUG_OK;
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

/* Whether the last bucket takes another parameter, in front of all that it has: nothing frozen may lie between, and
 * what is measured keeps to itself. */
static bool joins(const fgt_bucket *last, const fgt_param *p, bool target, uint64_t most) {
    const fgt_param *after = p->next;
    return !(after && after->frozen) && last->targets == target && last->begin + last->count - p->tensor.offset <= most;
}

/* params: from the last to the first of the layout. Small ones that lie side by side share a bucket. */
static int plan(fgt_buckets *b, fgt_param **params, size_t count, uint64_t most) {
    bool open = false; /* the last bucket takes more */
    for (size_t i = 0; i < count; i++) {
        fgt_param *p = params[i];
        uint64_t size = (uint64_t)p->rows * p->cols;
        bool target = !frug_optimizer_cuts(b->want.optimizer, count - 1 - i);
        p->tile = p->rows;
        if (size > most) {
            size_t rows = tile_rows(p, most);
            if (rows < p->rows && may_cut(b, p, count - 1 - i, rows))
                p->tile = rows;
            open = false;
        }
        fgt_bucket *last = open ? &b->bucket[b->count - 1] : NULL;
        if (last && joins(last, p, target, most)) {
            last->count += last->begin - p->tensor.offset;
            last->begin = p->tensor.offset;
            last->tiles++;
            p->bucket = b->count - 1;
            b->longest = b->longest > last->count ? b->longest : last->count;
        } else {
            if (plan_tiles(b, p, target) != 0)
                return -1;
            open = size <= most;
        }
    }
    return 0;
}

/* How many buckets stand open at once in a backward pass, which comes to the nodes from the last to the first. */
static size_t most_open(fgt_buckets *b) {
    size_t open = 0, most = 1;
    for (const fgt_node *node = b->want.graph->last; node; node = node->previous)
        for (int i = 0; i < 3; i++) {
            const fgt_param *p = node->param[i];
            for (size_t row = 0; p && !p->frozen && row < p->rows; row += p->tile) {
                fgt_bucket *k = &b->bucket[p->bucket + row / p->tile];
                open += k->closed == 0;
                most = open > most ? open : most;
                open -= ++k->closed == k->tiles;
            }
        }
    for (size_t i = 0; i < b->count; i++)
        b->bucket[i].closed = 0;
    return most;
}

static int plan_all(fgt_buckets *b) {
    const fgt_graph *g = b->want.graph;
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
    uint64_t bytes = b->want.bytes;
    if (bytes == 0) {
        bytes = 4 * g->elements / 64;
        bytes = bytes < SMALLEST ? SMALLEST : bytes > LARGEST ? LARGEST : bytes;
    }
    int status = plan(b, params, count, bytes / sizeof(float) ? bytes / sizeof(float) : 1);
    free(params);
    return status;
}

/* Where the measurements of buckets lie in the vector. */
static int plan_measured(fgt_buckets *b) {
    uint64_t at = 0;
    for (const fgt_param *p = b->want.graph->params; p && b->want.measured; p = p->next) {
        if (p->frozen || p->head)
            continue;
        uint64_t some = b->want.measured_each < (uint64_t)p->rows * p->cols ? b->want.measured_each : 0;
        fgt_bucket *k = &b->bucket[p->bucket];
        k->at = k->some ? k->at : at;
        k->some += some;
        at += some;
    }
    b->vector = b->want.measured ? fgt_hold(FGT_USE_GRADIENTS, (size_t)b->want.measured * sizeof(float)) : NULL;
    return b->want.measured && !b->vector ? -1 : 0;
}

int fgt_buckets_plan(fgt_buckets *b) {
    return plan_all(b) == 0 && plan_measured(b) == 0 ? 0 : -1;
}

/* The whole gradient: one bucket after the other. */
static int take_whole(fgt_buckets *b) {
    uint64_t floats = 0;
    for (size_t i = 0; i < b->count; i++) {
        b->bucket[i].home = floats;
        floats += (b->bucket[i].count + 15) / 16 * 16;
    }
    b->whole = fgt_hold(FGT_USE_GRADIENTS, (size_t)floats * sizeof(float));
    return b->whole ? 0 : -1;
}

int fgt_buckets_take_memory(fgt_buckets *b) {
    const bool passes = b->want.passes > 1;
    if ((b->want.whole || passes) && take_whole(b) != 0)
        return -1;
    if (b->want.whole && !passes)
        return 0;
    size_t open = most_open(b), slots = open + (b->count > open && !passes ? SPARE : 0);
    size_t each = (size_t)(b->longest + 15) / 16 * 16;
    if (slots > FGT_MOST_SLOTS)
        return -1;
    b->memory = fgt_hold(FGT_USE_GRADIENTS, slots * each * sizeof(float));
    for (b->slots = 0; b->memory && b->slots < slots; b->slots++)
        b->idle[b->idles++] = b->memory + b->slots * each;
    return b->memory ? 0 : -1;
}

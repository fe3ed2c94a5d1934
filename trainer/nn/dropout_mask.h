/*
 * dropout_mask.h - which elements dropout drops: a function of (seed, step, worker, node, place), drawn as 16 bits an
 * element, four elements to a random word, so that backward can draw the same mask again. The place is that in the
 * batch of the step, so that micro-batches drop what the whole batch would.
 */
#ifndef FGT_DROPOUT_MASK_H
#define FGT_DROPOUT_MASK_H

#include "trainer/nn/graph.h"
#include "trainer/base/keyed_random.h"

typedef struct fgt_drop {
    uint64_t key;
    uint32_t limit; /* a draw below it is dropped */
    float scale;    /* of what stays: 1 / (1 - rate) */
} fgt_drop;

/** rate in [0, 1). */
static inline fgt_drop fgt_drop_of(const fgt_graph *g, const fgt_node *node, float rate) {
    uint64_t stream = FGT_STREAM_DROPOUT | (uint64_t)node->number << 8 | g->worker << 40;
    uint32_t limit = (uint32_t)(rate * 65536.0f + 0.5f);
    limit = limit < 65535 ? limit : 65535;
    return (fgt_drop){fgt_random(g->seed, stream, g->step), limit, 65536.0f / (float)(65536 - limit)};
}

/** Draws of four elements, 16 bits each from the lowest. */
static inline uint64_t fgt_drop_word(const fgt_drop *drop, uint64_t four) {
    return fgt_mix(drop->key ^ four);
}

static inline bool fgt_dropped(const fgt_drop *drop, uint64_t word, size_t i) {
    return (uint32_t)(word >> 16 * i & 0xFFFF) < drop->limit;
}

#endif

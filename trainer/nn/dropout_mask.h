/*
 * dropout_mask.h - which elements dropout sets to zero: a function of (seed, step, worker, node, index), 16 random bits
 * per element and four elements per random word, so that backward can draw the same mask again. The index is that in
 * the whole batch of the step, so that micro-batches drop the same elements as the whole batch.
 */
#ifndef FGT_DROPOUT_MASK_H
#define FGT_DROPOUT_MASK_H

#include "trainer/nn/graph.h"
#include "trainer/base/keyed_random.h"

typedef struct fgt_dropout_mask {
    uint64_t key;
    uint32_t threshold; /* a draw below it drops the element */
    float scale;        /* of the other elements: 1 / (1 - rate) */
} fgt_dropout_mask;

/** rate in [0, 1). */
static inline fgt_dropout_mask fgt_dropout_mask_init(const fgt_graph *g, const fgt_node *node, float rate) {
    uint64_t stream = FGT_STREAM_DROPOUT | (uint64_t)node->number << 8 | g->worker << 40;
    uint32_t threshold = (uint32_t)(rate * 65536.0f + 0.5f);
    threshold = threshold < 65535 ? threshold : 65535;
    return (fgt_dropout_mask){fgt_random(g->seed, stream, g->step), threshold, 65536.0f / (float)(65536 - threshold)};
}

/** Draws of four elements, 16 bits each from the lowest. */
static inline uint64_t fgt_dropout_mask_word(const fgt_dropout_mask *mask, uint64_t quad) {
    return fgt_mix(mask->key ^ quad);
}

static inline bool fgt_dropout_is_dropped(const fgt_dropout_mask *mask, uint64_t word, size_t i) {
    return (uint32_t)(word >> 16 * i & 0xFFFF) < mask->threshold;
}

#endif

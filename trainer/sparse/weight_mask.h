/*
 * weight_mask.h - which weights of a model are trained, and the model without the others.
 *
 * A mask has one bit for each weight of a parameter, 1 where it is trained; a pruned weight is 0. Parameters without a
 * mask are trained as a whole. The *packed* buffer is the flat buffer without pruned weights and without gaps:
 * gradients are exchanged and optimizer states stored in its order, so nothing is sent or stored for a pruned weight.
 */
#ifndef FGT_WEIGHT_MASK_H
#define FGT_WEIGHT_MASK_H

#include "trainer/nn/graph.h"

static inline bool fgt_mask_bit(const uint8_t *mask, size_t i) {
    return mask[i / 8] >> i % 8 & 1;
}

static inline void fgt_mask_set(uint8_t *mask, size_t i) {
    mask[i / 8] |= (uint8_t)(1u << i % 8);
}

static inline void fgt_mask_clear(uint8_t *mask, size_t i) {
    mask[i / 8] &= (uint8_t) ~(1u << i % 8);
}

/** Whether single weights of a parameter may be pruned: a matrix or kernel that is trained, but no embedding. */
bool fgt_mask_is_for(const fgt_param *p);

/** Bytes of the mask of a parameter. */
size_t fgt_mask_bytes(const fgt_param *p);

/** Sets offset and length of all parameters in the packed buffer, by their masks; and zeros pruned weights, also those
 * of a second flat buffer. */
void fgt_mask_apply(fgt_graph *g, float *weights);

/** Length of the packed buffer. */
uint64_t fgt_mask_packed(const fgt_graph *g);

/** The packed buffer as a layout: matrices with a mask have one row. Returns an exit status. */
int fgt_mask_layout(const fgt_graph *g, frug_layout **layout);

/** The same with the parameters of each bucket joined to one matrix of one row, named after the first and the last: one
 * section of a frame, where each would have a header and padding of its own. */
int fgt_mask_layout_joined(const fgt_graph *g, frug_layout **layout);

/** The next trained parameter after p, or NULL. */
const fgt_param *fgt_mask_next(const fgt_param *p);

/** Copies the trained ones of all numbers of a parameter to `packed`, which may be the same memory; and back. */
void fgt_mask_pack(const fgt_param *p, const float *all, float *packed);
void fgt_mask_unpack(const fgt_param *p, const float *packed, float *all);

/** For each trained weight of a parameter its number among those that an earlier mask had; UINT64_MAX: none. */
void fgt_mask_sources(const fgt_param *p, const uint8_t *before, uint64_t *source);

#endif

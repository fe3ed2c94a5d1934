/* shards.h - divide a range into one shard per rank. */
#ifndef FRUGI_SHARDS_H
#define FRUGI_SHARDS_H

#include "compress/compressor_access.h"

/**
 * Divide a range into contiguous shards, one per rank. Some may be empty.
 *
 *   begin, count   inside the layout
 *   cut            size + 1 numbers: shard i is the elements cut[i] .. cut[i + 1] - 1
 *
 * By blocks, shards differ by at most one block. By units, no tensor and no attention module is divided. All ranks
 * compute the same cuts. Cost: O(tensors + size).
 */
void frugi_shards_cut(const frug_compressor *c, uint64_t begin, uint64_t count, int size, uint64_t *cut);

#endif

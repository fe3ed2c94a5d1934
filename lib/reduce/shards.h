/* shards.h - who owns what: a range cut into one part per worker. */
#ifndef FRUGI_SHARDS_H
#define FRUGI_SHARDS_H

#include "compress/compressor.h"

/**
 * Cut a range into contiguous parts, one per worker, of which some may be empty.
 *
 *   begin, count   inside the layout
 *   cut            size + 1 numbers: part i is the elements cut[i] .. cut[i + 1] - 1
 *
 * Where sections go by blocks, parts differ by at most one block. Where units compete, no tensor and no attention
 * module is cut. Every worker gets the same cuts. Cost: O(tensors + size).
 */
void frugi_shards_cut(const frug_compressor *c, uint64_t begin, uint64_t count, int size, uint64_t *cut);

#endif

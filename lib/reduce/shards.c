/*
 * shards.c - divide a range into shards that can be compressed independently, as evenly as possible.
 *
 * By blocks: every shard gets the same number of blocks or one more, blocks of dense tensors included. By units: the
 * tensors of a selection group, and all between them, stay together; each group goes to the shard in which its middle
 * would lie if shards were equal. Both pass over the tensors once, in order.
 */
#include "reduce/shards.h"

static uint64_t max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* The first block of shard i. */
static uint64_t first_block(uint64_t blocks, uint64_t size, uint64_t i) {
    return blocks / size * i + (i < blocks % size ? i : blocks % size);
}

static uint64_t count_blocks(const frugi_range_iter *it, uint64_t block) {
    return (it->to - it->from - 1) / block + 1;
}

static void cut_blocks(const frug_compressor *c, uint64_t begin, uint64_t end, uint64_t size, uint64_t *cut) {
    const frugi_partition *p = frugi_compressor_partition(c);
    uint64_t blocks = 0, before = 0, shard = 1, block = frugi_compressor_config(c)->block;
    frugi_range_iter it = frugi_range_start(p, begin, end);
    while (frugi_range_next(&it))
        blocks += count_blocks(&it, block);
    while (shard < size && first_block(blocks, size, shard) == 0)
        cut[shard++] = begin;
    it = frugi_range_start(p, begin, end);
    while (frugi_range_next(&it)) {
        uint64_t here = count_blocks(&it, block);
        for (; shard < size && first_block(blocks, size, shard) < before + here; shard++)
            cut[shard] = it.from + (first_block(blocks, size, shard) - before) * block;
        before += here;
    }
    while (shard < size)
        cut[shard++] = end;
}

static void cut_units(const frug_compressor *c, uint64_t begin, uint64_t end, uint64_t size, uint64_t *cut) {
    const frugi_partition *p = frugi_compressor_partition(c);
    uint64_t total = 0, before = 0, shard = 1;
    frugi_range_iter it = frugi_range_start(p, begin, end);
    while (frugi_range_next(&it))
        total += it.to - it.from;
    it = frugi_range_start(p, begin, end);
    for (bool more = frugi_range_next(&it); more;) {
        uint64_t from = it.from, groups_end = 0, group_elements = 0;
        do {
            group_elements += it.to - it.from;
            groups_end = max_u64(groups_end, frugi_select_group_end(c, it.view));
            more = frugi_range_next(&it);
        } while (more && it.view->begin < groups_end);
        double middle = ((double)before + (double)group_elements / 2) / (double)total;
        for (; shard < size && (double)shard <= middle * (double)size; shard++)
            cut[shard] = before ? from : begin;
        before += group_elements;
    }
    while (shard < size)
        cut[shard++] = end;
}

void frugi_shards_cut(const frug_compressor *c, uint64_t begin, uint64_t count, int size, uint64_t *cut) {
    cut[0] = begin;
    cut[size] = begin + count;
    (frugi_compressor_by_units(c) ? cut_units : cut_blocks)(c, begin, begin + count, (uint64_t)size, cut);
}

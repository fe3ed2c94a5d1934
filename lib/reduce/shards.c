/*
 * shards.c - divide a range into shards that can be compressed independently, as evenly as possible.
 *
 * By blocks: every shard gets the same number of blocks or one more, blocks of dense tensors included. By units: the
 * tensors of a selection group, and all between them, stay together; each group goes to the shard in which its middle
 * would lie if shards were equal. Both pass over the tensors once, in order.
 */
#include "reduce/shards.h"

/* The intersection of a tensor with the range. */
typedef struct range {
    uint64_t from, to;
} range;

static range intersect(const frugi_tensor_view *p, uint64_t begin, uint64_t end) {
    return (range){p->begin > begin ? p->begin : begin, p->begin + p->count < end ? p->begin + p->count : end};
}

static uint64_t count_blocks(const frug_compressor *c, range s) {
    return (s.to - s.from - 1) / c->config.block + 1;
}

/* The first block of shard i. */
static uint64_t first_block(uint64_t blocks, uint64_t size, uint64_t i) {
    return blocks / size * i + (i < blocks % size ? i : blocks % size);
}

static void cut_blocks(const frug_compressor *c, uint64_t begin, uint64_t end, uint64_t size, uint64_t *cut) {
    uint64_t blocks = 0, before = 0, shard = 1;
    size_t first = frugi_view_at(&c->partition, begin);
    for (size_t i = first; i < c->partition.views && c->partition.view[i].begin < end; i++)
        blocks += count_blocks(c, intersect(&c->partition.view[i], begin, end));
    while (shard < size && first_block(blocks, size, shard) == 0)
        cut[shard++] = begin;
    for (size_t i = first; i < c->partition.views && c->partition.view[i].begin < end; i++) {
        range s = intersect(&c->partition.view[i], begin, end);
        uint64_t here = count_blocks(c, s);
        for (; shard < size && first_block(blocks, size, shard) < before + here; shard++)
            cut[shard] = s.from + (first_block(blocks, size, shard) - before) * c->config.block;
        before += here;
    }
    while (shard < size)
        cut[shard++] = end;
}

/* The end of the last tensor in the selection group of a tensor. */
static uint64_t group_end(const frug_compressor *c, const frugi_tensor_view *p) {
    const frugi_select_group *k = &c->select_group[p->select_group];
    const frugi_tensor_view *last = p->dense ? p : &c->partition.view[c->member[k->first + k->views - 1]];
    return last->begin + last->count;
}

static void cut_units(const frug_compressor *c, uint64_t begin, uint64_t end, uint64_t size, uint64_t *cut) {
    uint64_t total = 0, before = 0, shard = 1;
    size_t first = frugi_view_at(&c->partition, begin);
    for (size_t i = first; i < c->partition.views && c->partition.view[i].begin < end; i++)
        total += intersect(&c->partition.view[i], begin, end).to - intersect(&c->partition.view[i], begin, end).from;
    for (size_t i = first; i < c->partition.views && c->partition.view[i].begin < end;) {
        uint64_t from = intersect(&c->partition.view[i], begin, end).from, groups_end = 0, group_elements = 0;
        do {
            range s = intersect(&c->partition.view[i], begin, end);
            uint64_t end_of_group = group_end(c, &c->partition.view[i++]);
            group_elements += s.to - s.from;
            groups_end = end_of_group > groups_end ? end_of_group : groups_end;
        } while (i < c->partition.views && c->partition.view[i].begin < end && c->partition.view[i].begin < groups_end);
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
    (c->by_units ? cut_units : cut_blocks)(c, begin, begin + count, (uint64_t)size, cut);
}

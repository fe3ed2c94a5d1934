/*
 * shards.c - cut a range into parts that can be compressed on their own, as even as that allows.
 *
 * By blocks: all blocks of the range are counted through, the dense tensors' too, and every part gets the same number
 * or one more. By units: tensors that compete with each other, and all between them, make a lump; each lump goes to the
 * part in which its middle would lie if parts were equal. Both go through the tensors once, in order.
 */
#include "reduce/shards.h"

/* The part of a tensor that lies in the range. */
typedef struct stretch {
    uint64_t from, to;
} stretch;

static stretch within(const frugi_piece *p, uint64_t begin, uint64_t end) {
    return (stretch){p->begin > begin ? p->begin : begin, p->begin + p->count < end ? p->begin + p->count : end};
}

static uint64_t blocks_of(const frug_compressor *c, stretch s) {
    return (s.to - s.from - 1) / c->config.block + 1;
}

/* The first block of part i of so many blocks. */
static uint64_t first_of(uint64_t blocks, uint64_t size, uint64_t i) {
    return blocks / size * i + (i < blocks % size ? i : blocks % size);
}

static void cut_blocks(const frug_compressor *c, uint64_t begin, uint64_t end, uint64_t size, uint64_t *cut) {
    uint64_t blocks = 0, before = 0, part = 1;
    size_t first = frugi_piece_at(c, begin);
    for (size_t i = first; i < c->pieces && c->piece[i].begin < end; i++)
        blocks += blocks_of(c, within(&c->piece[i], begin, end));
    while (part < size && first_of(blocks, size, part) == 0)
        cut[part++] = begin;
    for (size_t i = first; i < c->pieces && c->piece[i].begin < end; i++) {
        stretch s = within(&c->piece[i], begin, end);
        uint64_t here = blocks_of(c, s);
        for (; part < size && first_of(blocks, size, part) < before + here; part++)
            cut[part] = s.from + (first_of(blocks, size, part) - before) * c->config.block;
        before += here;
    }
    while (part < size)
        cut[part++] = end;
}

/* Where the last tensor ends that competes with this one. */
static uint64_t reach_of(const frug_compressor *c, const frugi_piece *p) {
    const frugi_contest *k = &c->contest[p->contest];
    const frugi_piece *last = p->dense ? p : &c->piece[c->member[k->first + k->pieces - 1]];
    return last->begin + last->count;
}

static void cut_units(const frug_compressor *c, uint64_t begin, uint64_t end, uint64_t size, uint64_t *cut) {
    uint64_t total = 0, before = 0, part = 1;
    size_t first = frugi_piece_at(c, begin);
    for (size_t i = first; i < c->pieces && c->piece[i].begin < end; i++)
        total += within(&c->piece[i], begin, end).to - within(&c->piece[i], begin, end).from;
    for (size_t i = first; i < c->pieces && c->piece[i].begin < end;) {
        uint64_t from = within(&c->piece[i], begin, end).from, reach = 0, lump = 0;
        do {
            stretch s = within(&c->piece[i], begin, end);
            uint64_t its = reach_of(c, &c->piece[i++]);
            lump += s.to - s.from;
            reach = its > reach ? its : reach;
        } while (i < c->pieces && c->piece[i].begin < end && c->piece[i].begin < reach);
        double middle = ((double)before + (double)lump / 2) / (double)total;
        for (; part < size && (double)part <= middle * (double)size; part++)
            cut[part] = before ? from : begin;
        before += lump;
    }
    while (part < size)
        cut[part++] = end;
}

void frugi_shards_cut(const frug_compressor *c, uint64_t begin, uint64_t count, int size, uint64_t *cut) {
    cut[0] = begin;
    cut[size] = begin + count;
    (c->by_units ? cut_units : cut_blocks)(c, begin, begin + count, (uint64_t)size, cut);
}

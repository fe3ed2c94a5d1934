/* index_gaps.c - places of a range as bytes: a gap a byte, tensor by tensor. */
#include "reduce/index_gaps.h"

#include "base/float_bits.h"

#define FURTHER 255u

/* A tensor's part of the range, relative to the range. */
typedef struct part {
    uint64_t from, to;
    bool dense;
} part;

static part part_of(const frugi_piece *p, uint64_t begin, uint64_t count) {
    uint64_t end = begin + count, to = p->begin + p->count < end ? p->begin + p->count : end;
    return (part){.from = p->begin > begin ? p->begin - begin : 0, .to = to - begin, .dense = p->dense};
}

size_t frugi_gaps_bound(const frug_compressor *c, uint64_t count) {
    return count + count / FURTHER + 4 * c->pieces;
}

/* The places of one tensor, as many as lie in it; returns how many. */
static uint64_t write_part(part p, const uint32_t *place, uint64_t n, unsigned char *out, size_t *bytes) {
    uint64_t k = 0, next = p.from;
    size_t at = 4;
    for (; k < n && place[k] < p.to; k++) {
        uint64_t gap = place[k] - next;
        next = (uint64_t)place[k] + 1;
        if (p.dense)
            continue;
        for (; gap >= FURTHER; gap -= FURTHER)
            out[at++] = FURTHER;
        out[at++] = (unsigned char)gap;
    }
    if (!p.dense)
        frugi_put32(out, (uint32_t)k);
    *bytes = p.dense ? 0 : at;
    return k;
}

size_t frugi_gaps_encode(const frug_compressor *c, uint64_t begin, uint64_t count, const uint32_t *place, uint64_t n,
                         unsigned char *out) {
    uint64_t done = 0;
    size_t at = 0, bytes = 0;
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < begin + count; i++, at += bytes)
        done += write_part(part_of(&c->piece[i], begin, count), place + done, n - done, out + at, &bytes);
    return at;
}

/* The places of one tensor; returns bytes read, or 0 for what no encoder writes. */
static size_t read_part(part p, const unsigned char *in, size_t bytes, uint32_t *place, uint64_t *n) {
    size_t at = 4;
    uint64_t next = p.from;
    if (bytes < 4 || frugi_get32(in) > p.to - p.from)
        return 0;
    *n = frugi_get32(in);
    for (uint64_t k = 0; k < *n; k++, next++) {
        for (; at < bytes && in[at] == FURTHER; at++)
            next += FURTHER;
        if (at == bytes || next + in[at] >= p.to)
            return 0;
        next += in[at++];
        place[k] = (uint32_t)next;
    }
    return at;
}

int frugi_gaps_decode(const frug_compressor *c, uint64_t begin, uint64_t count, const unsigned char *in, size_t bytes,
                      uint32_t *place, uint64_t n) {
    uint64_t done = 0;
    size_t at = 0;
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < begin + count; i++) {
        part p = part_of(&c->piece[i], begin, count);
        uint64_t here = 0;
        for (uint64_t e = p.from; p.dense && e < p.to; e++)
            place[done++] = (uint32_t)e;
        if (p.dense)
            continue;
        size_t read = read_part(p, in + at, bytes - at, place + done, &here);
        if (!read)
            return 0;
        at += read;
        done += here;
    }
    return at == bytes && done == n;
}

/* index_gaps.c - encode the indices of a range as gaps of one byte, tensor by tensor. */
#include "reduce/index_gaps.h"

#include "base/float_bits.h"

#define GAP_CONTINUES 255u

/* The intersection of a tensor with the range, relative to the range. */
typedef struct range {
    uint64_t from, to;
    bool dense;
} range;

static range tensor_range(const frugi_range_iter *it) {
    return (range){.from = it->from - it->begin, .to = it->to - it->begin, .dense = it->view->dense};
}

size_t frugi_gaps_bound(const frug_compressor *c, uint64_t count) {
    return count + count / GAP_CONTINUES + 4 * frugi_compressor_partition(c)->views;
}

/* Encode the indices that lie in one tensor; returns how many. */
static uint64_t encode_tensor(range p, const uint32_t *index, uint64_t n, unsigned char *out, size_t *bytes) {
    uint64_t k = 0, next = p.from;
    size_t at = 4;
    for (; k < n && index[k] < p.to; k++) {
        uint64_t gap = index[k] - next;
        next = (uint64_t)index[k] + 1;
        if (p.dense)
            continue;
        for (; gap >= GAP_CONTINUES; gap -= GAP_CONTINUES)
            out[at++] = GAP_CONTINUES;
        out[at++] = (unsigned char)gap;
    }
    if (!p.dense)
        frugi_put32(out, (uint32_t)k);
    *bytes = p.dense ? 0 : at;
    return k;
}

size_t frugi_gaps_encode(const frug_compressor *c, uint64_t begin, uint64_t count, const uint32_t *index, uint64_t n,
                         unsigned char *out) {
    uint64_t done = 0;
    size_t at = 0, bytes = 0;
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(c), begin, begin + count);
    for (; frugi_range_next(&it); at += bytes)
        done += encode_tensor(tensor_range(&it), index + done, n - done, out + at, &bytes);
    return at;
}

/* Decode the indices of one tensor; returns the bytes read, or 0 if they are invalid. */
static size_t decode_tensor(range p, const unsigned char *in, size_t bytes, uint32_t *index, uint64_t *n) {
    size_t at = 4;
    uint64_t next = p.from;
    if (bytes < 4 || frugi_get32(in) > p.to - p.from)
        return 0;
    *n = frugi_get32(in);
    for (uint64_t k = 0; k < *n; k++, next++) {
        for (; at < bytes && in[at] == GAP_CONTINUES; at++)
            next += GAP_CONTINUES;
        if (at == bytes || next + in[at] >= p.to)
            return 0;
        next += in[at++];
        index[k] = (uint32_t)next;
    }
    return at;
}

int frugi_gaps_decode(const frug_compressor *c, uint64_t begin, uint64_t count, const unsigned char *in, size_t bytes,
                      uint32_t *index, uint64_t n) {
    uint64_t done = 0;
    size_t at = 0;
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(c), begin, begin + count);
    while (frugi_range_next(&it)) {
        range p = tensor_range(&it);
        uint64_t here = 0;
        for (uint64_t e = p.from; p.dense && e < p.to; e++)
            index[done++] = (uint32_t)e;
        if (p.dense)
            continue;
        size_t read = decode_tensor(p, in + at, bytes - at, index + done, &here);
        if (!read)
            return 0;
        at += read;
        done += here;
    }
    return at == bytes && done == n;
}

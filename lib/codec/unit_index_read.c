/*
 * unit_index_read.c - decode the units of a section as a stream of ascending numbers.
 *
 * Each code has its own loop that returns units until the limit is reached or the output is full; bits read ahead are
 * kept in the reader. Reads stay inside the index bytes for any contents, so untrusted bytes are checked by reading
 * them and validating the result. Cost: O(units returned + bytes read); a seeded reader skips blocks
 * that have no units.
 */
#include "codec/unit_index.h"

#include "base/float_bits.h"

#define BLOCK   FRUGI_SAMPLE_BLOCK
#define NO_UNIT UINT64_MAX /* as next: there are no more units */

static uint32_t read_none_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room) {
    uint32_t n = 0;
    uint64_t rest = w->next < limit ? limit - w->next : 0, take = rest < room ? rest : room;
    for (; n < take; n++)
        units[n] = (uint32_t)(w->next + n);
    w->next += take;
    return n;
}

/* Load the next eight bytes of a bitmap, or the remaining ones. */
static inline void load_word(frugi_index_reader *w) {
    size_t left = (size_t)(w->end - w->index);
    if (left >= 8) {
        w->bits = frugi_get64(w->index);
        w->index += 8;
        return;
    }
    w->bits = 0;
    for (size_t i = 0; i < left; i++)
        w->bits |= (uint64_t)w->index[i] << (8 * i);
    w->index = w->end;
}

/* Write the positions of the set bits of a word, always four at a time: units has room for 64. */
static inline uint32_t expand_word(uint64_t bits, uint32_t base, uint32_t *units) {
    uint32_t n = (uint32_t)__builtin_popcountll(bits);
    for (uint32_t i = 0; i < n; i += 4)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++, bits &= bits - 1)
            units[i + j] = base + (uint32_t)__builtin_ctzll(bits | (uint64_t)1 << 63);
    return n;
}

static uint32_t read_bitmap_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room) {
    uint32_t n = 0;
    while (w->base < limit) {
        uint64_t base = w->base, inside = limit - base >= 64 ? UINT64_MAX : ((uint64_t)1 << (limit - base)) - 1;
        uint64_t take = w->bits & inside;
        if (room - n >= 64) {
            n += expand_word(take, (uint32_t)base, units + n);
            take = 0;
        }
        for (; take && n < room; take &= take - 1)
            units[n++] = (uint32_t)(base + (uint64_t)__builtin_ctzll(take));
        w->bits = (w->bits & ~inside) | take;
        if (w->bits || w->index == w->end)
            break;
        load_word(w);
        w->base += 64;
    }
    return n;
}

/* Expand the bitmap of a block to indices. Returns their number. */
static uint32_t expand_bitmap(const unsigned char *in, uint8_t *local) {
    uint32_t n = 0;
    for (uint32_t word = 0; word < 4; word++)
        for (uint64_t bits = frugi_get64(in + 8 * word); bits; bits &= bits - 1)
            local[n++] = (uint8_t)(64 * word + (uint32_t)__builtin_ctzll(bits));
    return n;
}

static int load_local_block(frugi_index_reader *w) {
    uint32_t count = 0;
    while (!count) {
        if (w->count == w->stop)
            return 0;
        count = *w->count++;
        w->base += BLOCK;
    }
    uint32_t bytes = count > 32 ? 32 : count;
    w->at = 0;
    w->local = w->index;
    w->indices = count;
    w->bad = (size_t)(w->end - w->index) < bytes;
    if (!w->bad && count > 32) {
        w->local = w->room;
        w->indices = expand_bitmap(w->index, w->room);
        w->bad = w->indices != count && !(w->indices == BLOCK && count == 255);
    }
    w->index += w->bad ? 0 : bytes;
    w->count = w->bad ? w->stop : w->count;
    w->indices = w->bad ? 0 : w->indices;
    return !w->bad;
}

/* Find the block of the next unit: that of the first index below which given + 1 units are drawn. */
static int load_seeded_block(frugi_index_reader *w) {
    const frugi_sample *s = &w->sample;
    if (w->given >= s->kept)
        return 0;
    uint64_t unit = ((w->given + 1) * s->units - s->phase - 1) / s->kept;
    w->base = unit / BLOCK * BLOCK;
    w->at = 0;
    w->local = w->room;
    w->indices = frugi_sample_draw(s, unit / BLOCK, w->room);
    w->given += w->indices;
    return 1;
}

static inline void widen_indices(const uint8_t *local, uint32_t n, uint32_t base, uint32_t *units) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t eight = frugi_get64(local + i);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < 8; j++)
            units[i + j] = base + (uint32_t)((eight >> (8 * j)) & 255u);
    }
    for (; i < n; i++)
        units[i] = base + local[i];
}

/* local and seeded: blocks of 256 units and the indices within them. */
static uint32_t read_blocks_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room,
                                  int load_block(frugi_index_reader *)) {
    uint32_t n = 0;
    while (n < room) {
        if (w->at == w->indices && !load_block(w))
            break;
        if (w->base >= limit)
            break;
        uint32_t rest = w->indices - w->at;
        if (limit - w->base >= BLOCK && room - n >= rest) {
            widen_indices(w->local + w->at, rest, (uint32_t)w->base, units + n);
            w->at = w->indices;
            n += rest;
            continue;
        }
        for (; w->at < w->indices && n < room && w->base + w->local[w->at] < limit; w->at++)
            units[n++] = (uint32_t)w->base + w->local[w->at];
        if (w->at < w->indices)
            break;
    }
    return n;
}

static uint32_t read_coo_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room) {
    const unsigned char *in = w->index;
    uint32_t n = 0;
    for (; room - n >= 16 && w->end - in >= 64 && frugi_get32(in + 60) < limit; n += 16, in += 64)
        memcpy(units + n, in, 64);
    for (; n < room && in < w->end && frugi_get32(in) < limit; n++, in += 4)
        units[n] = frugi_get32(in);
    w->index = in;
    return n;
}

/* Advance to the next row that has units. */
static int next_csr_row(frugi_index_reader *w) {
    while (!w->left) {
        if (w->count == w->stop)
            return 0;
        uint64_t to = frugi_get32(w->count);
        w->count += 4;
        w->base += w->section->grid.across;
        if (to < w->given || to > w->section->kept) {
            w->bad = 1;
            w->count = w->stop;
            return 0;
        }
        w->left = to - w->given;
        w->given = to;
    }
    return 1;
}

static inline uint32_t read_csr_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room,
                                      uint32_t bytes) {
    uint32_t n = 0;
    while (n < room && next_csr_row(w) && w->base < limit) {
        const unsigned char *in = w->index;
        uint64_t most = w->left < room - n ? w->left : room - n, inside = limit - w->base, i = 0;
        for (; i < most; i++, in += bytes) {
            uint32_t column = bytes == 2 ? frugi_get16(in) : frugi_get32(in);
            if (column >= inside)
                break;
            units[n++] = (uint32_t)w->base + column;
        }
        w->index = in;
        w->left -= i;
        if (i < most)
            break;
    }
    return n;
}

/* Read a LEB128 number below 2^32 in its shortest form. */
static uint64_t read_leb(frugi_index_reader *w) {
    uint64_t x = 0;
    for (uint32_t shift = 0; shift < 35 && w->index < w->end; shift += 7) {
        uint64_t byte = *w->index++;
        x |= (byte & 127u) << shift;
        if (byte < 128) {
            w->bad |= (byte == 0 && shift > 0) || x > UINT32_MAX;
            return x;
        }
    }
    w->bad = 1;
    return 0;
}

static int next_rle_run(frugi_index_reader *w) {
    if (w->index == w->end || w->bad)
        return 0;
    uint64_t gap = read_leb(w), sent = read_leb(w);
    w->bad |= !sent || (!gap && w->given) || w->next + gap + sent > w->section->grid.units ||
              w->given + sent > w->section->kept;
    if (w->bad)
        return 0;
    w->next += gap;
    w->given += sent;
    w->left = sent;
    return 1;
}

static uint32_t read_rle_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room) {
    uint32_t n = 0;
    while (n < room && (w->left || next_rle_run(w)) && w->next < limit) {
        uint64_t inside = limit - w->next, most = w->left < inside ? w->left : inside;
        uint32_t take = most < room - n ? (uint32_t)most : room - n, next = (uint32_t)w->next;
        for (uint32_t i = 0; i < take; i++)
            units[n + i] = next + i;
        n += take;
        w->next += take;
        w->left -= take;
    }
    return n;
}

/** Bits of a Rice stream read ahead, lowest first; those above `have` are zero. */
typedef struct bit_reader {
    const unsigned char *in, *end;
    uint64_t bits;
    uint32_t have;
} bit_reader;

static inline void refill(bit_reader *r) {
    if (r->have >= 32)
        return;
    if (r->end - r->in >= 4) {
        r->bits |= (uint64_t)frugi_get32(r->in) << r->have;
        r->in += 4;
        r->have += 32;
    }
    for (; r->have < 32 && r->in < r->end; r->have += 8)
        r->bits |= (uint64_t)*r->in++ << r->have;
}

/* The next gap; NO_UNIT if the bytes end inside it or it is longer than the number of units. */
static inline uint64_t rice_gap(bit_reader *r, uint32_t k, uint64_t most) {
    uint64_t high = 0;
    refill(r);
    while (__builtin_expect(!r->bits, 0)) {
        high += r->have;
        r->have = 0;
        if (r->in == r->end)
            return NO_UNIT;
        refill(r);
    }
    uint32_t zeros = (uint32_t)__builtin_ctzll(r->bits);
    high += zeros;
    r->bits = r->bits >> zeros >> 1;
    r->have -= zeros + 1;
    if (r->have < k)
        refill(r);
    if (__builtin_expect(r->have < k || high > most, 0))
        return NO_UNIT;
    uint64_t low = r->bits & (((uint64_t)1 << k) - 1);
    r->bits >>= k;
    r->have -= k;
    return high << k | low;
}

/* The unit after `before` units: NO_UNIT after the last one and after invalid bytes. */
static inline uint64_t rice_next(bit_reader *r, const frugi_section *s, uint64_t from, uint64_t before) {
    if (before >= s->kept)
        return NO_UNIT;
    uint64_t gap = rice_gap(r, s->rice, s->grid.units >> s->rice);
    return gap == NO_UNIT ? NO_UNIT : from + gap;
}

static uint32_t read_rice_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room) {
    bit_reader r = {.in = w->index, .end = w->end, .bits = w->bits, .have = w->have};
    uint64_t next = w->next, given = w->given;
    uint32_t n = 0;
    while (n < room && next < limit) {
        units[n++] = (uint32_t)next;
        next = rice_next(&r, w->section, next + 1, ++given);
    }
    w->index = r.in;
    w->bits = r.bits;
    w->have = r.have;
    w->next = next;
    w->given = given;
    return n;
}

void frugi_index_reader_start(frugi_index_reader *w, const frugi_section *s, const unsigned char *index) {
    memset(w, 0, sizeof *w);
    w->section = s;
    w->index = w->count = index;
    w->end = index + s->index_bytes;
    switch (s->index) {
    case FRUGI_INDEX_CODE_LOCAL:
        w->index = w->stop = index + (s->grid.units + BLOCK - 1) / BLOCK;
        w->base = (uint64_t)0 - BLOCK;
        break;
    case FRUGI_INDEX_CODE_BITMAP: load_word(w); break;
    case FRUGI_INDEX_CODE_CSR:
        w->index = w->stop = index + 4 * (s->grid.down + 1);
        w->count = index + 4; /* the first number is the start of the first row: 0 */
        w->base = (uint64_t)0 - s->grid.across;
        break;
    case FRUGI_INDEX_CODE_RICE: {
        bit_reader r = {.in = index, .end = w->end};
        w->next = rice_next(&r, s, 0, 0);
        w->index = r.in;
        w->bits = r.bits;
        w->have = r.have;
        break;
    }
    case FRUGI_INDEX_CODE_SEEDED: w->sample = frugi_sample_start(s->key, s->grid.units, s->kept); break;
    default: break;
    }
}

uint32_t frugi_index_read_below(frugi_index_reader *w, uint64_t limit, uint32_t *units, uint32_t room) {
    limit = limit < w->section->grid.units ? limit : w->section->grid.units;
    switch (w->section->index) {
    case FRUGI_INDEX_CODE_NONE: return read_none_below(w, limit, units, room);
    case FRUGI_INDEX_CODE_LOCAL: return read_blocks_below(w, limit, units, room, load_local_block);
    case FRUGI_INDEX_CODE_BITMAP: return read_bitmap_below(w, limit, units, room);
    case FRUGI_INDEX_CODE_COO: return read_coo_below(w, limit, units, room);
    case FRUGI_INDEX_CODE_CSR: return read_csr_below(w, limit, units, room, w->section->grid.across <= 65536 ? 2 : 4);
    case FRUGI_INDEX_CODE_RLE: return read_rle_below(w, limit, units, room);
    case FRUGI_INDEX_CODE_RICE: return read_rice_below(w, limit, units, room);
    case FRUGI_INDEX_CODE_SEEDED: return read_blocks_below(w, limit, units, room, load_seeded_block);
    }
    return 0;
}

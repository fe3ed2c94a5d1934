/*
 * unit_index.c - encode the unit numbers of a section, and check received ones.
 *
 * Encoding is one pass over the ascending list. Checking reads the units (unit_index_read.c never reads outside the
 * index bytes) and validates them; the bits of a bitmap over units of equal size are only counted.
 * Cost: O(index_bytes + kept).
 */
#include "codec/unit_index.h"

#include "base/float_bits.h"

#define BLOCK FRUGI_SAMPLE_BLOCK
#define CHUNK 1024u /* units checked at a time */

static uint64_t blocks_of(const frugi_section *s) {
    return (s->grid.units + BLOCK - 1) / BLOCK;
}

static uint32_t column_bytes(const frugi_section *s) {
    return s->grid.across <= 65536 ? 2 : 4;
}

void frugi_unit_index_bounds(const frugi_section *s, uint64_t *least, uint64_t *most) {
    uint64_t units = s->grid.units, kept = s->kept, fixed = 0;
    switch (s->index) {
    case FRUGI_INDEX_CODE_NONE:
    case FRUGI_INDEX_CODE_SEEDED: break;
    case FRUGI_INDEX_CODE_BITMAP: fixed = (units + 7) / 8; break;
    case FRUGI_INDEX_CODE_COO: fixed = 4 * kept; break;
    case FRUGI_INDEX_CODE_CSR: fixed = 4 * (s->grid.down + 1) + column_bytes(s) * kept; break;
    case FRUGI_INDEX_CODE_LOCAL:
        *least = blocks_of(s) + 1;
        *most = blocks_of(s) + kept;
        return;
    case FRUGI_INDEX_CODE_RLE:
        *least = 2;
        *most = 10 * kept;
        return;
    case FRUGI_INDEX_CODE_RICE: /* the sum of the gaps is at most units - kept */
        *least = (kept * (1 + s->rice) + 7) / 8;
        *most = (kept * (1 + s->rice) + ((units - kept) >> s->rice) + 7) / 8;
        return;
    }
    *least = *most = fixed;
}

static void encode_bitmap(const uint32_t *list, uint64_t kept, unsigned char *out, uint64_t bytes) {
    memset(out, 0, bytes);
    for (uint64_t i = 0; i < kept; i++)
        out[list[i] / 8] = (unsigned char)(out[list[i] / 8] | 1u << list[i] % 8);
}

static void encode_local(const frugi_section *s, const uint32_t *list, unsigned char *out) {
    unsigned char *data = out + blocks_of(s);
    memset(out, 0, blocks_of(s));
    for (uint64_t i = 0, to; i < s->kept; i = to) {
        uint32_t block = list[i] / BLOCK;
        for (to = i + 1; to < s->kept && list[to] / BLOCK == block;)
            to++;
        uint32_t n = (uint32_t)(to - i);
        out[block] = (unsigned char)(n < 255 ? n : 255);
        if (n <= 32) {
            for (uint32_t j = 0; j < n; j++)
                *data++ = (unsigned char)list[i + j];
            continue;
        }
        memset(data, 0, 32);
        for (uint32_t j = 0; j < n; j++) {
            uint32_t at = list[i + j] % BLOCK;
            data[at / 8] = (unsigned char)(data[at / 8] | 1u << at % 8);
        }
        data += 32;
    }
}

static void encode_csr(const frugi_section *s, const uint32_t *list, unsigned char *out) {
    const frugi_grid *g = &s->grid;
    unsigned char *columns = out + 4 * (g->down + 1);
    uint32_t bytes = column_bytes(s);
    uint64_t i = 0;
    frugi_put32(out, 0);
    for (uint64_t row = 0; row < g->down; row++) {
        uint64_t from = row * g->across, to = from + g->across;
        for (; i < s->kept && list[i] < to; i++) {
            uint64_t column = list[i] - from;
            if (bytes == 2)
                frugi_put16(columns + 2 * i, (uint16_t)column);
            else
                frugi_put32(columns + 4 * i, (uint32_t)column);
        }
        frugi_put32(out + 4 * (row + 1), (uint32_t)i);
    }
}

static unsigned char *put_leb(unsigned char *out, uint64_t x) {
    for (; x >= 128; x >>= 7)
        *out++ = (unsigned char)(x | 128u);
    *out++ = (unsigned char)x;
    return out;
}

static void encode_rle(const frugi_section *s, const uint32_t *list, unsigned char *out) {
    uint64_t after = 0;
    for (uint64_t i = 0, to; i < s->kept; i = to) {
        for (to = i + 1; to < s->kept && list[to] == list[i] + (to - i);)
            to++;
        out = put_leb(out, list[i] - after);
        out = put_leb(out, to - i);
        after = list[i] + (to - i);
    }
}

typedef struct bit_writer {
    unsigned char *out;
    uint64_t bits;
    uint32_t have; /* below 32 */
} bit_writer;

static inline void put_bits(bit_writer *w, uint64_t bits, uint32_t n) {
    w->bits |= bits << w->have;
    w->have += n;
    if (w->have >= 32) {
        frugi_put32(w->out, (uint32_t)w->bits);
        w->out += 4;
        w->bits >>= 32;
        w->have -= 32;
    }
}

static void encode_rice(const frugi_section *s, const uint32_t *list, unsigned char *out) {
    bit_writer w = {.out = out};
    uint32_t before = UINT32_MAX, k = s->rice;
    for (uint64_t i = 0; i < s->kept; i++) {
        uint32_t gap = list[i] - before - 1, high = gap >> k;
        for (; high >= 32; high -= 32)
            put_bits(&w, 0, 32);
        put_bits(&w, (uint64_t)1 << high, high + 1);
        put_bits(&w, gap & (((uint32_t)1 << k) - 1), k);
        before = list[i];
    }
    for (; w.have; w.have -= w.have < 8 ? w.have : 8, w.bits >>= 8)
        *w.out++ = (unsigned char)w.bits;
}

void frugi_unit_index_encode(const frugi_section *s, const uint32_t *list, unsigned char *out) {
    switch (s->index) {
    case FRUGI_INDEX_CODE_NONE:
    case FRUGI_INDEX_CODE_SEEDED: break;
    case FRUGI_INDEX_CODE_LOCAL: encode_local(s, list, out); break;
    case FRUGI_INDEX_CODE_BITMAP: encode_bitmap(list, s->kept, out, s->index_bytes); break;
    case FRUGI_INDEX_CODE_COO: memcpy(out, list, 4 * (size_t)s->kept); break;
    case FRUGI_INDEX_CODE_CSR: encode_csr(s, list, out); break;
    case FRUGI_INDEX_CODE_RLE: encode_rle(s, list, out); break;
    case FRUGI_INDEX_CODE_RICE: encode_rice(s, list, out); break;
    }
}

/* Whether the first row starts at 0, and all columns are in range. */
static int check_csr(const frugi_section *s, const unsigned char *index) {
    const unsigned char *columns = index + 4 * (s->grid.down + 1);
    uint32_t most = 0, bytes = column_bytes(s);
    for (uint64_t i = 0; i < s->kept; i++) {
        uint32_t column = bytes == 2 ? frugi_get16(columns + 2 * i) : frugi_get32(columns + 4 * i);
        most = column > most ? column : most;
    }
    return frugi_get32(index) == 0 && most < s->grid.across;
}

/* Whether the number of set bits is the number of units sent, and none is beyond the last unit. */
static int check_bitmap(const frugi_section *s, const unsigned char *index) {
    uint64_t bytes = s->index_bytes, at = 0, count = 0;
    for (; at + 8 <= bytes; at += 8)
        count += (uint64_t)__builtin_popcountll(frugi_get64(index + at));
    for (; at < bytes; at++)
        count += (uint64_t)__builtin_popcount(index[at]);
    uint32_t used = s->grid.units % 8;
    return count == s->kept && (!used || index[bytes - 1] >> used == 0);
}

/* Whether a reader has consumed everything: no byte, index, set bit or whole byte of bits is left. */
static int read_completely(const frugi_index_reader *w) {
    switch (w->section->index) {
    case FRUGI_INDEX_CODE_NONE:
    case FRUGI_INDEX_CODE_SEEDED: return 1;
    case FRUGI_INDEX_CODE_BITMAP:
    case FRUGI_INDEX_CODE_RICE: return w->index == w->end && !w->bits && w->have < 8;
    default: return w->index == w->end && !w->bad && w->at == w->indices;
    }
}

int frugi_unit_index_check(const frugi_section *s, const unsigned char *index) {
    int even = frugi_grid_is_uniform(&s->grid);
    if (even && (s->index == FRUGI_INDEX_CODE_NONE || s->index == FRUGI_INDEX_CODE_SEEDED))
        return 1;
    if (even && s->index == FRUGI_INDEX_CODE_BITMAP)
        return check_bitmap(s, index);
    if (s->index == FRUGI_INDEX_CODE_CSR && !check_csr(s, index))
        return 0;
    uint32_t list[1 + CHUNK], n = CHUNK, descents = 0; /* list[0] is the last unit of the previous chunk */
    uint64_t count = 0, entries = 0;
    frugi_index_reader walk;
    frugi_index_reader_start(&walk, s, index);
    while (n == CHUNK && count <= s->kept) {
        n = frugi_index_read_below(&walk, s->grid.units, list + 1, CHUNK);
        for (uint32_t i = count ? 1 : 2; i <= n; i++)
            descents |= list[i] <= list[i - 1];
        for (uint32_t i = 1; i <= n && !even; i++)
            entries += frugi_grid_size(&s->grid, list[i]);
        list[0] = list[n];
        count += n;
    }
    return !descents && count == s->kept && (even || entries == s->entries) && read_completely(&walk);
}

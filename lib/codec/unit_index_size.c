/*
 * unit_index_size.c - compute the bytes of each index code for a list of units, in one pass.
 *
 * Every size is a sum over the list of what one unit adds, given its gap (the units not sent before it), so a chunk
 * takes a few vector operations. A unit adds a byte to `local` unless the 32 units before it are in the same block.
 * Runs are handled one by one only if they cross a chunk; inside a chunk they are short and take one byte each.
 *
 * Rice with k low bits takes S(k) = kept (1 + k) + sum(gap >> k) bits. S(k + 1) - S(k) = kept - sum(ceil((gap >> k) /
 * 2)) never falls with k, so the first k where it is not negative is the best. With T the sum of all gaps it is not
 * negative where T <= kept 2^k, and negative where T > kept (3 2^k - 1). That leaves the first k of the former kind and
 * the two before it, and T is known from the last unit alone.
 */
#include "codec/unit_index.h"

#include <string.h>

#define HISTORY FRUGI_SIZER_HISTORY
#define CHUNK   FRUGI_SIZER_CHUNK

/* Bytes of a LEB128 number beyond the first. */
static uint32_t leb_extra_bytes(uint64_t x) {
    return (uint32_t)(x >= 1u << 7) + (x >= 1u << 14) + (x >= 1u << 21) + (x >= 1u << 28);
}

void frugi_index_sizer_start(frugi_index_sizer *m, const frugi_grid *grid, uint64_t kept, uint32_t last) {
    *m = (frugi_index_sizer){.grid = *grid, .kept = kept};
    uint64_t gaps = last + (uint64_t)1 - kept;
    uint32_t k = 0;
    while (k < 31 && kept << k < gaps)
        k++;
    m->rice = k < 2 ? 0 : k - 2;
    memset(m->window, 0xff, sizeof m->window); /* the first gap is then the first unit itself */
}

/* Add the gaps of n units. The sum of all gaps is below 2^32, so no sum overflows. */
static void add_gaps(frugi_index_sizer *m, const uint32_t *x, uint32_t n) {
    uint32_t high[3] = {0}, starts = 0, longer = 0, k = m->rice;
    const uint32_t *before = x - 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t gap = x[i] - before[i] - 1, g = gap >> k;
        high[0] += g;
        high[1] += g >> 1;
        high[2] += g >> 2;
        starts += gap != 0;
        longer += (uint32_t)(gap > 0x7fu) + (gap > 0x3fffu) + (gap > 0x1fffffu) + (gap > 0xfffffffu);
    }
    for (int i = 0; i < 3; i++)
        m->high[i] += high[i];
    m->rle += 2 * starts + longer; /* a byte for the gap, and one for the run that it starts */
}

/* Add the units that need a byte in local: those without 32 others of their block before them. */
static void add_local(frugi_index_sizer *m, const uint32_t *x, uint32_t n) {
    uint32_t i = m->seen ? 0 : n < HISTORY ? n : HISTORY, bytes = i;
    const uint32_t *before = m->window;
    for (; i < n; i++)
        bytes += (x[i] ^ before[i]) > 255u;
    m->local += bytes;
}

/* Only runs that cross a chunk can be long enough for a second byte: track the current run from chunk to chunk. */
static void add_runs(frugi_index_sizer *m, const uint32_t *x, uint32_t n) {
    uint32_t before = x[-1], head = 0, tail = 1;
    if (x[n - 1] - before == n) {
        m->run += n;
        return;
    }
    while (x[head] - before == head + 1)
        head++;
    while (tail < n && x[n - 1 - tail] == x[n - 1] - tail)
        tail++;
    m->rle += leb_extra_bytes(m->run + head);
    m->run = tail;
}

static void add_chunk(frugi_index_sizer *m) {
    const uint32_t *x = m->window + HISTORY;
    uint32_t n = m->fill;
    if (!n)
        return;
    if (!m->seen && x[0] == 0)
        m->rle += 2; /* the first run has a gap of 0, which is encoded */
    add_gaps(m, x, n);
    add_local(m, x, n);
    add_runs(m, x, n);
    m->seen += n;
    m->fill = 0;
    memmove(m->window, m->window + n, HISTORY * sizeof *m->window);
}

void frugi_index_sizer_add(frugi_index_sizer *m, const uint32_t *units, uint64_t n) {
    while (n) {
        uint32_t most = CHUNK - m->fill, take = n < most ? (uint32_t)n : most;
        memcpy(m->window + HISTORY + m->fill, units, take * sizeof *units);
        m->fill += take;
        units += take;
        n -= take;
        if (m->fill == CHUNK)
            add_chunk(m);
    }
}

void frugi_index_sizer_finish(frugi_index_sizer *m, frugi_index_sizes *sizes) {
    const frugi_grid *g = &m->grid;
    uint64_t best = UINT64_MAX;
    add_chunk(m);
    for (uint32_t i = 0; i < 3 && m->rice + i < 32; i++) {
        uint64_t bits = m->kept * (1 + m->rice + i) + m->high[i];
        if (bits < best) {
            best = bits;
            sizes->rice = m->rice + i;
        }
    }
    uint64_t *bytes = sizes->bytes;
    bytes[FRUGI_INDEX_CODE_NONE] = m->kept == g->units ? 0 : UINT64_MAX;
    bytes[FRUGI_INDEX_CODE_LOCAL] = (g->units + 255) / 256 + m->local;
    bytes[FRUGI_INDEX_CODE_BITMAP] = (g->units + 7) / 8;
    bytes[FRUGI_INDEX_CODE_COO] = 4 * m->kept;
    bytes[FRUGI_INDEX_CODE_CSR] = 4 * (g->down + 1) + m->kept * (g->across <= 65536 ? 2 : 4);
    bytes[FRUGI_INDEX_CODE_RLE] = m->rle + leb_extra_bytes(m->run);
    bytes[FRUGI_INDEX_CODE_RICE] = (best + 7) / 8;
    bytes[FRUGI_INDEX_CODE_SEEDED] = UINT64_MAX;
}

void frugi_unit_index_measure(const frugi_grid *grid, const uint32_t *list, uint64_t kept, frugi_index_sizes *sizes) {
    frugi_index_sizer sizer;
    frugi_index_sizer_start(&sizer, grid, kept, list[kept - 1]);
    frugi_index_sizer_add(&sizer, list, kept);
    frugi_index_sizer_finish(&sizer, sizes);
}

/*
 * unit_index_size.c - how many bytes each index code would take for a list of units, in one pass.
 *
 * Everything is a sum over the list of what one unit adds, given its gap (the units left out before it), so a chunk is
 * a few vector operations. A unit adds a byte to `local` unless 32 units before it belong to its block too. Runs are
 * looked at one by one only where they cross a chunk; inside a chunk they are short and take one byte each.
 *
 * Rice with k low bits takes S(k) = kept (1 + k) + sum(gap >> k) bits. S(k + 1) - S(k) = kept - sum(ceil((gap >> k) /
 * 2)) never falls with k, so the first k where it is not negative is the best. With T the sum of all gaps it is not
 * negative where T <= kept 2^k, and negative where T > kept (3 2^k - 1). That leaves the first k of the former kind and
 * the two before it, and T is known from the last unit alone.
 */
#include "codec/unit_index.h"

#include <string.h>

#define PAST  FRUGI_METER_PAST
#define CHUNK FRUGI_METER_CHUNK

/* Bytes of a LEB128 number beyond the first. */
static uint32_t leb_more(uint64_t x) {
    return (uint32_t)(x >= 1u << 7) + (x >= 1u << 14) + (x >= 1u << 21) + (x >= 1u << 28);
}

void frugi_meter_start(frugi_meter *m, const frugi_grid *grid, uint64_t kept, uint32_t last) {
    *m = (frugi_meter){.grid = *grid, .kept = kept};
    uint64_t gaps = last + (uint64_t)1 - kept;
    uint32_t k = 0;
    while (k < 31 && kept << k < gaps)
        k++;
    m->rice = k < 2 ? 0 : k - 2;
    memset(m->window, 0xff, sizeof m->window); /* the first gap is then the first unit itself */
}

/* What the gaps of n units add. The sum of all gaps is below 2^32, so no sum overflows. */
static void add_gaps(frugi_meter *m, const uint32_t *x, uint32_t n) {
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

/* Units that add a byte to local: those without 32 others of their block before them. */
static void add_local(frugi_meter *m, const uint32_t *x, uint32_t n) {
    uint32_t i = m->seen ? 0 : n < PAST ? n : PAST, fresh = i;
    const uint32_t *before = m->window;
    for (; i < n; i++)
        fresh += (x[i] ^ before[i]) > 255u;
    m->local += fresh;
}

/* Runs long enough for a second byte cross a chunk: follow the one at hand from chunk to chunk. */
static void add_runs(frugi_meter *m, const uint32_t *x, uint32_t n) {
    uint32_t before = x[-1], head = 0, tail = 1;
    if (x[n - 1] - before == n) {
        m->run += n;
        return;
    }
    while (x[head] - before == head + 1)
        head++;
    while (tail < n && x[n - 1 - tail] == x[n - 1] - tail)
        tail++;
    m->rle += leb_more(m->run + head);
    m->run = tail;
}

static void add_chunk(frugi_meter *m) {
    const uint32_t *x = m->window + PAST;
    uint32_t n = m->fill;
    if (!n)
        return;
    if (!m->seen && x[0] == 0)
        m->rle += 2; /* the first run follows no gap, and says so */
    add_gaps(m, x, n);
    add_local(m, x, n);
    add_runs(m, x, n);
    m->seen += n;
    m->fill = 0;
    memmove(m->window, m->window + n, PAST * sizeof *m->window);
}

void frugi_meter_feed(frugi_meter *m, const uint32_t *units, uint64_t n) {
    while (n) {
        uint32_t most = CHUNK - m->fill, take = n < most ? (uint32_t)n : most;
        memcpy(m->window + PAST + m->fill, units, take * sizeof *units);
        m->fill += take;
        units += take;
        n -= take;
        if (m->fill == CHUNK)
            add_chunk(m);
    }
}

void frugi_meter_finish(frugi_meter *m, frugi_index_sizes *sizes) {
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
    bytes[FRUGI_INDEX_CODE_RLE] = m->rle + leb_more(m->run);
    bytes[FRUGI_INDEX_CODE_RICE] = (best + 7) / 8;
    bytes[FRUGI_INDEX_CODE_SEEDED] = UINT64_MAX;
}

void frugi_unit_index_measure(const frugi_grid *grid, const uint32_t *list, uint64_t kept, frugi_index_sizes *sizes) {
    frugi_meter meter;
    frugi_meter_start(&meter, grid, kept, list[kept - 1]);
    frugi_meter_feed(&meter, list, kept);
    frugi_meter_finish(&meter, sizes);
}

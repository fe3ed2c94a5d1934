/*
 * fuzz_units.c - untrusted sections by units: a header of 96 bytes, then indices. The header is used unchanged, and
 * once more with its derived fields (lengths, entries) corrected, so that the index code is
 * reached too. Whatever the check returns, reading and sizing must stay inside the bytes.
 */
#include "codec/unit_index.h"
#include "base/float_bits.h"

#include <stdlib.h>

#define KEPT_MAX 65536u /* in a frame its length is the limit; here there is no other */
#define WINDOW   4096u

/* Read in windows; returns the number of units, or UINT64_MAX if they are invalid. */
static uint64_t read_units(const frugi_section *s, const unsigned char *index, uint64_t width,
                           frugi_index_sizer *meter) {
    static uint32_t units[WINDOW];
    frugi_index_reader w;
    uint64_t n = 0, last = 0, broken = 0, limit = 0;
    uint32_t room = width % 7 ? WINDOW : 13, got;
    frugi_index_reader_start(&w, s, index);
    while (limit < s->grid.units && limit < (uint64_t)WINDOW * 64) {
        limit += width;
        limit = limit < (uint64_t)WINDOW * 64 ? limit : s->grid.units;
        do {
            got = frugi_index_read_below(&w, limit, units, room);
            for (uint32_t i = 0; i < got; last = units[i++], n++)
                broken |= units[i] >= limit || units[i] >= s->grid.units || (n && units[i] <= last);
            frugi_index_sizer_add(meter, units, got);
        } while (got == room && n <= KEPT_MAX);
    }
    return broken ? UINT64_MAX : n;
}

static void feed(const frugi_section *s, const unsigned char *bytes, size_t len) {
    if (s->kept > KEPT_MAX || s->index_bytes > len)
        return;
    unsigned char *index = malloc(s->index_bytes ? s->index_bytes : 1); /* of this length, for the sanitizer */
    if (!index)
        return;
    memcpy(index, bytes, s->index_bytes);
    int good = frugi_unit_index_check(s, index);
    frugi_index_sizer meter;
    frugi_index_sizes sizes;
    frugi_index_sizer_start(&meter, &s->grid, s->kept, (uint32_t)(s->grid.units - 1));
    uint64_t n = read_units(s, index, 1 + s->begin % WINDOW, &meter);
    frugi_index_sizer_finish(&meter, &sizes);
    if (good && n != s->kept)
        abort();
    for (uint32_t code = FRUGI_INDEX_CODE_LOCAL; good && code < FRUGI_INDEX_CODE_RICE; code++)
        if (code == s->index && sizes.bytes[code] != s->index_bytes)
            abort();
    free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    frugi_section s;
    if (size < FRUGI_UNIT_SECTION_HEADER)
        return 0;
    const unsigned char *index = data + FRUGI_UNIT_SECTION_HEADER;
    size_t len = size - FRUGI_UNIT_SECTION_HEADER;
    if (frugi_section_header(data) == FRUGI_UNIT_SECTION_HEADER && frugi_section_read(data, &s)) {
        unsigned char again[FRUGI_UNIT_SECTION_HEADER];
        frugi_section_write(&s, again);
        if (memcmp(again, data, sizeof again) != 0)
            abort();
        feed(&s, index, len);
    }
    frugi_section made = {.index = (frugi_index)(data[0] % FRUGI_INDEX_CODES),
                          .begin = data[8],
                          .grid = {.rows = 1 + frugi_get16(data + 24) % 300u,
                                   .cols = 1 + frugi_get16(data + 26) % 300u,
                                   .h = 1 + data[32] % 4u,
                                   .w = 1 + data[40] % 4u}};
    frugi_grid *g = &made.grid;
    if (!frugi_grid_measure(g))
        return 0;
    made.count = g->rows * g->cols;
    made.kept = made.index == FRUGI_INDEX_CODE_NONE ? g->units : 1 + frugi_get16(data + 48) % g->units;
    made.entries = made.kept == g->units      ? made.count
                   : frugi_grid_is_uniform(g) ? made.kept * g->h * g->w
                                              : frugi_get16(data + 56);
    made.rice = made.index == FRUGI_INDEX_CODE_RICE ? data[70] % 32u : 0;
    made.key = made.index == FRUGI_INDEX_CODE_SEEDED ? frugi_get64(data + 72) : 0;
    uint64_t least, most;
    frugi_unit_index_bounds(&made, &least, &most);
    made.index_bytes = least == most || len < least ? least : len > most ? most : len;
    if (frugi_section_measure(&made))
        feed(&made, index, len);
    return 0;
}

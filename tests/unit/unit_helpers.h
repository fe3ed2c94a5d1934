/* unit_helpers.h - helpers of the tests of sections by units: sections, bytes, and a reference for sizes. */
#ifndef FRUG_TEST_UNIT_HELPERS_H
#define FRUG_TEST_UNIT_HELPERS_H

#include "support/assertions.h"

#include "codec/unit_index.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A section of f32 values over a grid; the caller sets the number of units and the code. */
static inline frugi_section section_of(uint64_t rows, uint64_t cols, uint64_t h, uint64_t w) {
    frugi_section s = {
        .value = FRUGI_VALUE_F32, .count = rows * cols, .grid = {.rows = rows, .cols = cols, .h = h, .w = w}};
    assert_true(frugi_grid_measure(&s.grid));
    return s;
}

/* Set all fields of a section for a list and an index code. */
static inline void set_list(frugi_section *s, frugi_index code, const uint32_t *list, uint64_t kept) {
    frugi_index_sizes sizes;
    frugi_unit_index_measure(&s->grid, list, kept, &sizes);
    s->index = code;
    s->kept = kept;
    s->rice = code == FRUGI_INDEX_CODE_RICE ? sizes.rice : 0;
    s->index_bytes = sizes.bytes[code];
    s->entries = 0;
    for (uint64_t i = 0; i < kept; i++)
        s->entries += frugi_grid_size(&s->grid, list[i]);
    assert_true(frugi_section_measure(s));
}

/* The encoded list in a buffer of exactly its length, so that a sanitizer detects every access outside. */
static inline unsigned char *encode_list(const frugi_section *s, const uint32_t *list) {
    unsigned char *index = test_malloc(s->index_bytes + 1);
    memset(index, 0xa5, s->index_bytes + 1);
    frugi_unit_index_encode(s, list, index);
    assert_int_equal(index[s->index_bytes], 0xa5);
    unsigned char *tight = test_malloc(s->index_bytes ? s->index_bytes : 1);
    memcpy(tight, index, s->index_bytes);
    test_free(index);
    return tight;
}

/* A reference computation of the sizes. */
static inline uint64_t plain_leb(uint64_t x) {
    return x < 128 ? 1 : 1 + plain_leb(x >> 7);
}

static inline void plain_sizes(const frugi_grid *g, const uint32_t *list, uint64_t kept,
                               uint64_t bytes[FRUGI_INDEX_CODES]) {
    uint64_t best = UINT64_MAX, local = (g->units + 255) / 256, rle = 0, run = 0;
    for (uint32_t k = 0; k < 32; k++) {
        uint64_t bits = 0;
        for (uint64_t i = 0; i < kept; i++)
            bits += ((i ? list[i] - list[i - 1] - 1 : list[0]) >> k) + 1 + k;
        best = bits < best ? bits : best;
    }
    for (uint64_t i = 0, n; i < kept; i += n) {
        for (n = 1; i + n < kept && list[i + n] / 256 == list[i] / 256;)
            n++;
        local += n > 32 ? 32 : n;
    }
    for (uint64_t i = 0; i < kept; i += run) {
        for (run = 1; i + run < kept && list[i + run] == list[i] + run;)
            run++;
        rle += plain_leb(i ? list[i] - list[i - 1] - 1 : list[0]) + plain_leb(run);
    }
    const uint64_t all[FRUGI_INDEX_CODES] = {kept == g->units ? 0 : UINT64_MAX,
                                             local,
                                             (g->units + 7) / 8,
                                             4 * kept,
                                             4 * (g->down + 1) + kept * (g->across <= 65536 ? 2 : 4),
                                             rle,
                                             (best + 7) / 8,
                                             UINT64_MAX};
    memcpy(bytes, all, sizeof all);
}

#endif

/* test_unit_index.c - the numbers of units: every index code, every size, every damage. */
#include "unit/unit_helpers.h"

#include <math.h>

/* Walk with limits and rooms of all sizes; the windows are at most as wide as the receiver's. */
static uint64_t read_all(const frugi_section *s, const unsigned char *index, int sound, uint64_t *random,
                         uint32_t *list) {
    frugi_index_reader walk;
    frugi_index_reader_start(&walk, s, index);
    uint64_t n = 0, limit = 0,
             width = next_random(random) % 4 ? 1 + next_random(random) % 4096 : 1 + next_random(random) % 40;
    do {
        limit += width;
        uint32_t got, room = next_random(random) % 2 ? 4096 : 1 + (uint32_t)(next_random(random) % 100);
        do {
            uint32_t units[4096];
            got = frugi_index_read_below(&walk, limit, units, room);
            for (uint32_t i = 0; i < got; i++) {
                assert_true(!sound || (units[i] < limit && units[i] < s->grid.units));
                list[n + i] = units[i];
            }
            n += got;
            assert_true(n <= s->grid.units);
        } while (got == room);
    } while (limit < s->grid.units);
    return n;
}

/* Sizes equal those of the reference; every code encodes exactly the list. */
static void check_list(const frugi_section *grid, const uint32_t *list, uint64_t kept, uint64_t *random) {
    frugi_index_sizes sizes;
    uint64_t plain[FRUGI_INDEX_CODES];
    frugi_unit_index_measure(&grid->grid, list, kept, &sizes);
    plain_sizes(&grid->grid, list, kept, plain);
    assert_memory_equal(sizes.bytes, plain, sizeof plain);
    for (uint32_t code = 0; code < FRUGI_INDEX_CODE_SEEDED; code++) {
        if (sizes.bytes[code] == UINT64_MAX)
            continue;
        frugi_section s = *grid;
        set_list(&s, (frugi_index)code, list, kept);
        unsigned char *index = encode_list(&s, list);
        uint32_t *back = test_malloc(s.grid.units * sizeof *back);
        assert_true(frugi_unit_index_check(&s, index));
        assert_int_equal(read_all(&s, index, 1, random, back), kept);
        assert_memory_equal(back, list, kept * sizeof *list);
        if (!frugi_grid_is_uniform(&s.grid) && kept < s.grid.units) { /* the header must not lie about the elements */
            s.entries += s.entries + 1 < s.count ? 1 : (uint64_t)-1;
            assert_false(frugi_unit_index_check(&s, index));
        }
        test_free(back);
        test_free(index);
    }
}

/* Units kept one by one at a density, in clumps, every other one, or all but a few. */
static uint64_t draw_list(const frugi_grid *g, uint32_t shape, uint64_t *random, uint32_t *list) {
    static const uint32_t chance[] = {1, 4, 16, 62, 200, 500, 900, 999};
    uint32_t p = chance[next_random(random) % COUNT(chance)], clump = 1 + (uint32_t)(next_random(random) % 300);
    uint64_t n = 0;
    int on = 0;
    for (uint64_t u = 0; u < g->units; u++) {
        if (shape == 1)
            on = next_random(random) % clump == 0 ? !on : on;
        else
            on = shape == 2 ? u % 2 == 1 : next_random(random) % 1000 < p;
        if (on)
            list[n++] = (uint32_t)u;
    }
    if (!n)
        list[n++] = (uint32_t)(next_random(random) % g->units);
    return n;
}

static void every_code_encodes_every_list(void **state) {
    (void)state;
    uint64_t random = 2024;
    uint32_t *list = test_malloc(20000 * sizeof *list);
    for (int round = 0; round < 210; round++) {
        uint64_t rows = 1 + next_random(&random) % 120, cols = 1 + next_random(&random) % 160;
        uint64_t h = 1 + next_random(&random) % 3, w = 1 + next_random(&random) % 3;
        if (round % 4 == 0)
            h = w = 1;
        if (round % 7 == 0) {
            cols *= rows;
            rows = h = 1;
        }
        frugi_section s = section_of(rows, cols, h < rows ? h : rows, w < cols ? w : cols);
        uint64_t kept = draw_list(&s.grid, (uint32_t)(round % 5), &random, list);
        check_list(&s, list, kept, &random);
    }
    test_free(list);
}

/* Runs and gaps on both sides of every length at which LEB128 takes another byte, across the chunks of the sizer. */
static void long_runs_and_gaps_are_measured_exactly(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 126, 127, 128, 129, 192, 16383, 16384};
    uint64_t random = 77;
    uint32_t *list = test_malloc(60000 * sizeof *list);
    for (size_t a = 0; a < COUNT(lengths); a++)
        for (size_t b = 0; b < COUNT(lengths); b++)
            for (uint32_t lead = 0; lead < 2; lead++) {
                uint32_t n = 0, u = lead * lengths[b];
                for (uint32_t i = 0; i < lengths[a]; i++)
                    list[n++] = u++;
                u += lengths[b];
                list[n++] = u++;
                u += lengths[a] % 5;
                for (uint32_t i = 0; i < lengths[b]; i++)
                    list[n++] = u++;
                frugi_section s = section_of(1, u + lead, 1, 1);
                check_list(&s, list, n, &random);
            }
    test_free(list);
}

static void extreme_lists_round_trip(void **state) {
    (void)state;
    uint64_t random = 3;
    uint32_t list[3000];
    for (uint32_t i = 0; i < 3000; i++)
        list[i] = i;
    static const uint32_t sizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 511, 512, 513, 2999, 3000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        frugi_section s = section_of(1, sizes[i], 1, 1), column = section_of(sizes[i], 1, 1, 1);
        uint32_t last = sizes[i] - 1, first = 0;
        check_list(&s, list, sizes[i], &random);
        check_list(&column, list, sizes[i], &random);
        check_list(&s, &last, 1, &random);
        check_list(&column, &last, 1, &random);
        check_list(&s, &first, 1, &random);
    }
    frugi_section wide = section_of(2, 70000, 1, 1); /* columns beyond 65536 take four bytes */
    const uint32_t few[] = {0, 65535, 65536, 69999, 70000, 139999};
    check_list(&wide, few, COUNT(few), &random);
}

/* Lists too long to write: the largest grid, its first and last units, a gap of 2^31. */
static void the_largest_grid_is_measured(void **state) {
    (void)state;
    frugi_section s = section_of(1, UINT32_MAX, 1, 1);
    static const uint32_t lists[][3] = {{UINT32_MAX - 1, 0, 0},
                                        {0, UINT32_MAX - 1, 0},
                                        {5, 6, 7 + (1u << 31)},
                                        {UINT32_MAX - 3, UINT32_MAX - 2, UINT32_MAX - 1}};
    static const uint32_t kept[] = {1, 2, 3, 3};
    for (size_t i = 0; i < COUNT(lists); i++) {
        frugi_index_sizes sizes;
        uint64_t plain[FRUGI_INDEX_CODES];
        frugi_unit_index_measure(&s.grid, lists[i], kept[i], &sizes);
        plain_sizes(&s.grid, lists[i], kept[i], plain);
        assert_memory_equal(sizes.bytes, plain, sizeof plain);
        static const frugi_index small[] = {FRUGI_INDEX_CODE_COO, FRUGI_INDEX_CODE_RLE, FRUGI_INDEX_CODE_RICE};
        for (size_t c = 0; c < COUNT(small); c++) {
            set_list(&s, small[c], lists[i], kept[i]);
            unsigned char *index = encode_list(&s, lists[i]);
            uint32_t back[4];
            frugi_index_reader walk;
            assert_true(frugi_unit_index_check(&s, index));
            frugi_index_reader_start(&walk, &s, index);
            assert_int_equal(frugi_index_read_below(&walk, UINT64_MAX, back, 4), kept[i]);
            assert_memory_equal(back, lists[i], kept[i] * sizeof *back);
            test_free(index);
        }
    }
}

/* One flipped bit, or random bytes: rejected, or another valid list; never a read outside the bytes.
 */
static void damaged_indices_are_rejected_or_valid(void **state) {
    (void)state;
    uint64_t random = 99;
    uint32_t list[4000], back[4000];
    for (int round = 0; round < 9; round++) {
        frugi_section s = round % 2 ? section_of(9, 70, 1, 1) : section_of(31, 41, 2, 2);
        uint64_t kept = draw_list(&s.grid, (uint32_t)(round % 3), &random, list);
        for (uint32_t code = FRUGI_INDEX_CODE_LOCAL; code < FRUGI_INDEX_CODE_SEEDED; code++) {
            set_list(&s, (frugi_index)code, list, kept);
            unsigned char *index = encode_list(&s, list);
            for (uint64_t bit = 0; bit < 8 * s.index_bytes + 100; bit++) {
                unsigned char *copy = test_malloc(s.index_bytes);
                memcpy(copy, index, s.index_bytes);
                if (bit < 8 * s.index_bytes)
                    copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
                else
                    for (uint64_t i = 0; i < s.index_bytes; i++)
                        copy[i] = (unsigned char)(next_random(&random) & next_random(&random));
                int good = frugi_unit_index_check(&s, copy);
                uint64_t n = read_all(&s, copy, good, &random, back);
                uint64_t entries = 0;
                for (uint64_t i = 0; good && i < n; i++) {
                    entries += frugi_grid_size(&s.grid, back[i]);
                    assert_true(!i || back[i] > back[i - 1]);
                }
                assert_true(!good || (n == kept && entries == s.entries));
                if (good) { /* one list, one form */
                    assert_true(bit >= 8 * s.index_bytes || memcmp(back, list, kept * sizeof *list) != 0);
                    frugi_section again = s;
                    set_list(&again, (frugi_index)code, back, n);
                    again.rice = s.rice;
                    again.index_bytes = s.index_bytes;
                    unsigned char *second = encode_list(&again, back);
                    assert_memory_equal(second, copy, s.index_bytes);
                    test_free(second);
                }
                test_free(copy);
            }
            test_free(index);
        }
    }
}

/* Encodings of the same list, or nearly, that an encoder does not write. */
static void noncanonical_encodings_are_rejected(void **state) {
    (void)state;
    static const struct {
        frugi_index code;
        uint64_t units, kept;
        uint32_t rice, bytes;
        unsigned char good, index[12];
    } cases[] = {
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 2, 1, {5, 2}},
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 3, 0, {0x85, 0, 2}}, /* a longer 5 */
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 4, 0, {5, 1, 0, 1}}, /* one run as two */
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 4, 0, {5, 2, 3, 0}}, /* an empty run */
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 3, 0, {5, 2, 3}},    /* missing units at the end */
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 8, 0, {0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 2}}, /* beyond 2^32 */
        {FRUGI_INDEX_CODE_RLE, 300, 2, 0, 3, 0, {0xab, 2, 2}},                               /* 299: one unit outside */
        {FRUGI_INDEX_CODE_RICE, 300, 2, 1, 1, 1, {0x05}},    /* 1 0 1 0: units 0 and 1 */
        {FRUGI_INDEX_CODE_RICE, 300, 2, 1, 1, 0, {0x15}},    /* a bit after the last */
        {FRUGI_INDEX_CODE_RICE, 300, 2, 1, 2, 0, {0x05, 0}}, /* a byte after the last */
        {FRUGI_INDEX_CODE_RICE, 300, 2, 1, 1, 0, {0x01}},    /* truncated */
        {FRUGI_INDEX_CODE_LOCAL, 300, 2, 0, 4, 1, {1, 1, 9, 43}},
        {FRUGI_INDEX_CODE_LOCAL, 300, 2, 0, 4, 0, {1, 1, 9, 44}}, /* unit 300 of 300 */
        {FRUGI_INDEX_CODE_LOCAL, 300, 2, 0, 4, 0, {2, 0, 9, 9}},  /* twice the same */
        {FRUGI_INDEX_CODE_LOCAL, 300, 1, 0, 3, 0, {0, 2, 9}},     /* an index too few */
        {FRUGI_INDEX_CODE_LOCAL, 300, 1, 0, 4, 0, {1, 1, 9, 44}}, /* a second one, outside */
        {FRUGI_INDEX_CODE_COO, 300, 2, 0, 8, 0, {7, 0, 0, 0, 7, 0, 0, 0}},
        {FRUGI_INDEX_CODE_COO, 300, 2, 0, 8, 0, {7, 0, 0, 0, 44, 1, 0, 0}},
        {FRUGI_INDEX_CODE_CSR, 300, 2, 0, 12, 1, {0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 43, 1}},
        {FRUGI_INDEX_CODE_CSR, 300, 2, 0, 12, 0, {0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 44, 1}},
        {FRUGI_INDEX_CODE_CSR, 300, 2, 0, 12, 0, {1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 43, 1}},
        {FRUGI_INDEX_CODE_CSR, 300, 2, 0, 12, 0, {0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 43, 1}},
        {FRUGI_INDEX_CODE_CSR, 300, 2, 0, 12, 0, {0, 0, 0, 0, 3, 0, 0, 0, 7, 0, 43, 1}},
        {FRUGI_INDEX_CODE_BITMAP, 12, 2, 0, 2, 1, {1, 8}},
        {FRUGI_INDEX_CODE_BITMAP, 12, 2, 0, 2, 0, {1, 16}},
        {FRUGI_INDEX_CODE_BITMAP, 12, 2, 0, 2, 0, {3, 8}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        frugi_section s = section_of(1, cases[i].units, 1, 1);
        s.index = cases[i].code;
        s.kept = s.entries = cases[i].kept;
        s.rice = cases[i].rice;
        s.index_bytes = cases[i].bytes;
        unsigned char *tight = test_malloc(s.index_bytes);
        memcpy(tight, cases[i].index, s.index_bytes);
        if (frugi_unit_index_check(&s, tight) != cases[i].good)
            fail_msg("case %zu: expected %d", i, cases[i].good);
        test_free(tight);
    }
}

/* The sampler's units, block by block, against those of a walk that skips what it can. */
static void check_sample(frugi_section *s, uint64_t kept, uint64_t key, uint64_t *random) {
    uint64_t units = s->grid.units, n = 0;
    uint32_t *list = test_malloc(units * sizeof *list), *back = test_malloc(units * sizeof *back);
    s->index = FRUGI_INDEX_CODE_SEEDED;
    s->kept = kept;
    s->key = key;
    s->entries = 0;
    frugi_sample sample = frugi_sample_start(key, units, kept);
    for (uint64_t b = 0; b * FRUGI_SAMPLE_BLOCK < units; b++) {
        uint8_t place[FRUGI_SAMPLE_BLOCK];
        uint32_t k = frugi_sample_draw(&sample, b, place);
        for (uint32_t i = 0; i < k; i++, n++) {
            list[n] = (uint32_t)(b * FRUGI_SAMPLE_BLOCK + place[i]);
            assert_true(list[n] < units && (!n || list[n] > list[n - 1]));
            s->entries += frugi_grid_size(&s->grid, list[n]);
        }
    }
    assert_int_equal(n, kept);
    assert_true(frugi_section_measure(s));
    assert_true(frugi_unit_index_check(s, NULL));
    assert_int_equal(read_all(s, NULL, 1, random, back), kept);
    assert_memory_equal(back, list, kept * sizeof *list);
    test_free(list);
    test_free(back);
}

static void seeded_readers_return_what_the_sampler_draws(void **state) {
    (void)state;
    uint64_t random = 12;
    for (int round = 0; round < 200; round++) {
        uint64_t units = 1 + next_random(&random) % (round % 2 ? 2000 : 20000);
        uint64_t kept = 1 + next_random(&random) % (round % 3 ? units : 1 + units / 500);
        frugi_section s = section_of(1, 2 * units - (round % 4 == 0), 1, 2);
        check_sample(&s, kept, next_random(&random), &random);
    }
    for (int round = 0; round < 3000; round++) { /* so many that some draws fall exactly on the edge of a block */
        frugi_section s = section_of(1, 768, 1, 1);
        check_sample(&s, 1 + (uint64_t)round % 3, next_random(&random), &random);
    }
}

/*
 * Over 20000 keys each unit comes within 5 standard deviations of its share. Some 900 comparisons: a fair sampler
 * fails this with a chance of 1 in 1900, once and for all, since the keys are fixed.
 */
static void every_unit_is_drawn_with_equal_probability(void **state) {
    (void)state;
    enum { DRAWS = 20000 };
    static const uint32_t units[] = {300, 300, 280}, kept[] = {7, 211, 139};
    for (size_t i = 0; i < COUNT(units); i++) {
        uint32_t count[300] = {0};
        for (uint64_t key = 0; key < DRAWS; key++) {
            frugi_sample sample = frugi_sample_start(key * 0x9e3779b97f4a7c15u, units[i], kept[i]);
            for (uint32_t b = 0; b < 2; b++) {
                uint8_t place[FRUGI_SAMPLE_BLOCK];
                uint32_t k = frugi_sample_draw(&sample, b, place);
                for (uint32_t j = 0; j < k; j++)
                    count[b * FRUGI_SAMPLE_BLOCK + place[j]]++;
            }
        }
        double p = (double)kept[i] / units[i], sigma = sqrt(DRAWS * p * (1 - p));
        for (uint32_t u = 0; u < units[i]; u++)
            if (fabs(count[u] - DRAWS * p) > 5 * sigma)
                fail_msg("unit %u of %u: %u times, expected %.0f +- %.0f", u, units[i], count[u], DRAWS * p, sigma);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_encodes_every_list),
        cmocka_unit_test(long_runs_and_gaps_are_measured_exactly),
        cmocka_unit_test(extreme_lists_round_trip),
        cmocka_unit_test(the_largest_grid_is_measured),
        cmocka_unit_test(damaged_indices_are_rejected_or_valid),
        cmocka_unit_test(noncanonical_encodings_are_rejected),
        cmocka_unit_test(seeded_readers_return_what_the_sampler_draws),
        cmocka_unit_test(every_unit_is_drawn_with_equal_probability),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

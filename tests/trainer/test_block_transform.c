/* test_block_transform.c - the transform of blocks against its definition in double, and back. */
#include "support/config_helpers.h"

#include "trainer/exchange/block_transform.h"

#include <math.h>
#include <stdlib.h>

#define FIRST 10000u /* elements of the first tensor: incomplete blocks at its end for all lengths but one */
#define TOTAL 15000u

static frug_layout *make_layout(void) {
    frug_layout *layout = NULL;
    frug_tensor t = FRUG_TENSOR_INIT;
    assert_int_equal(frug_layout_create(&layout), FRUG_OK);
    t.ndim = 2;
    for (int i = 0; i < 2; i++) {
        t.name = i == 0 ? "a" : "b";
        t.offset = i == 0 ? 0 : FIRST;
        t.shape[0] = 100;
        t.shape[1] = i == 0 ? 100 : 50;
        assert_int_equal(frug_layout_add(layout, &t), FRUG_OK);
    }
    return layout;
}

static void fill(float *x) {
    uint32_t random = 1;
    for (uint32_t i = 0; i < TOTAL; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
    }
}

static fgt_transform *make_transform(const char *text, const frug_layout *layout) {
    frug_config *config = parse(text);
    fgt_transform *t = NULL;
    assert_int_equal(fgt_transform_create(config, layout, &t), 0);
    frug_config_destroy(config);
    return t;
}

static double entry(int cosine, uint32_t s, uint32_t row, uint32_t column) {
    if (cosine)
        return sqrt((row ? 2.0 : 1.0) / s) * cos(acos(-1.0) / s * (column + 0.5) * row);
    return (__builtin_popcount(row & column) % 2 ? -1.0 : 1.0) / sqrt(s);
}

/* Some coefficients of the second complete block of the second tensor, as a double sum; tolerance 2e-5. */
static void a_block_becomes_its_coefficients(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int cosine;
        uint32_t side;
    } cases[] = {{"transform=cosine,block=1024", 1, 32},
                 {"transform=cosine,block=64", 1, 8},
                 {"transform=hadamard,block=256", 0, 16}};
    frug_layout *layout = make_layout();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        static float x[TOTAL], y[TOTAL];
        fgt_transform *t = make_transform(cases[c].text, layout);
        const uint32_t s = cases[c].side, at = FIRST + s * s;
        fill(x);
        memcpy(y, x, sizeof y);
        fgt_transform_forward(t, (frug_range){0, TOTAL}, y);
        for (uint32_t n = 0; n < 9; n++) {
            uint32_t p = n * 5 % s, q = n * 3 % s;
            double sum = 0;
            for (uint32_t i = 0; i < s; i++)
                for (uint32_t j = 0; j < s; j++)
                    sum +=
                        entry(cases[c].cosine, s, p, i) * (double)x[at + i * s + j] * entry(cases[c].cosine, s, q, j);
            assert_true(fabs((double)y[at + p * s + q] - sum) < 2e-5);
        }
        fgt_transform_destroy(t);
    }
    frug_layout_destroy(layout);
}

/* A range in parts gives the bits of the whole, incomplete blocks are unchanged, and the inverse restores to 1e-5. */
static void the_inverse_restores_what_was_there(void **state) {
    (void)state;
    static float x[TOTAL], whole[TOTAL], parts[TOTAL];
    frug_layout *layout = make_layout();
    fgt_transform *t = make_transform("demo", layout);
    fill(x);
    memcpy(whole, x, sizeof whole);
    memcpy(parts, x, sizeof parts);
    fgt_transform_forward(t, (frug_range){0, TOTAL}, whole);
    fgt_transform_forward(t, (frug_range){0, 4096}, parts);
    fgt_transform_forward(t, (frug_range){4096, TOTAL - 4096}, parts + 4096);
    assert_memory_equal(whole, parts, sizeof whole);
    assert_memory_equal(whole + 8192, x + 8192, (FIRST - 8192) * sizeof *x);
    assert_memory_equal(whole + FIRST + 4096, x + FIRST + 4096, (TOTAL - FIRST - 4096) * sizeof *x);
    assert_memory_not_equal(whole, x, 4096 * sizeof *x);
    fgt_transform_inverse(t, (frug_range){0, TOTAL}, whole);
    for (uint32_t i = 0; i < TOTAL; i++)
        assert_true(fabsf(whole[i] - x[i]) < 1e-5f);
    fgt_transform_destroy(t);
    frug_layout_destroy(layout);
}

static void without_the_option_nothing_happens(void **state) {
    (void)state;
    float x[2] = {1, 2};
    frug_layout *layout = make_layout();
    fgt_transform *t = make_transform("frugrad", layout);
    assert_null(t);
    fgt_transform_forward(t, (frug_range){0, 2}, x);
    fgt_transform_inverse(t, (frug_range){0, 2}, x);
    assert_true(x[0] == 1 && x[1] == 2);
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_block_becomes_its_coefficients),
                                       cmocka_unit_test(the_inverse_restores_what_was_there),
                                       cmocka_unit_test(without_the_option_nothing_happens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

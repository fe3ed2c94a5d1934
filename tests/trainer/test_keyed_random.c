/*
 * test_keyed_random.c - the trainer's random numbers: uniform and normal draws have the right moments; adjacent
 * counters, streams and seeds are independent. Five standard deviations are allowed; seeds are fixed.
 */
#include "trainer/base/keyed_random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 200000 };

static void every_bit_is_unbiased(void **state) {
    int ones[64] = {0};
    (void)state;
    for (uint64_t i = 0; i < N; i++)
        for (int b = 0; b < 64; b++)
            ones[b] += (int)(fgt_random(11, FGT_STREAM_DROPOUT, i) >> b & 1);
    for (int b = 0; b < 64; b++)
        assert_true(fabs(ones[b] - N / 2.0) < 5 * sqrt(N / 4.0));
}

static void uniform_draws_are_uniform(void **state) {
    int cells[100] = {0};
    double chi = 0;
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        float u = fgt_uniform(fgt_random(12, 1, i));
        assert_true(u >= 0 && u < 1);
        cells[(int)(u * 100)]++;
    }
    for (int c = 0; c < 100; c++)
        chi += (cells[c] - N / 100.0) * (cells[c] - N / 100.0) / (N / 100.0);
    assert_true(fabs(chi - 99) < 5 * sqrt(2 * 99));
    assert_true(fgt_uniform(UINT64_MAX) < 1);
    assert_true(fgt_uniform(0) == 0);
}

static void normal_draws_are_normal(void **state) {
    double sum[5] = {0};
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        double x = (double)fgt_normal(fgt_random(13, FGT_STREAM_WEIGHTS, i)), power = 1;
        for (int k = 1; k < 5; k++)
            sum[k] += power *= x;
    }
    assert_true(fabs(sum[1] / N) < 5 / sqrt(N));
    assert_true(fabs(sum[2] / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(sum[3] / N) < 5 * sqrt(15.0 / N));
    assert_true(fabs(sum[4] / N - 3) < 5 * sqrt(96.0 / N));
    assert_true(isfinite(fgt_normal(0)) && isfinite(fgt_normal(UINT64_MAX)));
}

/* Bits in which adjacent draws agree: 32 of 64 on average, whichever of the three words differs. */
static void adjacent_counters_are_independent(void **state) {
    double same[3] = {0};
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t here = fgt_random(14, 2, i);
        same[0] += 64 - __builtin_popcountll(here ^ fgt_random(14, 2, i + 1));
        same[1] += 64 - __builtin_popcountll(here ^ fgt_random(14, 3, i));
        same[2] += 64 - __builtin_popcountll(here ^ fgt_random(15, 2, i));
    }
    for (int k = 0; k < 3; k++)
        assert_true(fabs(same[k] / N - 32) < 5 * 4 / sqrt(N));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_is_unbiased),
        cmocka_unit_test(uniform_draws_are_uniform),
        cmocka_unit_test(normal_draws_are_normal),
        cmocka_unit_test(adjacent_counters_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

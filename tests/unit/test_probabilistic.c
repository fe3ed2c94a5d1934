/* test_probabilistic.c - sampling by magnitude: probabilities, expectation, count, variance. */
#include "support/assertions.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "select/probabilistic.h"

#include <float.h>
#include <math.h>

#define SMALL 200u
#define DRAWS 50000u

static double probability(float x, float unit) {
    double p = fabs((double)x) / (double)unit;
    return x == 0 ? 0 : p < 1 ? p : 1; /* a unit of 0 gives infinity, so 1 */
}

static double sum_of_probabilities(const float *x, uint64_t n, float unit) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += probability(x[i], unit);
    return sum;
}

static float *heavy_array(uint64_t n, uint64_t seed) {
    float *x = test_malloc(n * sizeof *x);
    uint64_t random = seed;
    for (uint64_t i = 0; i < n; i++) {
        float v = next_float(&random);
        x[i] = i % 9 == 4 ? 0.0f : next_float(&random) / (1e-4f + v * v);
    }
    return x;
}

/* dice[j]: half of them evenly spread, half random. */
static uint32_t random_at(uint32_t j) {
    return j % 2 ? frugi_random(1, 2, j) : (uint32_t)(((uint64_t)j << 32) / DRAWS);
}

/* Over 50000 draws each entry is sent as often as its probability, and sent as the scale its mean is the entry. 5
 * standard deviations of independent draws, plus the step of the evenly spread half. */
static void every_entry_is_sent_with_its_probability(void **state) {
    (void)state;
    frugi_topk *whole = frugi_topk_create(1);
    float *x = heavy_array(SMALL, 3);
    frugi_float_array span = {x, SMALL};
    float unit = frugi_probabilistic_scale(whole, &span, 1, 20, 1);
    uint32_t times[SMALL] = {0}, sure[SMALL], drawn[SMALL];
    for (uint32_t j = 0; j < DRAWS; j++) {
        uint64_t sures, draws;
        frugi_probabilistic_draw(whole, &span, unit, random_at(j), sure, &sures, drawn, &draws, 1);
        for (uint64_t i = 0; i < sures; i++)
            times[sure[i]]++;
        for (uint64_t i = 0; i < draws; i++)
            times[drawn[i]]++;
    }
    int certain = 0;
    for (uint32_t i = 0; i < SMALL; i++) {
        double p = probability(x[i], unit), mean = times[i] / (double)DRAWS, slack = sqrt(p * (1 - p) / DRAWS);
        assert_true(fabs(mean - p) <= 5 * slack + (p < 1 && p > 0 ? 4.0 / DRAWS : 0));
        double sent = p < 1 ? (double)unit * mean : fabs((double)x[i]) * mean;
        assert_true(fabs(sent - fabs((double)x[i])) <= (5 * slack + 4.0 / DRAWS) * (double)unit);
        certain += p == 1;
    }
    assert_true(certain > 0 && certain < 20);
    frugi_topk_destroy(whole);
    test_free(x);
}

/* The scale is the smallest bf16 whose probabilities add up to at most k: never above k, one step less is. */
static void scale_is_the_smallest_sufficient_one(void **state) {
    (void)state;
    frugi_topk *whole = frugi_topk_create(3);
    for (uint64_t n = 1; n < 200000; n = n * 5 + 3) {
        float *x = n % 2 ? bell_array(n, n) : heavy_array(n, n);
        frugi_float_array span[2] = {{x, n / 3}, {x + n / 3, n - n / 3}};
        uint64_t filled = frugi_topk_count(whole, span, 2, 1, 1);
        for (uint64_t k = 1; k <= n; k = k * 3 + 1) {
            float unit = frugi_probabilistic_scale(whole, span, 2, k, 1 + (int)(k % 3));
            assert_true((unit == 0) == (filled <= k));
            if (unit == 0)
                continue;
            uint32_t bits = frugi_f32_bits(unit);
            assert_int_equal(bits & 0xffffu, 0);
            assert_true(sum_of_probabilities(x, n, unit) <= (double)k * (1 + 1e-12));
            assert_true(sum_of_probabilities(x, n, frugi_bits_f32(bits - 0x10000u)) > (double)k * (1 - 1e-12));
            assert_true(sum_of_probabilities(x, n, unit) >
                        (double)k * (1 - 1.0 / 64)); /* what a step of bf16 can cost */
        }
        test_free(x);
    }
    frugi_topk_destroy(whole);
}

static void scales_of_unusual_arrays(void **state) {
    (void)state;
    frugi_topk *whole = frugi_topk_create(1);
    float same[8], huge[8], tiny[8], none[8] = {0}, mixed[8] = {0, -0.0f, 5, 0, -7, 0, 0, 0};
    for (int i = 0; i < 8; i++) {
        same[i] = i % 2 ? -1.0f : 1.0f;
        huge[i] = FLT_MAX;
        tiny[i] = FLT_TRUE_MIN;
    }
    assert_true(frugi_probabilistic_scale(whole, &(frugi_float_array){same, 8}, 1, 4, 1) == 2.0f);
    assert_true(frugi_probabilistic_scale(whole, &(frugi_float_array){same, 8}, 1, 8, 1) == 0.0f);
    assert_true(frugi_probabilistic_scale(whole, &(frugi_float_array){none, 8}, 1, 1, 1) == 0.0f);
    assert_true(frugi_probabilistic_scale(whole, &(frugi_float_array){mixed, 8}, 1, 2, 1) == 0.0f);
    assert_true(frugi_probabilistic_scale(whole, &(frugi_float_array){mixed, 8}, 1, 1, 1) == 12.0f);
    assert_true(frugi_probabilistic_scale(whole, &(frugi_float_array){tiny, 8}, 1, 1, 1) ==
                0x1p-133f); /* the smallest bf16 */
    assert_true(isinf(frugi_probabilistic_scale(whole, &(frugi_float_array){huge, 8}, 1, 4, 1)));
    uint32_t sure[8], drawn[8];
    uint64_t sures, draws;
    frugi_probabilistic_draw(whole, &(frugi_float_array){huge, 8}, INFINITY, UINT32_MAX, sure, &sures, drawn, &draws,
                             1);
    assert_true(sures == 0 && draws == 0);
    frugi_probabilistic_draw(whole, &(frugi_float_array){mixed, 8}, 0.0f, UINT32_MAX, sure, &sures, drawn, &draws, 1);
    assert_true(sures == 2 && draws == 0 && sure[0] == 2 && sure[1] == 4);
    frugi_probabilistic_draw(whole, &(frugi_float_array){tiny, 8}, 0x1p-133f, 0, sure, &sures, drawn, &draws, 1);
    assert_true(sures == 0 && draws == 0); /* eight chances of 2^-16 */
    frugi_topk_destroy(whole);
}

/* Places ascend, no place is in both lists, the number is k or k + 1 at most, nothing more is written, and threads do
 * not matter. */
static void draws_do_not_depend_on_threads(void **state) {
    (void)state;
    uint64_t n = 90000, k = 5000;
    frugi_topk *whole = frugi_topk_create(5);
    float *x = heavy_array(n, 8);
    frugi_float_array span = {x, n};
    uint32_t *list[2][2];
    for (int i = 0; i < 4; i++)
        list[i / 2][i % 2] = test_malloc((k + 2) * sizeof(uint32_t));
    for (uint32_t dice = 5; dice < 0xf0000000u; dice += 0x23456789u) {
        float unit = frugi_probabilistic_scale(whole, &span, 1, k, 1);
        uint64_t sures, draws, more, others;
        frugi_probabilistic_draw(whole, &span, unit, dice, list[0][0], &sures, list[0][1], &draws, 1);
        assert_true(sures > 0 && draws > 0 && sures + draws <= k + 1 && sures + draws + 1 >= k - k / 64);
        for (uint64_t i = 0; i < sures; i++)
            assert_true(fabsf(x[list[0][0][i]]) >= unit && (!i || list[0][0][i] > list[0][0][i - 1]));
        for (uint64_t i = 0; i < draws; i++)
            assert_true(fabsf(x[list[0][1][i]]) < unit && (!i || list[0][1][i] > list[0][1][i - 1]));
        for (int threads = 2; threads <= 5; threads++) {
            assert_true(frugi_probabilistic_scale(whole, &span, 1, k, threads) == unit);
            list[1][0][sures] = list[1][1][draws] = 77;
            frugi_probabilistic_draw(whole, &span, unit, dice, list[1][0], &more, list[1][1], &others, threads);
            assert_true(more == sures && others == draws);
            assert_memory_equal(list[0][0], list[1][0], sures * sizeof(uint32_t));
            assert_memory_equal(list[0][1], list[1][1], draws * sizeof(uint32_t));
            assert_true(list[1][0][sures] == 77 && list[1][1][draws] == 77);
        }
    }
    for (int i = 0; i < 4; i++)
        test_free(list[i / 2][i % 2]);
    frugi_topk_destroy(whole);
    test_free(x);
}

/* E |Q - v|^2, from the chances and measured over 2000 draws (within 10 %), is no more than with equal chances k / n.
 */
static void variance_is_no_more_than_uniform(void **state) {
    (void)state;
    frugi_topk *whole = frugi_topk_create(1);
    for (int heavy = 0; heavy < 2; heavy++) {
        uint64_t n = 500, k = 40;
        float *x = heavy ? heavy_array(n, 4) : bell_array(n, 4);
        frugi_float_array span = {x, n};
        float unit = frugi_probabilistic_scale(whole, &span, 1, k, 1);
        double total = sum_of_probabilities(x, n, unit), expected = 0, uniform = 0, measured = 0;
        for (uint64_t i = 0; i < n; i++) {
            double v = fabs((double)x[i]), p = probability(x[i], unit);
            expected += p > 0 ? v * v * (1 / p - 1) : 0;
            uniform += v * v * ((double)n / total - 1);
        }
        for (uint32_t j = 0; j < 2000; j++) {
            uint32_t sure[500], drawn[500];
            uint64_t sures, draws;
            frugi_probabilistic_draw(whole, &span, unit, frugi_random(9, 9, j), sure, &sures, drawn, &draws, 1);
            for (uint64_t i = 0; i < n; i++) /* all that are not sure stay, ... */
                measured += fabsf(x[i]) < unit ? (double)x[i] * (double)x[i] / 2000 : 0;
            for (uint64_t i = 0; i < draws; i++) { /* ... except the drawn ones */
                double v = fabs((double)x[drawn[i]]), d = (double)unit - v;
                measured += (d * d - v * v) / 2000;
            }
        }
        assert_true(expected <= uniform);
        assert_true(fabs(measured - expected) <= 0.1 * expected);
        test_free(x);
    }
    frugi_topk_destroy(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_sent_with_its_probability),
        cmocka_unit_test(scale_is_the_smallest_sufficient_one),
        cmocka_unit_test(scales_of_unusual_arrays),
        cmocka_unit_test(draws_do_not_depend_on_threads),
        cmocka_unit_test(variance_is_no_more_than_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

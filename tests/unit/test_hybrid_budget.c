/* test_hybrid_budget.c - claims of blocks, and counts that keep the budget. */
#include "support/assertions.h"

#include "base/float_bits.h"
#include "select/hybrid_budget.h"

#define BLOCKS 300u

/* The claims add up to k, and block by block they are what the cut lets through, for 1 to 5 threads. */
static void claims_count_the_entries_that_pass_the_cutoff(void **state) {
    (void)state;
    frugi_topk *whole = frugi_topk_create(1);
    uint64_t random = 4, n = 64 * 700 + 17;
    for (int kind = 0; kind < 3; kind++) {
        float *x = bell_array(n, 5);
        for (uint64_t i = 0; i < n && kind; i++)
            x[i] = kind == 1 ? (float)(int)(x[i] * 1.5f) : 1.0f; /* ties, all equal */
        for (uint64_t k = 1; k <= n; k = k * 3 + next_random(&random) % 5)
            for (int threads = 1; threads <= 5; threads++) {
                frugi_float_array span[2] = {{x, 64 * 100 + 9}, {x + 64 * 100 + 9, n - 64 * 100 - 9}};
                frugi_cutoff cut = frugi_topk_cutoff(whole, span, 2, k, 1), same = cut;
                uint64_t sum = 0;
                for (int s = 0; s < 2; s++) {
                    uint16_t claim[700];
                    uint32_t *list = test_malloc((n + 1) * sizeof *list);
                    uint64_t got = frugi_topk_emit(whole, &span[s], &same, list, NULL, 1), at = 0;
                    frugi_hybrid_count_claims(whole, &span[s], 64, &cut, claim, threads);
                    assert_int_equal(cut.ties, same.ties);
                    for (uint64_t b = 0; b * 64 < span[s].n; b++) {
                        uint64_t want = 0;
                        for (; at < got && list[at] < (b + 1) * 64; at++)
                            want++;
                        assert_int_equal(claim[b], want);
                        sum += claim[b];
                    }
                    test_free(list);
                }
                assert_int_equal(sum, k);
            }
        test_free(x);
    }
    frugi_topk_destroy(whole);
}

/* The reference: the rule of the header, one entry at a time. */
static void fit_budget_reference(uint16_t *count, const uint32_t *limit, uint64_t blocks, uint64_t budget) {
    uint64_t sum = 0;
    for (uint64_t b = 0; b < blocks; b++) {
        count[b] = (uint16_t)(count[b] < 1 ? 1 : count[b] > limit[b] ? limit[b] : count[b]);
        sum += count[b];
    }
    for (int moved = 1; moved && sum != budget;) {
        moved = 0;
        for (uint64_t b = 0; b < blocks && sum != budget; b++) {
            int step = sum < budget ? count[b] < limit[b] : -(count[b] > 1);
            count[b] = (uint16_t)(count[b] + step);
            sum += (uint64_t)(int64_t)step;
            moved |= step != 0;
        }
    }
}

static void counts_add_up_to_the_budget(void **state) {
    (void)state;
    static const uint64_t blocks_of[3] = {100, 1, 199};
    static const uint32_t last[3] = {256, 3, 100};
    uint64_t random = 21;
    for (int trial = 0; trial < 400; trial++) {
        uint32_t most = 1 + (uint32_t)(next_random(&random) % 255), limit[BLOCKS];
        uint64_t all = 0, sum = 0;
        uint16_t count[BLOCKS], want[BLOCKS];
        for (uint32_t b = 0; b < BLOCKS; b++) {
            uint32_t length = b == 100 ? 3 : b == 299 ? 100 : 256;
            limit[b] = length < most ? length : most;
            all += limit[b];
            count[b] = (uint16_t)(next_random(&random) % (trial % 3 ? 40 : 257));
            want[b] = count[b];
        }
        uint64_t budget = trial % 8 == 0   ? 7
                          : trial % 8 == 1 ? all + 9
                                           : BLOCKS + next_random(&random) % (all - BLOCKS + 1);
        frugi_hybrid_fit_budget(count, blocks_of, last, 3, 256, most, budget);
        fit_budget_reference(want, limit, BLOCKS, budget);
        assert_memory_equal(count, want, sizeof count);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            assert_true(count[b] >= 1 && count[b] <= limit[b]);
            sum += count[b];
        }
        assert_int_equal(sum, budget < BLOCKS ? BLOCKS : budget > all ? all : budget);
    }
}

/* Among blocks of one length, a larger claim gets at least as much, but for the one entry that a round's end may cost.
 */
static void larger_claims_never_get_smaller_counts(void **state) {
    (void)state;
    const uint64_t blocks_of = BLOCKS;
    const uint32_t last = 256;
    uint64_t random = 22;
    for (int trial = 0; trial < 50; trial++) {
        uint16_t claim[BLOCKS], count[BLOCKS];
        for (uint32_t b = 0; b < BLOCKS; b++)
            claim[b] = count[b] = (uint16_t)(next_random(&random) % 60);
        frugi_hybrid_fit_budget(count, &blocks_of, &last, 1, 256, 48, BLOCKS + next_random(&random) % (BLOCKS * 40));
        for (uint32_t a = 0; a < BLOCKS; a++)
            for (uint32_t b = 0; b < BLOCKS; b++)
                assert_true(claim[a] <= claim[b] || count[a] + 1 >= count[b]);
    }
}

static void frequent_blocks_get_more_within_limits(void **state) {
    (void)state;
    uint8_t often[16];
    uint16_t claim[16], even[4] = {10, 10, 10, 10};
    for (uint32_t b = 0; b < 16; b++) {
        often[b] = (uint8_t)(b < 15 ? 0 : 15); /* the mean is 15 / 16 */
        claim[b] = 10;
    }
    frugi_hybrid_scale_by_frequency(claim, often, 16, 100);
    assert_int_equal(claim[15], 20); /* sqrt(16 / 1.9375) = 2.87, so 2 */
    assert_int_equal(claim[0], 7);   /* sqrt(1 / 1.9375) = 0.718 */
    claim[15] = 90;
    frugi_hybrid_scale_by_frequency(claim, often, 16, 100);
    assert_int_equal(claim[15], 100);
    frugi_hybrid_scale_by_frequency(even, (const uint8_t[]){3, 3, 3, 3}, 4, 100);
    for (int b = 0; b < 4; b++)
        assert_int_equal(even[b], 10);
}

static void counters_rise_to_fifteen_and_halve(void **state) {
    (void)state;
    uint8_t often[4] = {0};
    const uint16_t count[4] = {1, 5, 3, 3}; /* the mean is 3 */
    for (uint64_t step = 0; step < 255; step++) {
        frugi_hybrid_update_frequency(count, often, 4, step);
        assert_int_equal(often[1], step < 15 ? step + 1 : 15);
        assert_true(often[0] == 0 && often[2] == 0 && often[3] == 0);
    }
    frugi_hybrid_update_frequency(count, often, 4, 255);
    assert_int_equal(often[1], 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_count_the_entries_that_pass_the_cutoff),
        cmocka_unit_test(counts_add_up_to_the_budget),
        cmocka_unit_test(larger_claims_never_get_smaller_counts),
        cmocka_unit_test(frequent_blocks_get_more_within_limits),
        cmocka_unit_test(counters_rise_to_fifteen_and_halve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

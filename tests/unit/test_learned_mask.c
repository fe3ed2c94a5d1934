/* test_learned_mask.c - learned masks: scores, refreshing, waiting, saving. */
#include "support/assertions.h"

#include "select/learned_mask.h"

#include <math.h>

#define UNITS 500u

typedef struct fixture {
    frugi_learned learned;
    frugi_topk *whole;
    float energy[UNITS], scratch[UNITS];
    uint32_t list[UNITS];
    uint8_t sent[UNITS];
} fixture;

static void create_fixture(fixture *w, uint64_t units) {
    memset(w, 0, sizeof *w);
    w->whole = frugi_topk_create(3);
    assert_non_null(w->whole);
    OK(frugi_learned_create(units, &w->learned));
    assert_int_equal(w->learned.fresh, 1);
}

static void destroy_fixture(fixture *w) {
    frugi_learned_destroy(&w->learned);
    frugi_topk_destroy(w->whole);
}

/* Run a step and mark the units that were sent: k of them, ascending. */
static void run_step(fixture *w, uint64_t k, uint64_t step, uint64_t refresh, uint64_t age, int threads) {
    uint64_t got =
        frugi_learned_step(&w->learned, w->whole, w->energy, k, step, refresh, age, 0.01, w->scratch, w->list, threads);
    assert_int_equal(got, k);
    memset(w->sent, 0, sizeof w->sent);
    for (uint64_t i = 0; i < got; i++) {
        assert_true(w->list[i] < w->learned.units && (i == 0 || w->list[i] > w->list[i - 1]));
        w->sent[w->list[i]] = 1;
    }
}

static void random_energy(fixture *w, uint64_t *random) {
    for (uint64_t u = 0; u < w->learned.units; u++)
        w->energy[u] = fabsf(next_float(random)) * (u % 7 == 3 ? 5.0f : 1.0f);
}

static void scores_follow_the_formula(void **state) {
    (void)state;
    fixture w;
    create_fixture(&w, 4);
    const float energy[4] = {1, 2, 3, 10}; /* the mean is 4 */
    memcpy(w.energy, energy, sizeof energy);
    run_step(&w, 1, 0, 10, 100, 1);
    for (int u = 0; u < 4; u++)
        assert_true(w.learned.score[u] == (float)(0.01 * ((double)energy[u] / 4 - 1)));
    assert_true(w.sent[3]);
    float before[4];
    memcpy(before, w.learned.score, sizeof before);
    memset(w.energy, 0, sizeof w.energy); /* nothing to learn from nothing */
    run_step(&w, 1, 1, 10, 100, 1);
    assert_memory_equal(before, w.learned.score, sizeof before);
    destroy_fixture(&w);
}

/* With scores of both signs, the mask is the top of a sort for any k. */
static void mask_is_the_highest_scores(void **state) {
    (void)state;
    fixture w;
    uint64_t random = 3;
    for (uint64_t k = 1; k <= UNITS; k += 31) {
        create_fixture(&w, UNITS);
        random_energy(&w, &random);
        for (uint32_t u = 0; u < 40; u++)
            w.energy[u * 3] = w.energy[0]; /* ties */
        run_step(&w, k, 5, 10, 100, 1 + (int)(k % 3));
        for (uint32_t u = 0; u < UNITS; u++) {
            uint64_t before = 0;
            for (uint32_t v = 0; v < UNITS; v++)
                before += w.learned.score[v] > w.learned.score[u] ||
                          (w.learned.score[v] == w.learned.score[u] && v < u); /* sent before u */
            assert_int_equal(w.sent[u], before < k);
            assert_int_equal(w.learned.mask[u], w.sent[u]);
        }
        destroy_fixture(&w);
    }
}

static void mask_changes_only_when_refreshed(void **state) {
    (void)state;
    fixture w;
    uint64_t random = 4, changes = 0;
    create_fixture(&w, UNITS);
    for (uint64_t step = 3; step < 83; step++) { /* a fresh mask at the first step, then at 10, 20, ... */
        uint8_t before[UNITS];
        memcpy(before, w.learned.mask, UNITS);
        random_energy(&w, &random);
        run_step(&w, 50, step, 10, 1000, 1);
        int same = memcmp(before, w.learned.mask, UNITS) == 0;
        assert_true(same || step == 3 || step % 10 == 0);
        changes += !same;
        assert_memory_equal(w.sent, w.learned.mask, UNITS);
    }
    assert_true(changes > 5);
    destroy_fixture(&w);
}

/* Fewer than the mask: its highest scores. More: all of it and the highest scores of the rest. */
static void changed_counts_are_selected_by_score(void **state) {
    (void)state;
    fixture w;
    uint64_t random = 5;
    create_fixture(&w, UNITS);
    random_energy(&w, &random);
    run_step(&w, 100, 0, 1000, 1000, 1);
    for (uint64_t k = 20; k <= 400; k += 76) {
        random_energy(&w, &random);
        run_step(&w, k, 1, 1000, 1000, 1);
        for (uint32_t u = 0; u < UNITS; u++)
            for (uint32_t v = 0; v < UNITS; v++)
                if (w.sent[u] && !w.sent[v])
                    assert_true(w.learned.mask[u] > w.learned.mask[v] ||
                                (w.learned.mask[u] == w.learned.mask[v] && w.learned.score[u] >= w.learned.score[v]));
    }
    destroy_fixture(&w);
}

/* No unit waits longer than age + ceil(units / k) - 1 steps, though the mask never wants it, and the bound is reached
 * when all fall due at once. */
static void waiting_is_bounded(void **state) {
    (void)state;
    static const uint64_t cases[][3] = {{100, 7, 40}, {100, 1, 3}, {31, 30, 1}, {97, 10, 0}, {12, 12, 5}, {500, 40, 9}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint64_t units = cases[c][0], k = cases[c][1], age = cases[c][2], bound = age + (units + k - 1) / k - 1;
        uint32_t longest = 0;
        fixture w;
        create_fixture(&w, units);
        for (uint64_t u = 0; u < units; u++)
            w.energy[u] = u < k ? 100.0f : 1.0f; /* always the same units */
        for (uint64_t step = 0; step < 3 * bound + 200; step++) {
            run_step(&w, k, step, 20, age, 1);
            for (uint64_t u = 0; u < units; u++) {
                assert_true(w.learned.waited[u] <= bound);
                longest = longest > w.learned.waited[u] ? longest : w.learned.waited[u];
            }
        }
        assert_true(longest + 1 >= (k < units ? bound : 1));
        destroy_fixture(&w);
    }
}

/* Same energies, same lists: for any threads, and after saving and restoring in the middle. */
static void a_restored_mask_continues_identically(void **state) {
    (void)state;
    fixture a, b;
    uint64_t random = 6;
    create_fixture(&a, UNITS);
    create_fixture(&b, UNITS);
    for (uint64_t step = 0; step < 60; step++) {
        random_energy(&a, &random);
        memcpy(b.energy, a.energy, sizeof a.energy);
        run_step(&a, 30, step, 7, 11, 1);
        run_step(&b, 30, step, 7, 11, 3);
        assert_memory_equal(a.list, b.list, 30 * sizeof *a.list);
        if (step % 13 == 5) {
            size_t bytes = frugi_learned_bytes(&b.learned);
            unsigned char *saved = test_malloc(bytes + 1);
            saved[bytes] = 0xa5;
            frugi_learned_export(&b.learned, saved);
            assert_int_equal(saved[bytes], 0xa5);
            frugi_learned_destroy(&b.learned);
            OK(frugi_learned_create(UNITS, &b.learned));
            assert_true(frugi_learned_check(&b.learned, saved));
            frugi_learned_import(&b.learned, saved);
            test_free(saved);
        }
    }
    destroy_fixture(&a);
    destroy_fixture(&b);
}

static void invalid_states_are_rejected(void **state) {
    (void)state;
    fixture w;
    create_fixture(&w, 10);
    size_t bytes = frugi_learned_bytes(&w.learned);
    unsigned char *saved = test_malloc(bytes);
    frugi_learned_export(&w.learned, saved);
    assert_true(frugi_learned_check(&w.learned, saved));
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        memcpy(saved + 4 * 9, &bad[i], 4);
        assert_false(frugi_learned_check(&w.learned, saved));
    }
    memset(saved + 4 * 9, 0, 4);
    saved[80] = 2; /* a mask */
    assert_false(frugi_learned_check(&w.learned, saved));
    saved[80] = 1;
    memset(saved + 40, 0xff, 40); /* waited: anything */
    assert_true(frugi_learned_check(&w.learned, saved));
    frugi_learned_import(&w.learned, saved);
    run_step(&w, 3, 1, 5, 5, 1);
    assert_true(w.sent[0] && w.sent[1] && w.sent[2] && w.learned.waited[9] == UINT32_MAX);
    saved[bytes - 1] = 2; /* fresh */
    assert_false(frugi_learned_check(&w.learned, saved));
    test_free(saved);
    destroy_fixture(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_follow_the_formula),
        cmocka_unit_test(mask_is_the_highest_scores),
        cmocka_unit_test(mask_changes_only_when_refreshed),
        cmocka_unit_test(changed_counts_are_selected_by_score),
        cmocka_unit_test(waiting_is_bounded),
        cmocka_unit_test(a_restored_mask_continues_identically),
        cmocka_unit_test(invalid_states_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

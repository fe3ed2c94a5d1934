/* test_prune.c - the selection of frugrad prune, against a sort. */
#include "support/assertions.h"

#include "program/deploy/prune_scores.h"

#include <stdlib.h>

enum { MOST = 500 };

typedef struct ranked {
    float score;
    size_t index;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score < y->score || x->score > y->score)
        return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Few different values, so that there are ties, zeros and denormals among them. */
static void fill(float *score, size_t n, uint64_t seed) {
    static const float values[] = {0.0f, 1e-42f, 0.5f, 0.50001f, 3e38f, 1.0f, 2.0f};
    uint64_t state = seed + 1;
    for (size_t i = 0; i < n; i++)
        score[i] = values[next_random(&state) % 7];
}

static void check_group(const float *before, const float *after, size_t n, size_t keep) {
    ranked order[MOST];
    for (size_t i = 0; i < n; i++)
        order[i] = (ranked){before[i], i};
    qsort(order, n, sizeof *order, by_rank);
    for (size_t i = 0; i < n; i++)
        assert_true(after[order[i].index] == (i < keep ? order[i].score : -1.0f));
}

static void the_highest_scores_are_kept(void **state) {
    (void)state;
    float score[MOST], before[MOST];
    for (size_t n = 1; n <= MOST; n += 37)
        for (size_t keep = 0; keep <= n; keep += 1 + n / 5) {
            fill(before, n, n + keep);
            memcpy(score, before, sizeof score);
            fgp_prune_lowest(score, n, keep);
            check_group(before, score, n, keep);
        }
}

static void n_of_m_are_kept(void **state) {
    (void)state;
    static const uint32_t patterns[][2] = {{2, 4}, {4, 8}, {1, 2}, {3, 64}};
    float score[MOST], before[MOST];
    for (size_t p = 0; p < 4; p++) {
        const uint32_t n = patterns[p][0], m = patterns[p][1];
        fill(before, MOST - 1, p);
        memcpy(score, before, sizeof score);
        fgp_prune_n_of_m(score, MOST - 1, n, m);
        for (size_t i = 0; i < MOST - 1; i += m) {
            size_t length = MOST - 1 - i < m ? MOST - 1 - i : m;
            check_group(before + i, score + i, length, length < n ? length : n);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_scores_are_kept),
        cmocka_unit_test(n_of_m_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

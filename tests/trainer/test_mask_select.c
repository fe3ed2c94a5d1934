/* test_mask_select.c - the largest of many scores, and N of every M, against a sort. */
#include "support/assertions.h"

#include "trainer/sparse/mask_select.h"

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

/* selected: the bits from `first` on. */
static void check_group(const float *score, const uint8_t *selected, size_t first, size_t n, size_t keep) {
    ranked order[MOST];
    for (size_t i = 0; i < n; i++)
        order[i] = (ranked){score[first + i], i};
    qsort(order, n, sizeof *order, by_rank);
    for (size_t i = 0; i < n; i++)
        assert_true(fgt_mask_bit(selected, first + order[i].index) == (i < keep));
}

static void the_highest_scores_are_kept(void **state) {
    (void)state;
    float score[MOST];
    for (size_t n = 1; n <= MOST; n += 37)
        for (size_t keep = 0; keep <= n + 1; keep += 1 + n / 5) {
            uint8_t selected[MOST / 8 + 1] = {0};
            fill(score, n, n + keep);
            fgt_candidates all = {.score = score, .count = n, .selected = selected};
            fgt_select_largest(&all, 1, keep);
            check_group(score, selected, 0, n, keep);
        }
}

static void n_of_m_are_kept(void **state) {
    (void)state;
    static const uint32_t patterns[][2] = {{2, 4}, {4, 8}, {1, 2}, {3, 64}};
    float score[MOST];
    for (size_t p = 0; p < 4; p++) {
        const uint32_t n = patterns[p][0], m = patterns[p][1];
        const fgt_group_rows row = {1, MOST - 1, MOST - 1, 1};
        uint8_t selected[MOST / 8 + 1] = {0};
        fill(score, MOST - 1, p);
        fgt_select_n_of_m(&row, score, n, m, selected);
        for (size_t i = 0; i < MOST - 1; i += m) {
            size_t length = MOST - 1 - i < m ? MOST - 1 - i : m;
            check_group(score, selected, i, length, length < m ? length : n); /* what is left over stays */
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

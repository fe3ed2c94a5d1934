/* test_unit_score.c - scores of units against plain sums, tile by tile. */
#include "support/assertions.h"

#include "select/unit_score.h"

#include <float.h>
#include <math.h>

static double plain_score(const frugi_grid *g, const float *x, uint64_t u, frugi_score how) {
    frugi_tile t = frugi_grid_tile(g, u);
    double sum = 0;
    for (uint64_t r = 0; r < t.h; r++)
        for (uint64_t c = 0; c < t.w; c++) {
            double m = fabs((double)x[t.at + r * g->cols + c]);
            sum = how == FRUGI_SCORE_L2 ? sum + m * m : how == FRUGI_SCORE_L1 ? sum + m : m > sum ? m : sum;
        }
    return sum;
}

static const frugi_grid grids[] = {
    {.rows = 1, .cols = 1, .h = 1, .w = 1},     {.rows = 7, .cols = 13, .h = 1, .w = 1},
    {.rows = 1, .cols = 1000, .h = 1, .w = 16}, {.rows = 30, .cols = 77, .h = 1, .w = 77},
    {.rows = 60, .cols = 700, .h = 60, .w = 1}, {.rows = 64, .cols = 64, .h = 8, .w = 8},
    {.rows = 37, .cols = 91, .h = 8, .w = 8},   {.rows = 9, .cols = 8300, .h = 4, .w = 4},
    {.rows = 5, .cols = 1025, .h = 2, .w = 33}, {.rows = 16, .cols = 40, .h = 16, .w = 40},
    {.rows = 3, .cols = 4200, .h = 3, .w = 1},
};

/* Within 1e-6 of the plain sum (the float's own rounding is 6e-8), the maximum exactly; the same for 1 to 5 threads. */
static void scores_are_plain_sums_for_any_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
        for (int how = FRUGI_SCORE_L2; how <= FRUGI_SCORE_MAX; how++) {
            frugi_grid g = grids[i];
            assert_true(frugi_grid_measure(&g));
            float *x = bell_array(g.rows * g.cols, 3 + i);
            float *score = test_malloc(g.units * sizeof *score), *again = test_malloc(g.units * sizeof *again);
            frugi_score_units(&g, x, (frugi_score)how, score, 1);
            for (uint64_t u = 0; u < g.units; u++) {
                double want = plain_score(&g, x, u, (frugi_score)how);
                assert_true(fabs((double)score[u] - want) <= (how == FRUGI_SCORE_MAX ? 0 : 1e-6 * want));
            }
            for (int threads = 2; threads <= 5; threads++) {
                memset(again, 0xff, g.units * sizeof *again);
                frugi_score_units(&g, x, (frugi_score)how, again, threads);
                assert_same_bits(score, again, g.units * sizeof *again);
            }
            test_free(x);
            test_free(score);
            test_free(again);
        }
}

/* Sums beyond the floats stop at the largest, sums that cancel in float do not, and zeros of both signs weigh nothing.
 */
static void extremes_stay_finite(void **state) {
    (void)state;
    frugi_grid g = {.rows = 4, .cols = 40, .h = 1, .w = 40};
    assert_true(frugi_grid_measure(&g));
    float x[160] = {0}, score[4];
    for (int i = 0; i < 40; i++)
        x[i] = i % 2 ? -FLT_MAX : FLT_MAX;
    for (int i = 80; i < 120; i++)
        x[i] = i % 2 ? -0.0f : FLT_TRUE_MIN;
    x[120] = 16777216.0f;
    for (int i = 121; i < 160; i++)
        x[i] = 0.5f;
    frugi_score_units(&g, x, FRUGI_SCORE_L2, score, 1);
    assert_true(score[0] == FLT_MAX && score[1] == 0.0f && score[2] == 0.0f);
    frugi_score_units(&g, x, FRUGI_SCORE_L1, score, 1);
    assert_true(score[0] == FLT_MAX && score[1] == 0.0f && score[2] == 20 * FLT_TRUE_MIN);
    assert_true(score[3] == (float)(16777216.0 + 19.5));
    frugi_score_units(&g, x, FRUGI_SCORE_MAX, score, 1);
    assert_true(score[0] == FLT_MAX && score[1] == 0.0f && score[2] == FLT_TRUE_MIN && score[3] == 16777216.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_plain_sums_for_any_threads),
        cmocka_unit_test(extremes_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

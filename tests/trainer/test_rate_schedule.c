/* test_rate_schedule.c - learning-rate schedules, and clipping by the norms of earlier steps. */
#include "support/stderr_capture.h"

#include "trainer/exchange/clip_norm.h"
#include "trainer/run/rate_schedule.h"
#include "io/error.h"

#include <math.h>

static fgt_rate schedule(const char *text) {
    fgt_rate rate;
    assert_int_equal(fgt_rate_parse(text, &rate), FGIO_EXIT_OK);
    return rate;
}

static double at(const char *text, uint64_t step, uint64_t total) {
    fgt_rate rate = schedule(text);
    return fgt_rate_at(&rate, step, total);
}

static void schedules_are_their_formulas(void **state) {
    (void)state;
    assert_true(at("constant", 0, 100) == 1 && at("constant", 99, 100) == 1);
    assert_true(at("linear", 0, 100) == 1 && at("linear", 25, 100) == 0.75 && at("linear", 100, 100) == 0);
    assert_true(at("cosine", 0, 100) == 1 && at("cosine", 50, 100) == 0.5 && at("cosine", 100, 100) == 0);
    for (uint64_t t = 0; t <= 1000; t++) /* against the C library, 1e-15 */
        assert_true(fabs(at("cosine", t, 1000) - 0.5 * (1 + cos(M_PI * (double)t / 1000))) < 1e-15);
    assert_true(at("step:0.5,0.75:0.1", 49, 100) == 1);
    assert_true(at("step:0.5,0.75:0.1", 50, 100) == 0.1);
    assert_true(fabs(at("step:0.5,0.75:0.1", 75, 100) - 0.01) < 1e-17);
    assert_true(at("step:0.3:0.5", 99, 100) == 0.5);
}

static void warmup_rises_linearly_to_one(void **state) {
    (void)state;
    assert_true(at("constant,warmup=4", 0, 100) == 0.25 && at("constant,warmup=4", 3, 100) == 1);
    assert_true(at("linear,warmup=20", 19, 100) == 1 && at("linear,warmup=20", 20, 100) == 1);
    assert_true(at("linear,warmup=20", 60, 100) == 0.5);
    assert_true(at("cosine,warmup=20", 60, 100) == 0.5);
    assert_true(at("step:0.5,0.75:0.1,warmup=10", 4, 100) == 0.5);
    assert_true(at("step:0.5,0.75:0.1,warmup=10", 50, 100) == 0.1);
    /* A share of the steps, rounded. */
    assert_true(at("cosine,warmup=10%", 0, 200) == at("cosine,warmup=20", 0, 200));
    assert_true(at("cosine,warmup=10%", 110, 200) == 0.5 && at("linear,warmup=2.5%", 4, 200) == 1);
    assert_true(at("cosine,warmup=10%", 0, 3) == 1 && at("cosine,warmup=0%", 0, 100) == 1);
    /* A training shorter than its warm-up, one of unknown length, and steps beyond the end. */
    assert_true(at("cosine,warmup=10", 4, 5) == 0.5 && at("cosine,warmup=10", 10, 10) == 1);
    assert_true(at("linear", 500, 0) == 1 && at("step:0.5:0.1", 500, 0) == 1);
    assert_true(at("linear", 500, 100) == 0 && at("cosine", UINT64_MAX, 100) == 0);
}

static void assert_refused(const char *text, const char *reason) {
    fgt_rate rate = {.warmup = 77};
    stderr_capture errors;
    stderr_capture_begin(&errors);
    int status = fgt_rate_parse(text, &rate);
    stderr_capture_end(&errors);
    assert_int_equal(status, FGIO_EXIT_USAGE);
    assert_int_equal(rate.warmup, 77);
    if (!strstr(errors.text, reason))
        fail_msg("'%s': %s", text, errors.text);
}

static void invalid_schedules_are_refused(void **state) {
    (void)state;
    assert_refused("", "unknown schedule ''");
    assert_refused("cosin", "unknown schedule 'cosin'; did you mean 'cosine'?");
    assert_refused("cosine:3", "cosine has no argument, but got ':3'");
    assert_refused("cosine,warm=3", "unknown option 'warm=3'; there is warmup=STEPS");
    assert_refused("cosine,warmup=", "'' is neither a whole number");
    assert_refused("cosine,warmup=1.5", "'1.5' is neither a whole number");
    assert_refused("cosine,warmup=-1", "'-1' is neither a whole number");
    assert_refused("cosine,warmup=1e99", "'1e99' is neither a whole number");
    assert_refused("cosine,warmup=nan", "'nan' is neither a whole number");
    assert_refused("cosine,warmup=101%", "'101%' is not between 0% and 100%");
    assert_refused("cosine,warmup=%", "'%' is not between 0% and 100%");
    assert_refused("step", "step needs marks and a factor");
    assert_refused("step:0.5", "step needs marks and a factor");
    assert_refused("step::0.1", "'' is not a mark between 0 and 1");
    assert_refused("step:0.5,0.5:0.1", "'0.5' is not a mark between 0.5 and 1");
    assert_refused("step:0.5,:0.1", "'' is not a mark between 0.5 and 1");
    assert_refused("step:0.5:0", "'0' is not a factor");
    assert_refused("step:0.5:0.1:3", "'0.1:3' is not a factor");
    assert_refused("step:.1,.2,.3,.4,.5,.6,.7,.8,.9:0.1", "more than 8 marks");
    assert_refused("co\x1bsine", "co?sine");
    char lengthy[400];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    assert_refused(lengthy, "more than 255 characters");
}

/* ---- clipping --------------------------------------------------------------- */

/* Bit for bit, from the second step on, at every smoothing. */
static void constant_norms_are_clipped_exactly(void **state) {
    (void)state;
    static const double norms[] = {0.3, 1.0, 1.7, 123.456, 1e-30, 3e200}, smooth[] = {0, 0.5, 0.9, 0.999};
    for (size_t s = 0; s < 4; s++) {
        for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
            fgt_clip clip = fgt_clip_init(1.0, smooth[s]);
            assert_true(fgt_clip_factor(&clip) == 1);
            for (int t = 0; t < 100; t++) {
                fgt_clip_update(&clip, norms[k]);
                assert_true(fgt_clip_factor(&clip) == (norms[k] > 1 ? 1 / norms[k] : 1));
            }
        }
    }
}

/* The weighted mean of all norms so far, each step back with 0.9 times the weight. Tolerance 1e-14. */
static void norms_are_averaged(void **state) {
    (void)state;
    fgt_clip clip = fgt_clip_init(2.0, FGT_CLIP_SMOOTH);
    double sum = 0, weights = 0;
    for (int t = 0; t < 60; t++) {
        double norm = 5 + 4 * sin(t);
        sum = 0.9 * sum + norm;
        weights = 0.9 * weights + 1;
        fgt_clip_update(&clip, norm);
        assert_true(fabs(fgt_clip_factor(&clip) / (2 * weights / sum) - 1) < 1e-14);
        fgt_clip_update(&clip, (double)NAN); /* ignored */
        fgt_clip_update(&clip, (double)INFINITY);
    }
    fgt_clip never = fgt_clip_init(0, 0.9);
    fgt_clip_update(&never, 1e9);
    assert_true(fgt_clip_factor(&never) == 1);
}

/* Constant norms are never limited; a sudden rise is, at once, to twice the mean before it. */
static void limits_follow_the_running_norm(void **state) {
    (void)state;
    fgt_norm_limits limits;
    const double usual[2] = {3, 0.01};
    assert_true(fgt_norm_limits_create(2, &limits));
    assert_true(fgt_norm_limits_factor(&limits, 0, 1e9) == 1); /* nothing is known yet */
    for (int t = 0; t < 500; t++) {
        fgt_norm_limits_update(&limits, usual);
        assert_true(fgt_norm_limits_factor(&limits, 0, 3) == 1 && fgt_norm_limits_factor(&limits, 1, 0.01) == 1);
    }
    assert_true(fabs(fgt_norm_limits_factor(&limits, 0, 60) * 60 - 6) < 1e-12);
    assert_true(fabs(fgt_norm_limits_factor(&limits, 1, 60) * 60 - 0.02) < 1e-12); /* each part has its own */
    assert_true(fgt_norm_limits_factor(&limits, 0, (double)NAN) == 1 &&
                fgt_norm_limits_factor(&limits, 0, (double)INFINITY) == 1);
    const double broken[2] = {(double)NAN, (double)INFINITY};
    fgt_norm_limits_update(&limits, broken);
    assert_true(limits.mean[0] == 3 && limits.mean[1] == 0.01);
    fgt_norm_limits_destroy(&limits);
}

/* Exploding norms raise their limit by at most two percent per step. */
static void limits_rise_slowly(void **state) {
    (void)state;
    fgt_norm_limits limits;
    assert_true(fgt_norm_limits_create(1, &limits));
    for (int t = 0; t < 500; t++)
        fgt_norm_limits_update(&limits, &(double){1});
    for (int t = 0; t < 100; t++) {
        double norm = 1e6, limited = norm * fgt_norm_limits_factor(&limits, 0, norm), before = limits.mean[0];
        fgt_norm_limits_update(&limits, &limited);
        assert_true(limits.mean[0] > before && limits.mean[0] < 1.0201 * before);
    }
    assert_true(limits.mean[0] < 7.5);
    fgt_norm_limits_destroy(&limits);
}

static void bad_limits_are_not_restored(void **state) {
    (void)state;
    fgt_norm_limits limits;
    assert_true(fgt_norm_limits_create(2, &limits));
    const double good[2] = {1, 2}, bad[][2] = {{-1, 2}, {1, (double)NAN}, {(double)INFINITY, 1}};
    assert_true(fgt_norm_limits_restore(&limits, 0.5, good) && limits.mean[1] == 2 && limits.weight == 0.5);
    for (size_t i = 0; i < 3; i++)
        assert_false(fgt_norm_limits_restore(&limits, 0.5, bad[i]));
    assert_false(fgt_norm_limits_restore(&limits, 1.5, good));
    assert_false(fgt_norm_limits_restore(&limits, (double)NAN, good));
    assert_true(limits.mean[0] == 1 && limits.weight == 0.5);
    fgt_norm_limits_destroy(&limits);
}

static void clip_state_is_saved_and_restored(void **state) {
    (void)state;
    fgt_clip a = fgt_clip_init(1, 0.9), b = fgt_clip_init(1, 0.9);
    double saved[2];
    for (int t = 0; t < 7; t++)
        fgt_clip_update(&a, 1.5 + t);
    fgt_clip_save(&a, saved);
    assert_true(fgt_clip_restore(&b, saved));
    fgt_clip_update(&a, 9);
    fgt_clip_update(&b, 9);
    assert_memory_equal(&a, &b, sizeof a);
    const double bad[][2] = {{(double)NAN, 0.5}, {-1, 0.5}, {1, (double)NAN},     {1, 1.5},
                             {1, -0.1},          {1, 0},    {(double)INFINITY, 1}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        assert_false(fgt_clip_restore(&b, bad[k]));
        assert_memory_equal(&a, &b, sizeof a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_are_their_formulas),
        cmocka_unit_test(warmup_rises_linearly_to_one),
        cmocka_unit_test(invalid_schedules_are_refused),
        cmocka_unit_test(constant_norms_are_clipped_exactly),
        cmocka_unit_test(norms_are_averaged),
        cmocka_unit_test(clip_state_is_saved_and_restored),
        cmocka_unit_test(limits_follow_the_running_norm),
        cmocka_unit_test(limits_rise_slowly),
        cmocka_unit_test(bad_limits_are_not_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

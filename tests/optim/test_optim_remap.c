/*
 * test_optim_remap.c - states that move to an optimizer of another length, and mean squares that stay. Seeds are those
 * of sparse_gradient() and bell_array().
 */
#include "optim/optim_helpers.h"

#include <math.h>

#define N     900u
#define STEPS 10u
#define NONE  UINT64_MAX

/* Two of three elements stay; one between them is new. */
static uint64_t list_sources(uint64_t *source) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < N; i++) {
        if (i == N / 2)
            source[n++] = NONE;
        if (i % 3 != 1)
            source[n++] = i;
    }
    return n;
}

static void step(frug_optimizer *o, uint64_t t, uint64_t n, const float *g, float *w) {
    OK(frug_optimizer_step(o, t, (frug_range){0, n}, g, 0.01, w));
}

static void elements_that_stay_continue_and_new_ones_begin(void **state) {
    (void)state;
    static const char *const texts[] = {"sgd",
                                        "adamw",
                                        "sign",
                                        "merged:inertia=0.5",
                                        "adam-merged:state=f32,beta2=0.95",
                                        "adam-merged:state=f32,beta2=0.95,inertia=0.9"};
    uint64_t source[N], n = list_sources(source);
    float *w = bell_array(N, 4), *some = test_malloc(N * sizeof *some), g[N], h[N];
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        frug_optimizer *from = flat_optimizer(texts[k], N), *to = flat_optimizer(texts[k], n),
                       *begins = flat_optimizer(texts[k], 1);
        for (uint64_t t = 0; t < STEPS; t++) {
            sparse_gradient(g, N, t, 2);
            step(from, t, N, g, w);
        }
        OK(frug_optimizer_remap(to, from, 0, source));
        float fresh = 0.5f;
        for (uint64_t i = 0; i < n; i++)
            some[i] = source[i] == NONE ? fresh : w[source[i]];
        for (uint64_t t = STEPS; t < STEPS + 3; t++) {
            const float one = 0.25f;
            sparse_gradient(g, N, t, 2);
            for (uint64_t i = 0; i < n; i++)
                h[i] = source[i] == NONE ? one : g[source[i]];
            step(from, t, N, g, w);
            step(to, t, n, h, some);
            step(begins, t, 1, &one, &fresh);
        }
        for (uint64_t i = 0; i < n; i++) {
            float want = source[i] == NONE ? fresh : w[source[i]];
            if (memcmp(&some[i], &want, sizeof want) != 0)
                fail_msg("%s: element %u is %.9g, not %.9g", texts[k], (unsigned)i, (double)some[i], (double)want);
        }
        frug_optimizer_destroy(from);
        frug_optimizer_destroy(to);
        frug_optimizer_destroy(begins);
    }
    test_free(w);
    test_free(some);
}

static void bad_sources_are_refused(void **state) {
    (void)state;
    const uint64_t source[] = {0, 7};
    frug_optimizer *small = flat_optimizer("adamw", 2), *o = flat_optimizer("adamw", 7),
                   *other = flat_optimizer("sgd", 7);
    frug_optimizer *window = flat_optimizer("microadam", 2), *windows = flat_optimizer("microadam", 9);
    assert_int_equal(frug_optimizer_remap(small, o, 0, source), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_remap(small, o, 1, source), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_remap(small, other, 0, source), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_remap(small, o, 0, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_remap(window, windows, 0, source), FRUG_ERR_CONFIG);
    assert_int_equal(frug_optimizer_freeze_squares(NULL, 1, 2), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_freeze_squares(o, 2, 1), FRUG_ERR_ARG);
    frug_optimizer_destroy(small);
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(other);
    frug_optimizer_destroy(window);
    frug_optimizer_destroy(windows);
}

/* With gradients of 1, of 100 while squares are frozen, and of 1 again: steps of 1, of 100 over the root of 1 and of
 * their own square, and of 1 again. */
static void frozen_squares_do_not_change(void **state) {
    (void)state;
    static const char *const texts[] = {"adamw:beta1=0,beta2=0.95,decay=0",
                                        "adam-merged:state=f32,beta2=0.95,decay=0,gain=1",
                                        "adam-merged:state=int8,beta2=0.95,decay=0,gain=1"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        frug_optimizer *o = flat_optimizer(texts[k], 1);
        float w = 0;
        OK(frug_optimizer_freeze_squares(o, STEPS, 2 * STEPS));
        for (uint64_t t = 0; t < 2 * STEPS + 2; t++) {
            float before = w, g = t < STEPS || t >= 2 * STEPS ? 1.0f : 100.0f;
            step(o, t, 1, &g, &w);
            float length = (before - w) / 0.01f;
            const float updates = (float)(STEPS + 1), correct = 1 - powf(0.95f, updates);
            const float mean = g > 1 ? ((correct - 0.05f) + 0.05f * g * g) / correct : 1;
            const float want = g / sqrtf(mean);
            if (!(length > 0.95f * want && length < 1.05f * want)) /* roots of int8 are rounded */
                fail_msg("%s: a step of %g at step %u", texts[k], (double)length, (unsigned)t);
        }
        frug_optimizer_destroy(o);
    }
}

/* An element whose first gradient comes while squares are frozen moves as far as by any first gradient, not by 1/eps.
 */
static void frozen_squares_of_zero_bound_the_step(void **state) {
    (void)state;
    static const char *const texts[] = {"adamw:beta1=0,beta2=0.95,decay=0",
                                        "adam-merged:state=int8,beta2=0.95,decay=0,gain=1"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        frug_optimizer *o = flat_optimizer(texts[k], 1);
        float w = 0, g = 0;
        OK(frug_optimizer_freeze_squares(o, STEPS, 2 * STEPS));
        for (uint64_t t = 0; t < STEPS; t++)
            step(o, t, 1, &g, &w);
        g = 0.5f;
        step(o, STEPS, 1, &g, &w);
        assert_true(w < 0 && w > -0.01f * 4.5f); /* the root of 1 / 0.05 times the rate */
        frug_optimizer_destroy(o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_that_stay_continue_and_new_ones_begin),
        cmocka_unit_test(bad_sources_are_refused),
        cmocka_unit_test(frozen_squares_do_not_change),
        cmocka_unit_test(frozen_squares_of_zero_bound_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_error_feedback.c - the arithmetic of error feedback, block by block, against its formulas. */
#include "support/assertions.h"

#include "feedback/error_feedback.h"

#include <math.h>

#define B     64u
#define STEPS 5u

static frug_config *make_config(const char *text) {
    frug_config *config;
    OK(frug_config_create(text, &config));
    return config;
}

static float gradient(uint32_t step, uint32_t i) {
    return (float)((int)((step * 37 + i * 11) % 29) - 14) / 8;
}

/** Residual and momentum of one element, by the formulas of error_feedback.h. */
typedef struct element {
    float residual, momentum;
} element;

static float expect_accumulator(const frug_config *config, element *e, float g) {
    float mu = (float)config->momentum, theta = (float)config->theta, change;
    switch (config->feedback) {
    case FRUGI_FEEDBACK_MERGED: return (float)config->beta * e->residual + g;
    case FRUGI_FEEDBACK_PLAIN: return e->residual + g;
    case FRUGI_FEEDBACK_DGC: e->momentum = mu * e->momentum + g; return e->residual + e->momentum;
    case FRUGI_FEEDBACK_EF21:
        change = theta * (g - e->momentum);
        e->momentum += change;
        return e->residual + change;
    case FRUGI_FEEDBACK_NONE: break;
    }
    return g;
}

/* Steps that send every third element exactly; with a mask, its momentum is cleared. */
static void follow(const char *text) {
    frug_config *config = make_config(text);
    frugi_feedback_state fb;
    element expected[B] = {{0}};
    float grad[B], residual[B], acc[B], momentum[B], change[B];
    OK(frugi_feedback_create(config, 0, 2, &fb));
    for (uint32_t step = 0; step < STEPS; step++) {
        frugi_feedback_step how = frugi_feedback_at(config, 0.1, false);
        uint8_t sent[B] = {0};
        for (uint32_t i = 0; i < B; i++)
            grad[i] = gradient(step, i);
        frugi_feedback_load(&fb, 1, 1, residual);
        assert_true(frugi_feedback_accumulate(&fb, 1, residual, grad, acc, momentum, change));
        for (uint32_t i = 0; i < B; i++) {
            float want = expect_accumulator(config, &expected[i], grad[i]);
            assert_memory_equal(&acc[i], &want, sizeof want);
            sent[i] = (i + step) % 3 == 0;
            acc[i] = expected[i].residual = sent[i] ? 0 : want;
            if (sent[i] && how.mask_momentum)
                expected[i].momentum = 0;
        }
        if (how.mask_momentum)
            frugi_feedback_mask_marked(&fb, momentum, sent);
        frugi_feedback_store(&fb, step, 1, 1, &(bool){false}, acc, frugi_has_momentum(&fb) ? momentum : NULL);
    }
    frugi_feedback_destroy(&fb);
    frug_config_destroy(config);
}

static void accumulators_follow_the_formulas(void **state) {
    (void)state;
    follow("feedback=merged,beta=0.9,hold=0,residual=f32,block=64");
    follow("feedback=plain,residual=f32,block=64");
    follow("feedback=dgc,mask=on,residual=f32,block=64");
    follow("feedback=dgc,mask=off,residual=f32,block=64");
    follow("feedback=ef21,residual=f32,block=64");
}

static void a_number_that_is_not_finite_is_reported(void **state) {
    (void)state;
    static const char *const configs[] = {"feedback=merged,block=64", "feedback=dgc,block=64"};
    for (size_t c = 0; c < 2; c++) {
        frug_config *config = make_config(configs[c]);
        frugi_feedback_state fb;
        float grad[B] = {0}, residual[B] = {0}, acc[B], momentum[B], change[B];
        OK(frugi_feedback_create(config, 0, 1, &fb));
        assert_true(frugi_feedback_accumulate(&fb, 0, residual, grad, acc, momentum, change));
        grad[B - 1] = INFINITY;
        assert_false(frugi_feedback_accumulate(&fb, 0, residual, grad, acc, momentum, change));
        grad[B - 1] = NAN;
        assert_false(frugi_feedback_accumulate(&fb, 0, residual, grad, acc, momentum, change));
        frugi_feedback_destroy(&fb);
        frug_config_destroy(config);
    }
}

static void skipped_blocks_stay_as_they_are(void **state) {
    (void)state;
    frug_config *config = make_config("feedback=dgc,residual=int8,block=64");
    frugi_feedback_state fb;
    float numbers[3 * B], loaded[3 * B], zero[B] = {0};
    const bool skip[] = {false, true, false};
    OK(frugi_feedback_create(config, 0, 3, &fb));
    for (uint32_t i = 0; i < 3 * B; i++)
        numbers[i] = 1 + gradient(0, i) / 4;
    frugi_feedback_store(&fb, 7, 0, 3, skip, numbers, NULL);
    frugi_feedback_load(&fb, 0, 3, loaded);
    assert_memory_equal(loaded + B, zero, sizeof zero);
    assert_true(loaded[0] != 0 && loaded[2 * B] != 0);
    for (uint64_t b = 0; b < 3; b++) {
        frugi_store_load(&fb.momentum, b, loaded);
        assert_memory_equal(loaded, zero, sizeof zero); /* none was given */
    }
    frugi_feedback_destroy(&fb);
    frug_config_destroy(config);
}

static void a_mask_clears_sent_entries_only(void **state) {
    (void)state;
    frugi_feedback_state fb = {.kind = FRUGI_FEEDBACK_DGC, .block = 4};
    float momentum[] = {1, 2, 3, 4};
    frugi_feedback_mask(&fb, momentum, (const uint16_t[]){0, 2}, 2);
    assert_memory_equal(momentum, ((const float[]){0, 2, 0, 4}), sizeof momentum);
    frugi_feedback_mask_marked(&fb, momentum, (const uint8_t[]){0, 1, 0, 0});
    assert_memory_equal(momentum, ((const float[]){0, 0, 0, 4}), sizeof momentum);
    frugi_feedback_mask(&fb, momentum, NULL, 0);
    assert_memory_equal(momentum, ((const float[]){0, 0, 0, 0}), sizeof momentum);
}

/* An entry that is sent at every step is sent with a total weight of 1. */
static void retained_shares_are_sent_in_the_end(void **state) {
    (void)state;
    frug_config *config = make_config("feedback=merged,beta=0.9,hold=0.5");
    frugi_feedback_step step = frugi_feedback_at(config, 0.0625, false);
    float residual = 1, total = 0;
    for (uint32_t i = 0; i < 200; i++) {
        float value = residual;
        frugi_feedback_retain(&step, &value, &residual, 1);
        total += value;
        residual *= (float)config->beta;
    }
    assert_true(step.retained_share == 0.5f && fabsf(total - 1) < 1e-5f);
    step = frugi_feedback_at(config, 0.0625, true);
    assert_true(step.retained_share == 0 && step.sent_share == 1);
    frug_config_destroy(config);
}

static void the_automatic_mask_depends_on_the_density(void **state) {
    (void)state;
    frug_config *config = make_config("feedback=dgc,mask=auto");
    assert_true(frugi_feedback_at(config, 0.2, false).mask_momentum);
    assert_false(frugi_feedback_at(config, 0.25, false).mask_momentum);
    assert_false(frugi_feedback_at(config, 0.2, true).mask_momentum);
    frug_config_destroy(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulators_follow_the_formulas),
        cmocka_unit_test(a_number_that_is_not_finite_is_reported),
        cmocka_unit_test(skipped_blocks_stay_as_they_are),
        cmocka_unit_test(a_mask_clears_sent_entries_only),
        cmocka_unit_test(retained_shares_are_sent_in_the_end),
        cmocka_unit_test(the_automatic_mask_depends_on_the_density),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

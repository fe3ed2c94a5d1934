/*
 * test_controller.c - the density of each tensor: factors within their limits, totals that are kept, a state that can
 * be saved. Random cases come from fixed seeds.
 */
#include "support/assertions.h"
#include "schedule/controller.h"
#include "schedule/density.h"

#include <math.h>
#include <stdio.h>

static const frugi_control_tensor tensors[] = {{FRUG_ROLE_LINEAR, 1000000}, {FRUG_ROLE_EMBEDDING, 38597376},
                                               {FRUG_ROLE_CONV, 36864},     {FRUG_ROLE_NORM, 5000},
                                               {FRUG_ROLE_BIAS, 4096},      {FRUG_ROLE_ATTN_QKV, 1769472}};
#define COUNT (sizeof tensors / sizeof tensors[0])
#define TOTAL 100

static frugi_control *make(const char *text) {
    frug_config *config = NULL;
    frugi_control *control = NULL;
    OK(frug_config_create(text, &config));
    OK(frugi_control_create(config, tensors, COUNT, TOTAL, &control));
    frug_config_destroy(config);
    return control;
}

static frug_config *config_of(const char *text) {
    frug_config *config = NULL;
    OK(frug_config_create(text, &config));
    return config;
}

static void without_modifiers_every_tensor_has_the_base_density(void **state) {
    (void)state;
    static const char *const schedules[] = {"density=0.0625", "schedule=frugrad", "schedule=dgc", "density=1e-9",
                                            "schedule=anneal"};
    for (size_t k = 0; k < sizeof schedules / sizeof schedules[0]; k++) {
        frug_config *config = config_of(schedules[k]);
        frugi_control *control = make(schedules[k]);
        for (uint64_t step = 0; step <= TOTAL + 3; step++) {
            frugi_control_set_norm(control, step, (double)(step % 7)); /* norm=off: the norm is ignored */
            for (size_t i = 0; i < COUNT; i++)
                assert_true(frugi_control_density(control, step, i) ==
                            frugi_schedule_density(&config->schedule, step, TOTAL));
        }
        assert_int_equal(frugi_control_bytes(control), 0);
        frugi_control_destroy(control);
        frug_config_destroy(config);
    }
}

static void roles_have_their_own_densities(void **state) {
    (void)state;
    static const double wanted[COUNT] = {0.0625, 0.001, 0.0625, 1, 1, 0.0625};
    frugi_control *control = make("layers=role,density=0.0625"), *thin = make("layers=role,density=0.0005");
    for (size_t i = 0; i < COUNT; i++)
        assert_true(frugi_control_density(control, 0, i) == wanted[i]);
    assert_true(frugi_control_density(thin, 0, 1) == 1 - (1 - 0.0005));
    frugi_control_destroy(control);
    frugi_control_destroy(thin);
}

static void sensitivity_factor_is_a_clipped_square_root(void **state) {
    (void)state;
    frugi_control *control = make("layers=sensitivity,density=0.0625");
    for (size_t i = 0; i < COUNT; i++)
        assert_true(frugi_control_density(control, 0, i) == 0.0625);
    frugi_control_set_weight(control, 0, 3);
    frugi_control_set_weight(control, 1, 3);
    for (size_t i = 0; i < COUNT; i++) /* equal weights, and those not set, count 1 */
        assert_true(frugi_control_density(control, 0, i) == 0.0625);
    frugi_control_set_weight(control, 0, 8); /* mean 5 of 8 and 2 */
    frugi_control_set_weight(control, 1, 2);
    assert_true(frugi_control_density(control, 0, 0) == 0.0625 * sqrt(8 / 5.0));
    assert_true(frugi_control_density(control, 0, 1) == 0.0625 * sqrt(2 / 5.0));
    assert_true(frugi_control_density(control, 0, 2) == 0.0625);
    frugi_control_set_weight(control, 1, 0);
    assert_true(frugi_control_density(control, 0, 1) == 0.0625 / 4);
    for (size_t i = 1; i < COUNT; i++)
        frugi_control_set_weight(control, i, 0);
    frugi_control_set_weight(control, 0, 1e308);
    assert_true(frugi_control_density(control, 0, 0) == 0.0625 * sqrt((double)COUNT));
    frugi_control_set_weight(control, 0, 0); /* all zero: no tensor is preferred */
    for (size_t i = 0; i < COUNT; i++)
        assert_true(frugi_control_density(control, 0, i) == 0.0625);
    frugi_control_destroy(control);
}

static void budget_uses_the_density_that_was_set(void **state) {
    (void)state;
    frugi_control *control = make("layers=budget,density=0.0625");
    assert_true(frugi_control_density(control, 0, 2) == 0.0625);
    frugi_control_set_weight(control, 2, 0.3);
    assert_true(frugi_control_density(control, 0, 2) == 0.3);
    frugi_control_set_weight(control, 2, 7);
    assert_true(frugi_control_density(control, 0, 2) == 1);
    frugi_control_set_weight(control, 2, 0); /* one entry at least */
    assert_true(frugi_control_density(control, 0, 2) == 1.0 / 36864);
    frugi_control_set_weight(control, 2, NAN);
    frugi_control_set_weight(control, 2, -1);
    frugi_control_set_weight(control, COUNT, 1);
    assert_true(frugi_control_density(control, 0, 2) == 1.0 / 36864);
    assert_true(frugi_control_density(control, 0, 0) == 0.0625 && frugi_control_max_density(control, 2) == 1);
    frugi_control_destroy(control);
}

static void factor_of_a_constant_norm_is_one(void **state) {
    (void)state;
    static const char *const texts[] = {"norm=follow,density=0.0625", "norm=accordion,density=0.0625"};
    static const double norms[] = {0.1, 3, 0, 1e300, 1e-320};
    for (size_t k = 0; k < 2; k++) {
        for (size_t j = 0; j < sizeof norms / sizeof norms[0]; j++) {
            frugi_control *control = make(texts[k]);
            for (uint64_t step = 0; step < 50; step++) {
                frugi_control_set_norm(control, step, norms[j]);
                assert_true(frugi_control_density(control, step, 0) == 0.0625);
            }
            frugi_control_destroy(control);
        }
    }
}

static void norm_follow_is_the_ratio_to_earlier_norms(void **state) {
    (void)state;
    frugi_control *control = make("norm=follow,density=0.0625");
    assert_true(frugi_control_density(control, 0, 0) == 0.0625);
    frugi_control_set_norm(control, 0, 2);
    assert_true(frugi_control_density(control, 0, 0) == 0.0625);
    frugi_control_set_norm(control, 1, 3); /* mean 2 */
    assert_true(frugi_control_density(control, 1, 0) == 0.0625 * 1.5);
    assert_true(frugi_control_density(control, 2, 0) == 0.0625 * 1.5); /* until the next norm */
    double mean = 2 + 0.1 * (3 - 2.0);
    frugi_control_set_norm(control, 2, 1);
    assert_true(frugi_control_density(control, 2, 0) == 0.0625 * (1 / mean));
    frugi_control_set_norm(control, 2, 1000);
    assert_true(frugi_control_density(control, 2, 0) == 0.0625 * 4);
    frugi_control_set_norm(control, 2, 0);
    assert_true(frugi_control_density(control, 2, 0) == 0.0625 / 4);
    frugi_control_set_norm(control, 3, INFINITY); /* ignored */
    assert_true(frugi_control_density(control, 3, 0) == 0.0625 / 4);
    frugi_control_destroy(control);
    control = make("norm=follow,density=0.0625");
    frugi_control_set_norm(control, 0, 0);
    frugi_control_set_norm(control, 1, 5);
    assert_true(frugi_control_density(control, 1, 0) == 0.0625 * 4);
    frugi_control_destroy(control);
}

static void norm_accordion_reacts_to_a_change_by_half(void **state) {
    (void)state;
    static const struct {
        double norm, factor;
    } steps[] = {{4, 1},   {5.9, 1}, {4, 1},   {6, 4}, {9, 4}, {9, 1},
                 {4.5, 4}, {4.5, 1}, {2.3, 1}, {0, 4}, {0, 1}, {1, 4}};
    frugi_control *control = make("norm=accordion,density=0.0625");
    for (uint64_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        frugi_control_set_norm(control, i, steps[i].norm);
        assert_true(frugi_control_density(control, i, 0) == 0.0625 * steps[i].factor);
    }
    frugi_control_destroy(control);
}

static void setting_a_norm_twice_counts_once(void **state) {
    (void)state;
    static const char *const texts[] = {"norm=follow", "norm=accordion,layers=sensitivity"};
    uint64_t seed = 11;
    for (size_t k = 0; k < 2; k++) {
        frugi_control *once = make(texts[k]), *twice = make(texts[k]);
        for (uint64_t step = 0; step < 200; step++) {
            double norm = fabs((double)next_float(&seed)), weight = fabs((double)next_float(&seed));
            frugi_control_set_norm(once, step, norm);
            frugi_control_set_norm(twice, step, 17);
            frugi_control_set_norm(twice, step, norm);
            frugi_control_set_norm(twice, step, norm);
            frugi_control_set_weight(once, step % COUNT, weight);
            frugi_control_set_weight(twice, step % COUNT, 17);
            frugi_control_set_weight(twice, step % COUNT, weight);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(frugi_control_density(once, step, i) == frugi_control_density(twice, step, i));
        }
        frugi_control_destroy(once);
        frugi_control_destroy(twice);
    }
}

/* Tell it something at random; weights of all magnitudes. */
static void set_random_inputs(frugi_control *control, uint64_t step, uint64_t *seed, int budget) {
    frugi_control_set_norm(control, step, ldexp(fabs((double)next_float(seed)), (int)(next_random(seed) % 40) - 20));
    double weight = fabs((double)next_float(seed));
    if (!budget)
        weight = ldexp(weight, (int)(next_random(seed) % 40) - 20);
    frugi_control_set_weight(control, next_random(seed) % COUNT, next_random(seed) % 9 ? weight : 0);
}

static const char *const layer_words[] = {"even", "role", "budget", "sensitivity"};

/* sum density * elements against base * sum elements, to 1e-12 relative. */
static void strict_keeps_the_total(void **state) {
    (void)state;
    static const char *const schedules[] = {"schedule=frugrad", "schedule=dgc", "density=0.9",
                                            "density=1",        "density=1e-6", "density=0.0005"};
    uint64_t seed = 5;
    for (int k = 0; k < 18; k++) {
        char text[128];
        snprintf(text, sizeof text, "layers=%s,strict=on,%s", layer_words[1 + k % 3], schedules[k / 3]);
        frugi_control *control = make(text);
        frug_config *config = config_of(text);
        for (uint64_t step = 0; step <= TOTAL; step++) {
            double base = frugi_schedule_density(&config->schedule, step, TOTAL), sum = 0, all = 0, density[COUNT];
            set_random_inputs(control, step, &seed, k % 3 == 1);
            frugi_control_densities(control, step, density);
            for (size_t i = 0; i < COUNT; i++) {
                assert_true(density[i] > 0 && density[i] <= 1 && density[i] <= frugi_control_max_density(control, i));
                if (step % 25 == 0)
                    assert_true(density[i] == frugi_control_density(control, step, i));
                sum += density[i] * (double)tensors[i].elements;
                all += base * (double)tensors[i].elements;
            }
            if (!(fabs(sum - all) <= 1e-12 * all))
                fail_msg("%s, step %d: %.17g entries, not %.17g", text, (int)step, sum, all);
        }
        frug_config_destroy(config);
        frugi_control_destroy(control);
    }
}

/* strict=on scales in proportion: two tensors inside the limits keep their ratio. */
static void strict_scales_all_tensors_alike(void **state) {
    (void)state;
    frugi_control *loose = make("layers=sensitivity,density=0.01"),
                  *strict = make("layers=sensitivity,density=0.01,strict=on");
    for (size_t i = 0; i < COUNT; i++) {
        frugi_control_set_weight(loose, i, (double)(i + 1));
        frugi_control_set_weight(strict, i, (double)(i + 1));
    }
    double scale = frugi_control_density(strict, 0, 0) / frugi_control_density(loose, 0, 0);
    assert_true(scale != 1);
    for (size_t i = 1; i < COUNT; i++) {
        double other = frugi_control_density(strict, 0, i) / frugi_control_density(loose, 0, i);
        assert_true(fabs(other - scale) < 1e-12 * scale);
    }
    frugi_control_destroy(loose);
    frugi_control_destroy(strict);
}

static void densities_stay_within_their_bound(void **state) {
    (void)state;
    static const char *const norms[] = {"off", "follow", "accordion"};
    static const char *const schedules[] = {"frugrad", "anneal", "dgc", "relax",
                                            "piecewise:0:0.9:0.5:0.2:1:0.99999999"};
    uint64_t seed = 3;
    for (int k = 0; k < 4 * 3 * 5; k++) {
        char text[128];
        snprintf(text, sizeof text, "layers=%s,norm=%s,schedule=%s", layer_words[k % 4], norms[k / 4 % 3],
                 schedules[k / 12]);
        frugi_control *control = make(text);
        for (uint64_t step = 0; step <= TOTAL; step++) {
            set_random_inputs(control, step, &seed, k % 4 == 2);
            for (size_t i = 0; i < COUNT; i++) {
                double density = frugi_control_density(control, step, i), most = frugi_control_max_density(control, i);
                if (!(density > 0 && density <= most && most <= 1))
                    fail_msg("%s, step %d, tensor %d: %g of %g", text, (int)step, (int)i, density, most);
            }
        }
        frugi_control_destroy(control);
    }
}

static void a_restored_state_continues_identically(void **state) {
    (void)state;
    uint64_t seed = 9;
    for (int k = 0; k < 8; k++) {
        char text[128];
        snprintf(text, sizeof text, "layers=%s,norm=%s", layer_words[k % 4], k < 4 ? "follow" : "accordion");
        frugi_control *a = make(text), *b = make(text);
        for (uint64_t step = 0; step < 60; step++) {
            set_random_inputs(a, step, &seed, k % 4 == 2);
            unsigned char *saved = test_malloc(frugi_control_bytes(a) + 1);
            frugi_control_export(a, saved);
            assert_true(frugi_control_check(b, saved));
            frugi_control_import(b, saved);
            test_free(saved);
            uint64_t same = seed;
            set_random_inputs(b, step, &seed, k % 4 == 2); /* the same step again, and the next, with the same norms */
            set_random_inputs(a, step, &same, k % 4 == 2);
            set_random_inputs(b, step + 1, &seed, k % 4 == 2);
            set_random_inputs(a, step + 1, &same, k % 4 == 2);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(frugi_control_density(a, step + 1, i) == frugi_control_density(b, step + 1, i));
        }
        frugi_control_destroy(a);
        frugi_control_destroy(b);
    }
}

static void an_invalid_state_is_rejected(void **state) {
    (void)state;
    frugi_control *control = make("layers=sensitivity,norm=follow");
    size_t bytes = frugi_control_bytes(control);
    assert_int_equal(bytes, 40 + 8 * COUNT);
    unsigned char *saved = test_malloc(bytes);
    static const double bad[] = {NAN, INFINITY, -INFINITY, -0.5, -2};
    for (size_t at = 16; at < bytes; at += 8) {
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            frugi_control_export(control, saved);
            assert_true(frugi_control_check(control, saved));
            memcpy(saved + at, &bad[i], 8);
            assert_false(frugi_control_check(control, saved));
        }
    }
    frugi_control_export(control, saved);
    saved[0] = 3;
    assert_false(frugi_control_check(control, saved));
    test_free(saved);
    frugi_control_destroy(control);
}

static void dense_steps_come_first_and_then_periodically(void **state) {
    (void)state;
    frug_config *plain = config_of(""), *both = config_of("warmup=3,dense_every=5"),
                *always = config_of("dense_every=1");
    for (uint64_t step = 0; step < 100; step++) {
        assert_false(frugi_control_sends_all(plain, step));
        assert_true(frugi_control_sends_all(always, step));
        assert_int_equal(frugi_control_sends_all(both, step) != 0, step < 3 || step % 5 == 4);
    }
    frug_config_destroy(plain);
    frug_config_destroy(both);
    frug_config_destroy(always);
}

static void a_controller_without_tensors_works(void **state) {
    (void)state;
    frug_config *config = config_of("layers=sensitivity,strict=on");
    frugi_control *control = NULL;
    OK(frugi_control_create(config, NULL, 0, 0, &control));
    frugi_control_densities(control, 0, NULL);
    assert_int_equal(frugi_control_bytes(control), 0);
    frugi_control_destroy(control);
    frug_config_destroy(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_modifiers_every_tensor_has_the_base_density),
        cmocka_unit_test(roles_have_their_own_densities),
        cmocka_unit_test(sensitivity_factor_is_a_clipped_square_root),
        cmocka_unit_test(budget_uses_the_density_that_was_set),
        cmocka_unit_test(factor_of_a_constant_norm_is_one),
        cmocka_unit_test(norm_follow_is_the_ratio_to_earlier_norms),
        cmocka_unit_test(norm_accordion_reacts_to_a_change_by_half),
        cmocka_unit_test(setting_a_norm_twice_counts_once),
        cmocka_unit_test(strict_keeps_the_total),
        cmocka_unit_test(strict_scales_all_tensors_alike),
        cmocka_unit_test(densities_stay_within_their_bound),
        cmocka_unit_test(a_restored_state_continues_identically),
        cmocka_unit_test(an_invalid_state_is_rejected),
        cmocka_unit_test(dense_steps_come_first_and_then_periodically),
        cmocka_unit_test(a_controller_without_tensors_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

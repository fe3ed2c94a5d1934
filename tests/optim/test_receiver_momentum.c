/*
 * test_receiver_momentum.c - the velocity in addition to merged momentum: at density 1, at low density, and between;
 * when it is freed, and how it is saved. Seeds are those of sparse_gradient() and bell_array().
 */
#include "optim/optim_helpers.h"

#include "base/float_bits.h"
#include "base/crc32c.h"

#include <math.h>
#include <stdio.h>

#define N     5000u /* more than min_size, so it is compressed */
#define STEPS 100u
#define PAPER "schedule=frugrad,value=f32,residual=f32"

static frug_layout *flat_layout(void) {
    frug_layout *layout = NULL;
    OK(frug_layout_flat(N, &layout));
    return layout;
}

static frug_compressor *flat_compressor(const char *config, uint64_t total) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_layout *layout = flat_layout();
    options.threads = 1;
    options.total_steps = total;
    frug_compressor *c = make_compressor(config, layout, &options);
    frug_layout_destroy(layout);
    return c;
}

static frug_optimizer *make_optimizer(const char *text, const char *config, uint64_t total) {
    frug_compressor *c = flat_compressor(config, total);
    frug_layout *layout = flat_layout();
    frug_optimizer *o = NULL;
    if (frug_optimizer_create(text, layout, c, &o) != FRUG_OK)
        fail_msg("%s over %s: %s", text, config, frug_last_error());
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    return o;
}

/* Steps through a compressor, always from the same weights. */
static float *train(const char *text, const char *config, uint64_t steps) {
    frug_compressor *c = flat_compressor(config, STEPS);
    frug_optimizer *o = make_optimizer(text, config, STEPS);
    float *w = bell_array(N, 4), g[N], mean[N];
    size_t cap = 0, len = 0;
    OK(frug_compressor_bound(c, (frug_range){0, N}, &cap));
    unsigned char *frame = test_malloc(cap);
    const void *frames[] = {frame};
    for (uint64_t t = 0; t < steps; t++) {
        sparse_gradient(g, N, t, 1);
        memset(mean, 0, sizeof mean);
        OK(frug_compress(c, t, (frug_range){0, N}, g, frame, cap, &len));
        OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, N}, frames, &len, 1, 1, mean));
        OK(frug_optimizer_step(o, t, (frug_range){0, N}, mean, 0.01, w));
    }
    test_free(frame);
    frug_optimizer_destroy(o);
    frug_compressor_destroy(c);
    return w;
}

/* Bit for bit for SGD; Adam multiplies in another order, so to 4e-6 after 60 steps that change weights by up to 0.6. */
static void at_density_1_it_is_plain_momentum(void **state) {
    (void)state;
    static const char all[] = "density=1,feedback=merged,value=f32,residual=f32";
    float *a = train("merged:inertia=auto,decay=0.1", all, 60), *b = train("sgd:decay=0.1", all, 60);
    assert_same_bits(a, b, N * sizeof *a);
    test_free(a);
    test_free(b);
    a = train("adam-merged:inertia=auto,state=f32,beta1=0.8,beta2=0.95", all, 60);
    b = train("adamw:beta1=0.8,beta2=0.95", all, 60);
    for (size_t i = 0; i < N; i++)
        if (!(fabsf(a[i] - b[i]) <= 4e-6f))
            fail_msg("weight %zu is %.9g, AdamW has %.9g", i, (double)a[i], (double)b[i]);
    test_free(a);
    test_free(b);
}

static void at_low_density_there_is_no_velocity(void **state) {
    (void)state;
    static const char *const kinds[] = {"merged", "adam-merged"};
    for (size_t k = 0; k < 2; k++) {
        char text[64];
        snprintf(text, sizeof text, "%s:inertia=auto", kinds[k]);
        frug_optimizer *o = make_optimizer(text, "frugrad", STEPS), *p = make_optimizer(kinds[k], "frugrad", STEPS);
        assert_int_equal(frug_optimizer_state_size(o), frug_optimizer_state_size(p));
        frug_optimizer_destroy(o);
        frug_optimizer_destroy(p);
        float *a = train(text, "frugrad", 20), *b = train(kinds[k], "frugrad", 20);
        assert_same_bits(a, b, N * sizeof *a);
        test_free(a);
        test_free(b);
    }
}

/*
 * The formula of receiver_momentum.c for the schedule of PAPER: 50 % rising to 94 % by half of the steps; beta is 0.95.
 */
static double expected_momentum(double mu, double t) {
    double sparsity = 0.5 + (0.94 - 0.5) * fmin(1, t / STEPS / 0.5);
    double waits = 0.95 * sparsity / (1 - 0.95 * sparsity), missing = fmax(0, mu / (1 - mu) - waits);
    return missing / (1 + missing);
}

static uint64_t expected_end(double mu) {
    uint64_t end = STEPS;
    while (end > 0 && expected_momentum(mu, (double)end - 1) <= 0.5)
        end--;
    return end;
}

/*
 * Against reference loops in double, over the whole schedule; tolerance 4e-6 (1 + |w|). The last steps have no
 * velocity.
 */
static void between_them_it_follows_the_formula(void **state) {
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        frug_optimizer *o = make_optimizer(
            adam ? "adam-merged:inertia=auto,state=f32,beta2=0.95,decay=0" : "merged:inertia=auto", PAPER, STEPS);
        float *w = bell_array(N, 3), g[N];
        static double want[N], u[N], v[N];
        double product = 1;
        uint64_t end = expected_end(0.9), released = 0;
        assert_in_range(end, 30, 60);
        for (size_t i = 0; i < N; i++) {
            want[i] = (double)w[i];
            u[i] = v[i] = 0;
        }
        for (uint64_t t = 0; t < STEPS; t++) {
            double m = t < end ? expected_momentum(0.9, (double)t) : 0, rate = 0.001 * (1 + (double)(t % 3));
            product *= m;
            sparse_gradient(g, N, t, 2);
            OK(frug_optimizer_step(o, t, (frug_range){0, N}, g, rate, w));
            if (!released && frug_optimizer_state_size(o) < 40 + (adam ? 8 : 4) * (size_t)N)
                released = t;
            for (size_t i = 0; i < N; i++) {
                double r = (double)g[i];
                v[i] = 0.95 * v[i] + 0.05 * r * r;
                u[i] = m * u[i] + (adam ? 1 - m : 1) * r;
                want[i] -= adam ? rate * u[i] / (1 - product) / (sqrt(v[i] / (1 - pow(0.95, (double)t + 1))) + 1e-8)
                                : rate * 10 * (1 - m) * u[i];
            }
        }
        assert_int_equal(released, end);
        for (size_t i = 0; i < N; i++)
            if (!(fabs((double)w[i] - want[i]) <= 4e-6 * (1 + fabs(want[i]))))
                fail_msg("adam %d: weight %zu is %.9g, not %.9g", adam, i, (double)w[i], want[i]);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* Number of steps with a velocity, by trying each. */
static uint64_t find_last_step(const char *config, uint64_t total, uint64_t most) {
    frug_optimizer *o = make_optimizer("merged:inertia=auto", config, total);
    uint64_t t = 0;
    for (; t <= most && frug_optimizer_state_size(o) > 40; t++)
        OK(frug_optimizer_seek(o, t));
    frug_optimizer_destroy(o);
    return t ? t - 1 : 0;
}

/* The lowest density at which a velocity with momentum 0.5 is needed is 1 - 8 / 9 / 0.95: 6.43 %. */
static void velocity_exists_while_the_schedule_needs_it(void **state) {
    (void)state;
    assert_int_equal(find_last_step("frugrad", 1000, 2000), 0);
    assert_int_equal(find_last_step("frugrad,warmup=7", 1000, 2000), 7);
    assert_int_equal(find_last_step("frugrad,warmup=7", 0, 2000), 7);
    assert_int_equal(find_last_step("density=0.065", 1000, 2000), 2000); /* always */
    assert_int_equal(find_last_step("density=0.064", 1000, 2000), 0);
    /*
     * Sparsity: 0.99 to 0.25 of the steps, then 0 at half, 0.99 at 0.75; 0.935673 is reached at 0.5 + 0.25 * 0.945124.
     */
    static const char hill[] = "beta=0.95,schedule=piecewise:0.25:0.99:0.5:0:0.75:0.99";
    assert_int_equal(find_last_step(hill, 1000, 2000), 737);
    assert_int_equal(find_last_step(hill, 100000, 200000), 73629); /* more steps than are sampled one by one */
}

static void freed_velocity_returns_its_memory(void **state) {
    (void)state;
    uint64_t before = 0, with = 0, after = 0;
    frug_optimizer *o = NULL;
    frug_memory(&before, NULL);
    o = make_optimizer("merged:inertia=auto", PAPER, STEPS);
    frug_memory(&with, NULL);
    assert_int_equal(frug_optimizer_state_count(o), N);
    OK(frug_optimizer_seek(o, expected_end(0.9) - 1));
    assert_int_equal(frug_optimizer_state_count(o), N);
    OK(frug_optimizer_seek(o, expected_end(0.9)));
    frug_memory(&after, NULL);
    assert_true(with - after >= N * sizeof(float));
    assert_int_equal(frug_optimizer_state_count(o), 0);
    assert_int_equal(frug_optimizer_seek(NULL, 0), FRUG_ERR_ARG);
    frug_optimizer_destroy(o);
    frug_memory(&after, NULL);
    assert_int_equal(before, after);
}

static void run(frug_optimizer *o, uint64_t from, uint64_t to, float *w) {
    float g[N];
    for (uint64_t t = from; t < to; t++) {
        sparse_gradient(g, N, t, 4);
        OK(frug_optimizer_step(o, t, (frug_range){0, N}, g, 0.01, w));
    }
}

/* Before it is freed, and after: also into an optimizer that still has it, with or without a seek to the step. */
static void restored_state_continues_bit_for_bit(void **state) {
    (void)state;
    static const char *const texts[] = {"merged:inertia=auto", "adam-merged:inertia=auto"};
    for (size_t k = 0; k < 2; k++)
        for (uint64_t at = 5; at < STEPS; at += 30)
            for (int seek = 0; seek < 2; seek++) {
                frug_optimizer *a = make_optimizer(texts[k], PAPER, STEPS), *b = make_optimizer(texts[k], PAPER, STEPS);
                float *w = bell_array(N, 2), *x = test_malloc(N * sizeof *x);
                size_t len = 0;
                run(a, 0, at, w);
                unsigned char *bytes = save_optimizer(a, &len);
                memcpy(x, w, N * sizeof *x);
                if (seek) {
                    OK(frug_optimizer_seek(b, at));
                    assert_int_equal(frug_optimizer_state_size(b), len);
                }
                OK(frug_optimizer_restore(b, bytes, len));
                run(a, at, STEPS, w);
                run(b, at, STEPS, x);
                assert_same_bits(w, x, N * sizeof *w);
                test_free(bytes);
                test_free(w);
                test_free(x);
                frug_optimizer_destroy(a);
                frug_optimizer_destroy(b);
            }
}

static void mismatched_states_are_refused(void **state) {
    (void)state;
    frug_optimizer *o = make_optimizer("merged:inertia=auto", PAPER, STEPS),
                   *none = make_optimizer("merged", PAPER, STEPS);
    size_t len = 0;
    unsigned char *bytes = save_optimizer(o, &len);
    assert_int_equal(frug_optimizer_restore(none, bytes, len), FRUG_ERR_MISMATCH);
    assert_non_null(strstr(frug_last_error(), "a velocity and this optimizer has none"));
    frugi_put32(bytes + len - 4, 0x7fc00000u); /* a NaN as the last one */
    frugi_put32(bytes + 12, 0);
    frugi_put32(bytes + 12, frugi_crc32c(0, bytes, len));
    assert_int_equal(frug_optimizer_restore(o, bytes, len), FRUG_ERR_FORMAT);
    bytes[7] = 0; /* no velocity, with the length of one */
    frugi_put32(bytes + 12, 0);
    frugi_put32(bytes + 12, frugi_crc32c(0, bytes, len));
    assert_int_equal(frug_optimizer_restore(o, bytes, len), FRUG_ERR_MISMATCH);
    assert_int_equal(frug_optimizer_state_count(o), N);
    test_free(bytes);
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(none);
}

/* A constant inertia is never freed, so a state without a velocity belongs to another optimizer. */
static void constant_inertia_requires_a_velocity(void **state) {
    (void)state;
    static const char *const texts[][2] = {{"merged", "merged:inertia=0.5"},
                                           {"adam-merged", "adam-merged:inertia=0.5"},
                                           {"merged", "merged:inertia=auto"}};
    static const char *const configs[] = {PAPER, PAPER, "density=1"};
    for (size_t k = 0; k < 3; k++) {
        frug_optimizer *a = make_optimizer(texts[k][0], configs[k], STEPS);
        frug_optimizer *b = make_optimizer(texts[k][1], configs[k], STEPS);
        size_t len = 0;
        unsigned char *bytes = save_optimizer(a, &len);
        assert_int_equal(frug_optimizer_restore(b, bytes, len), FRUG_ERR_MISMATCH);
        assert_non_null(strstr(frug_last_error(), "no velocity and this optimizer needs one"));
        test_free(bytes);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

static void unusable_configs_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *config, *why;
    } cases[] = {
        {"merged:inertia=auto", NULL, "needs a compressor with feedback=merged"},
        {"merged:inertia=auto,gain=1", "feedback=none", "needs a compressor with feedback=merged"},
        {"merged:inertia=auto", "dgc", "needs a compressor with feedback=merged"},
        {"merged:inertia=auto,momentum=0", "frugrad", "momentum is 0"},
        {"adam-merged:inertia=auto,beta1=0", "frugrad", "beta1 is 0"},
        {"merged:inertia=1", "frugrad", "accepted: off, auto, or 0 to 0.999999"},
        {"merged:inertia=-1", "frugrad", "accepted: off, auto, or 0 to 0.999999"},
        {"merged:inertia=auto", "frugrad,hold=auto", "count it twice"},
        {"adam-merged:inertia=0.5", "frugrad,hold=0.5", "count it twice"},
        {"sgd:inertia=auto", "frugrad", "unknown option 'inertia'"},
    };
    frug_layout *layout = flat_layout();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        frug_compressor *c = cases[k].config ? flat_compressor(cases[k].config, 10) : NULL;
        frug_optimizer *o = NULL;
        assert_int_equal(frug_optimizer_create(cases[k].text, layout, c, &o), FRUG_ERR_CONFIG);
        if (!strstr(frug_last_error(), cases[k].why))
            fail_msg("%s: '%s'", cases[k].text, frug_last_error());
        frug_compressor_destroy(c);
    }
    frug_layout_destroy(layout);
    frug_optimizer *o = make_optimizer("merged:inertia=0", "frugrad", 10);
    assert_non_null(strstr(frug_optimizer_text(o), "inertia=off"));
    frug_optimizer_destroy(o);
    o = make_optimizer("merged:inertia=auto", "frugrad", 10);
    assert_non_null(strstr(frug_optimizer_text(o), "inertia=auto"));
    frug_optimizer_destroy(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_density_1_it_is_plain_momentum),
        cmocka_unit_test(at_low_density_there_is_no_velocity),
        cmocka_unit_test(between_them_it_follows_the_formula),
        cmocka_unit_test(velocity_exists_while_the_schedule_needs_it),
        cmocka_unit_test(freed_velocity_returns_its_memory),
        cmocka_unit_test(restored_state_continues_bit_for_bit),
        cmocka_unit_test(mismatched_states_are_refused),
        cmocka_unit_test(constant_inertia_requires_a_velocity),
        cmocka_unit_test(unusable_configs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

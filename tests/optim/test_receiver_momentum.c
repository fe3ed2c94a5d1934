/*
 * test_receiver_momentum.c - the velocity beside merged momentum: what it is where all is sent, where little is, and on
 * the way; when it is let go, and what is saved of it. Seeds are those of sparse_gradient() and bell_array().
 */
#include "optim/optim_helpers.h"

#include "base/float_bits.h"
#include "base/crc32c.h"

#include <math.h>
#include <stdio.h>

#define N     5000u /* more than min_size, so it is compressed */
#define STEPS 100u
#define PAPER "schedule=frugrad,value=f32,residual=f32"

static frug_layout *flat(void) {
    frug_layout *layout = NULL;
    OK(frug_layout_flat(N, &layout));
    return layout;
}

static frug_compressor *compressor_of(const char *config, uint64_t total) {
    frug_options options = FRUG_OPTIONS_INIT;
    frug_layout *layout = flat();
    options.threads = 1;
    options.total_steps = total;
    frug_compressor *c = make_compressor(config, layout, &options);
    frug_layout_destroy(layout);
    return c;
}

static frug_optimizer *optimizer_of(const char *text, const char *config, uint64_t total) {
    frug_compressor *c = compressor_of(config, total);
    frug_layout *layout = flat();
    frug_optimizer *o = NULL;
    if (frug_optimizer_create(text, layout, c, &o) != FRUG_OK)
        fail_msg("%s over %s: %s", text, config, frug_last_error());
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    return o;
}

/* Steps through a compressor, from weights that are the same each time. */
static float *trained(const char *text, const char *config, uint64_t steps) {
    frug_compressor *c = compressor_of(config, STEPS);
    frug_optimizer *o = optimizer_of(text, config, STEPS);
    float *w = bell_array(N, 4), g[N], mean[N];
    size_t cap = 0, len = 0;
    OK(frug_compressor_bound(c, 0, N, &cap));
    unsigned char *frame = test_malloc(cap);
    const void *frames[] = {frame};
    for (uint64_t t = 0; t < steps; t++) {
        sparse_gradient(g, N, t, 1);
        memset(mean, 0, sizeof mean);
        OK(frug_compress(c, t, 0, N, g, frame, cap, &len));
        OK(frug_decompress_add(c, frames, &len, 1, 1, 0, N, mean));
        OK(frug_optimizer_step(o, t, 0, N, mean, 0.01, w));
    }
    test_free(frame);
    frug_optimizer_destroy(o);
    frug_compressor_destroy(c);
    return w;
}

/* Bit for bit for SGD; Adam has its factors in another order, so to 4e-6 after 60 steps that move by up to 0.6. */
static void where_all_is_sent_it_is_ordinary_momentum(void **state) {
    (void)state;
    static const char all[] = "density=1,feedback=merged,value=f32,residual=f32";
    float *a = trained("merged:inertia=auto,decay=0.1", all, 60), *b = trained("sgd:decay=0.1", all, 60);
    assert_same_bits(a, b, N * sizeof *a);
    test_free(a);
    test_free(b);
    a = trained("adam-merged:inertia=auto,state=f32,beta1=0.8,beta2=0.95", all, 60);
    b = trained("adamw:beta1=0.8,beta2=0.95", all, 60);
    for (size_t i = 0; i < N; i++)
        if (!(fabsf(a[i] - b[i]) <= 4e-6f))
            fail_msg("weight %zu is %.9g, AdamW has %.9g", i, (double)a[i], (double)b[i]);
    test_free(a);
    test_free(b);
}

static void where_little_is_sent_there_is_none(void **state) {
    (void)state;
    static const char *const kinds[] = {"merged", "adam-merged"};
    for (size_t k = 0; k < 2; k++) {
        char text[64];
        snprintf(text, sizeof text, "%s:inertia=auto", kinds[k]);
        frug_optimizer *o = optimizer_of(text, "frugrad", STEPS), *p = optimizer_of(kinds[k], "frugrad", STEPS);
        assert_int_equal(frug_optimizer_state_size(o), frug_optimizer_state_size(p));
        frug_optimizer_destroy(o);
        frug_optimizer_destroy(p);
        float *a = trained(text, "frugrad", 20), *b = trained(kinds[k], "frugrad", 20);
        assert_same_bits(a, b, N * sizeof *a);
        test_free(a);
        test_free(b);
    }
}

/* The formula of receiver_momentum.c for the schedule of PAPER: 50 % rising to 94 % by half of the steps; beta is 0.95.
 */
static double wanted(double mu, double t) {
    double held = 0.5 + (0.94 - 0.5) * fmin(1, t / STEPS / 0.5);
    double waits = 0.95 * held / (1 - 0.95 * held), missing = fmax(0, mu / (1 - mu) - waits);
    return missing / (1 + missing);
}

static uint64_t expected_end(double mu) {
    uint64_t end = STEPS;
    while (end > 0 && wanted(mu, (double)end - 1) <= 0.5)
        end--;
    return end;
}

/* Against plain loops in double, over the whole schedule; tolerance 4e-6 (1 + |w|). The last steps are without. */
static void on_the_way_it_is_the_formula(void **state) {
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        frug_optimizer *o = optimizer_of(
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
            double m = t < end ? wanted(0.9, (double)t) : 0, rate = 0.001 * (1 + (double)(t % 3));
            product *= m;
            sparse_gradient(g, N, t, 2);
            OK(frug_optimizer_step(o, t, 0, N, g, rate, w));
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

/* How many steps have a velocity, by looking at each. */
static uint64_t end_of(const char *config, uint64_t total, uint64_t most) {
    frug_optimizer *o = optimizer_of("merged:inertia=auto", config, total);
    uint64_t t = 0;
    for (; t <= most && frug_optimizer_state_size(o) > 40; t++)
        OK(frug_optimizer_seek(o, t));
    frug_optimizer_destroy(o);
    return t ? t - 1 : 0;
}

/* The least density at which a velocity with momentum 0.5 is wanted is 1 - 8 / 9 / 0.95: 6.43 %. */
static void it_lasts_as_long_as_the_schedule_wants_it(void **state) {
    (void)state;
    assert_int_equal(end_of("frugrad", 1000, 2000), 0);
    assert_int_equal(end_of("frugrad,warmup=7", 1000, 2000), 7);
    assert_int_equal(end_of("frugrad,warmup=7", 0, 2000), 7);
    assert_int_equal(end_of("density=0.065", 1000, 2000), 2000); /* for ever */
    assert_int_equal(end_of("density=0.064", 1000, 2000), 0);
    /* Held back: 0.99 to 0.25 of the way, then 0 at half, 0.99 at 0.75; 0.935673 is met at 0.5 + 0.25 * 0.945124. */
    static const char hill[] = "beta=0.95,schedule=piecewise:0.25:0.99:0.5:0:0.75:0.99";
    assert_int_equal(end_of(hill, 1000, 2000), 737);
    assert_int_equal(end_of(hill, 100000, 200000), 73629); /* more steps than are looked at one by one */
}

static void what_is_let_go_is_given_back(void **state) {
    (void)state;
    uint64_t before = 0, with = 0, after = 0;
    frug_optimizer *o = NULL;
    frug_memory(&before, NULL);
    o = optimizer_of("merged:inertia=auto", PAPER, STEPS);
    frug_memory(&with, NULL);
    assert_int_equal(frug_optimizer_states(o), N);
    OK(frug_optimizer_seek(o, expected_end(0.9) - 1));
    assert_int_equal(frug_optimizer_states(o), N);
    OK(frug_optimizer_seek(o, expected_end(0.9)));
    frug_memory(&after, NULL);
    assert_true(with - after >= N * sizeof(float));
    assert_int_equal(frug_optimizer_states(o), 0);
    assert_int_equal(frug_optimizer_seek(NULL, 0), FRUG_ERR_ARG);
    frug_optimizer_destroy(o);
    frug_memory(&after, NULL);
    assert_int_equal(before, after);
}

static void run(frug_optimizer *o, uint64_t from, uint64_t to, float *w) {
    float g[N];
    for (uint64_t t = from; t < to; t++) {
        sparse_gradient(g, N, t, 4);
        OK(frug_optimizer_step(o, t, 0, N, g, 0.01, w));
    }
}

/* Before it is let go, and after: also into one that still has it, and with or without being told the step. */
static void a_restart_goes_on_bit_for_bit(void **state) {
    (void)state;
    static const char *const texts[] = {"merged:inertia=auto", "adam-merged:inertia=auto"};
    for (size_t k = 0; k < 2; k++)
        for (uint64_t at = 5; at < STEPS; at += 30)
            for (int told = 0; told < 2; told++) {
                frug_optimizer *a = optimizer_of(texts[k], PAPER, STEPS), *b = optimizer_of(texts[k], PAPER, STEPS);
                float *w = bell_array(N, 2), *x = test_malloc(N * sizeof *x);
                size_t len = 0;
                run(a, 0, at, w);
                unsigned char *bytes = saved_optimizer(a, &len);
                memcpy(x, w, N * sizeof *x);
                if (told) {
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

static void states_that_do_not_fit_are_refused(void **state) {
    (void)state;
    frug_optimizer *o = optimizer_of("merged:inertia=auto", PAPER, STEPS), *none = optimizer_of("merged", PAPER, STEPS);
    size_t len = 0;
    unsigned char *bytes = saved_optimizer(o, &len);
    assert_int_equal(frug_optimizer_restore(none, bytes, len), FRUG_ERR_MISMATCH);
    assert_non_null(strstr(frug_last_error(), "a velocity and this one none"));
    frugi_put32(bytes + len - 4, 0x7fc00000u); /* a NaN as the last one */
    frugi_put32(bytes + 12, 0);
    frugi_put32(bytes + 12, frugi_crc32c(0, bytes, len));
    assert_int_equal(frug_optimizer_restore(o, bytes, len), FRUG_ERR_FORMAT);
    bytes[7] = 0; /* that it has none, though it is as long */
    frugi_put32(bytes + 12, 0);
    frugi_put32(bytes + 12, frugi_crc32c(0, bytes, len));
    assert_int_equal(frug_optimizer_restore(o, bytes, len), FRUG_ERR_MISMATCH);
    assert_int_equal(frug_optimizer_states(o), N);
    test_free(bytes);
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(none);
}

/* A constant inertia is never let go, so a state without a velocity is another optimiser's, and would silence it. */
static void a_constant_one_is_not_silenced(void **state) {
    (void)state;
    static const char *const texts[][2] = {{"merged", "merged:inertia=0.5"},
                                           {"adam-merged", "adam-merged:inertia=0.5"},
                                           {"merged", "merged:inertia=auto"}};
    static const char *const configs[] = {PAPER, PAPER, "density=1"};
    for (size_t k = 0; k < 3; k++) {
        frug_optimizer *a = optimizer_of(texts[k][0], configs[k], STEPS);
        frug_optimizer *b = optimizer_of(texts[k][1], configs[k], STEPS);
        size_t len = 0;
        unsigned char *bytes = saved_optimizer(a, &len);
        assert_int_equal(frug_optimizer_restore(b, bytes, len), FRUG_ERR_MISMATCH);
        assert_non_null(strstr(frug_last_error(), "this one keeps a velocity"));
        test_free(bytes);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

static void what_it_cannot_go_by_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *config, *why;
    } cases[] = {
        {"merged:inertia=auto", NULL, "there is none"},
        {"merged:inertia=auto,gain=1", "feedback=none", "there is none"},
        {"merged:inertia=auto", "dgc", "there is none"},
        {"merged:inertia=auto,momentum=0", "frugrad", "momentum is 0"},
        {"adam-merged:inertia=auto,beta1=0", "frugrad", "beta1 is 0"},
        {"merged:inertia=1", "frugrad", "accepted: off, auto, or 0 to 0.999999"},
        {"merged:inertia=-1", "frugrad", "accepted: off, auto, or 0 to 0.999999"},
        {"merged:inertia=auto", "frugrad,hold=auto", "count it twice"},
        {"adam-merged:inertia=0.5", "frugrad,hold=0.5", "count it twice"},
        {"sgd:inertia=auto", "frugrad", "unknown option 'inertia'"},
    };
    frug_layout *layout = flat();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        frug_compressor *c = cases[k].config ? compressor_of(cases[k].config, 10) : NULL;
        frug_optimizer *o = NULL;
        assert_int_equal(frug_optimizer_create(cases[k].text, layout, c, &o), FRUG_ERR_CONFIG);
        if (!strstr(frug_last_error(), cases[k].why))
            fail_msg("%s: '%s'", cases[k].text, frug_last_error());
        frug_compressor_destroy(c);
    }
    frug_layout_destroy(layout);
    frug_optimizer *o = optimizer_of("merged:inertia=0", "frugrad", 10);
    assert_non_null(strstr(frug_optimizer_text(o), "inertia=off"));
    frug_optimizer_destroy(o);
    o = optimizer_of("merged:inertia=auto", "frugrad", 10);
    assert_non_null(strstr(frug_optimizer_text(o), "inertia=auto"));
    frug_optimizer_destroy(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_all_is_sent_it_is_ordinary_momentum),
        cmocka_unit_test(where_little_is_sent_there_is_none),
        cmocka_unit_test(on_the_way_it_is_the_formula),
        cmocka_unit_test(it_lasts_as_long_as_the_schedule_wants_it),
        cmocka_unit_test(what_is_let_go_is_given_back),
        cmocka_unit_test(a_restart_goes_on_bit_for_bit),
        cmocka_unit_test(states_that_do_not_fit_are_refused),
        cmocka_unit_test(a_constant_one_is_not_silenced),
        cmocka_unit_test(what_it_cannot_go_by_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

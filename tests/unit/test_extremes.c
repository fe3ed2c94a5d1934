/*
 * test_extremes.c - layouts and gradients at the edge of what is allowed: tiny tensors beside large ones, magnitudes
 * near the largest float, skipped blocks, calls that fail.
 */
#include "support/test_layouts.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- tiny tensors beside a large one ----------------------------------------- */

#define TINY 40u

/* Tensors of one unit each, whose minimum is one unit each, and a large one that can use the whole budget. */
static frug_layout *make_tiny_tensors(void) {
    static const char *const names[] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"};
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    for (size_t i = 0; i < TINY; i++)
        test_layout_add(z, names[i % COUNT(names)], FRUG_ROLE_LINEAR, TEST_SHAPE(1, 1), 0, 0, 0, 0);
    test_layout_add(z, "large", FRUG_ROLE_LINEAR, TEST_SHAPE(64, 64), 0, 0, 0, 0);
    return z;
}

static void one_tensor_may_use_the_budget_of_many(void **state) {
    (void)state;
    static const char *const some[] = {"rule=topk",
                                       "rule=topk,unit=tile:8x8",
                                       "rule=topk,unit=run:64,value=int4",
                                       "rule=threshold:percentile",
                                       "rule=threshold:absolute:0.1,unit=tile:4x4",
                                       "rule=threshold:absolute:0.1",
                                       "rule=probabilistic,density=0.001",
                                       "rule=hybrid"};
    frug_layout *z = make_tiny_tensors();
    const size_t n = frug_layout_elements(z);
    float *sent = test_calloc(n, sizeof(float));
    for (size_t i = 0; i < COUNT(some); i++) {
        char config[128];
        snprintf(config, sizeof config, "segment=all,min_size=1,density=0.01,feedback=none,value=f32,%s", some[i]);
        frug_compressor *c = make_compressor(config, z, NULL);
        for (uint64_t step = 0; step < 200;
             step++) { /* probabilistic: the tiny ones are sent with probability 1/2 each */
            float *grad = bell_array(n, step + 1);
            for (size_t e = 0; e < TINY; e++)
                grad[e] = 40.0f;
            size_t len;
            unsigned char *frame = compress_range(c, step, 0, n, grad, &len);
            restore_range(c, frame, len, 0, n, sent);
            test_free(frame);
            test_free(grad);
        }
        frug_compressor_destroy(c);
    }
    test_free(sent);
    frug_layout_destroy(z);
}

/* ---- bounds -------------------------------------------------------------------- */

/* Just below density 1, indices cost more than the values that are not sent. */
static void bounds_hold_for_schedules_that_start_dense(void **state) {
    (void)state;
    static const char *const some[] = {"index=local,value=f32", "index=bitmap,value=bf16", "index=fixed,value=int8",
                                       "segment=tensor,index=auto,value=f32", "segment=2:4"};
    frug_layout *z = make_test_layout(60);
    const size_t n = frug_layout_elements(z);
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.total_steps = 400;
    float *grad = make_test_gradient(z, 1);
    for (size_t i = 0; i < COUNT(some); i++) {
        char config[128];
        snprintf(config, sizeof config, "schedule=frugrad:0:0.9:1,min_size=1,%s", some[i]);
        frug_compressor *c = make_compressor(config, z, &options);
        for (uint64_t step = 0; step < 8; step++) {
            size_t len;
            test_free(compress_range(c, step, 0, n, grad, &len));
        }
        frug_compressor_destroy(c);
    }
    test_free(grad);
    frug_layout_destroy(z);
}

/* ---- magnitudes ------------------------------------------------------------------ */

/* For all formats and codes, one step with huge values must not skip blocks forever or break a frame. */
static void the_largest_floats_cause_no_lasting_damage(void **state) {
    (void)state;
    static const char *const some[] = {
        "segment=block,residual=int8",           "segment=block,residual=int4",
        "segment=block,residual=bf16",           "segment=tensor,residual=int8",
        "segment=tensor,residual=int4",          "segment=tensor,residual=int8,feedback=ef21",
        "segment=tensor,unit=row,residual=int4", "rule=random,segment=tensor,feedback=none",
        "density=1,value=qsgd,feedback=none",    "density=1,value=onebit",
        "segment=tensor,value=two_bit"};
    frug_layout *z = make_test_layout(60);
    const size_t n = frug_layout_elements(z);
    float *sent = test_calloc(n, sizeof(float)), *grad = test_calloc(n, sizeof(float));
    for (size_t i = 0; i < COUNT(some); i++) {
        char config[128];
        snprintf(config, sizeof config, "min_size=1,%s%s", some[i], strstr(some[i], "feedback=") ? "" : ",beta=0.5");
        frug_compressor *c = make_compressor(config, z, NULL);
        frug_frame_info info = {.struct_size = sizeof info};
        for (uint64_t step = 0; step < 12; step++) {
            for (size_t e = 0; e < n; e++)
                grad[e] = step ? 0.0f : e % 2 ? FLT_MAX : -FLT_MAX;
            size_t len;
            unsigned char *frame = compress_range(c, step, 0, n, grad, &len);
            OK(frug_frame_check(frame, len, &info));
            restore_range(c, frame, len, 0, n, sent);
            for (size_t e = 0; e < n; e++)
                if (!isfinite(sent[e]))
                    fail_msg("%s step %d: %g is sent", config, (int)step, (double)sent[e]);
            test_free(frame);
        }
        if (info.skipped)
            fail_msg("%s: %u blocks are still skipped", config, (unsigned)info.skipped);
        frug_compressor_destroy(c);
    }
    test_free(sent);
    test_free(grad);
    frug_layout_destroy(z);
}

/* ---- skipped blocks ---------------------------------------------------------------- */

/* The entries that a skipped block sends from its residual lose their momentum then, and not a step later. */
static void a_skipped_block_masks_only_what_it_sent(void **state) {
    (void)state;
    enum { N = 256 };
    frug_layout *layout = NULL;
    OK(frug_layout_flat(N, &layout));
    frug_compressor *c = make_compressor(
        "min_size=1,segment=tensor,density=0.25,feedback=dgc,mask=on,residual=f32,value=f32", layout, NULL);
    float u[N] = {0}, v[N] = {0}, sent[N];
    for (uint64_t step = 0; step < 6; step++) {
        float *grad = bell_array(N, step + 1);
        bool skipped = step == 2;
        for (size_t i = 0; !skipped && i < N; i++) {
            u[i] = 0.9f * u[i] + grad[i];
            v[i] += u[i];
        }
        grad[17] = skipped ? NAN : grad[17];
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, N, grad, &len);
        restore_range(c, frame, len, 0, N, sent);
        for (size_t i = 0; i < N; i++)
            if (sent[i] != 0) {
                assert_true(sent[i] == v[i]);
                u[i] = v[i] = 0;
            }
        test_free(frame);
        test_free(grad);
    }
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* ---- plans and failures --------------------------------------------------------------- */

/* Every block sends one entry at least and MOST at most, and plans know. */
static void plans_of_hybrid_respect_its_limits(void **state) {
    (void)state;
    static const char *const some[] = {"rule=hybrid,density=0.001", "rule=hybrid:16,density=0.0625,norm=accordion",
                                       "rule=hybrid:16,schedule=piecewise:0:0.5:1:0.95"};
    frug_layout *z = make_test_layout(60);
    const size_t n = frug_layout_elements(z);
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.total_steps = 100;
    for (size_t i = 0; i < COUNT(some); i++) {
        char config[128];
        snprintf(config, sizeof config, "min_size=1,segment=tensor,%s", some[i]);
        frug_compressor *c = make_compressor(config, z, &options);
        for (uint64_t step = 0; step < 2; step++) {
            float *grad = make_test_gradient(z, 1);
            for (size_t e = 0; e < n; e++)
                grad[e] *= step ? 100.0f : 1.0f;
            size_t len;
            unsigned char *frame = compress_range(c, step, 0, n, grad, &len);
            frug_frame_info info = {.struct_size = sizeof info};
            OK(frug_frame_check(frame, len, &info));
            for (uint32_t s = 0; s < info.sections; s++) {
                frug_section_info section = {.struct_size = sizeof section};
                frug_tensor_plan plan = {.struct_size = sizeof plan};
                OK(frug_frame_section(frame, len, s, &section));
                OK(frug_compressor_plan(c, step, section.tensor, &plan));
                if (!plan.dense)
                    assert_int_equal(plan.selected, section.selected);
            }
            test_free(frame);
            test_free(grad);
        }
        frug_compressor_destroy(c);
    }
    frug_layout_destroy(z);
}

/* A call that fails changes no state, not even the norm. */
static void a_failed_step_does_not_change_the_norm(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(60);
    const size_t n = frug_layout_elements(z);
    float *grad = make_test_gradient(z, 1), *wild = make_test_gradient(z, 2);
    for (size_t i = 0; i < n; i++)
        wild[i] *= 1000.0f;
    static const char *const some[] = {"norm=follow,min_size=1", "norm=accordion,segment=tensor,min_size=1"};
    for (size_t i = 0; i < COUNT(some); i++) {
        frug_compressor *a = make_compressor(some[i], z, NULL), *b = make_compressor(some[i], z, NULL);
        for (uint64_t step = 0; step < 3; step++) {
            unsigned char small[64];
            size_t len[2], none;
            assert_int_equal(frug_compress(b, step + 50, (frug_range){0, n}, wild, small, sizeof small, &none),
                             FRUG_ERR_SHORT_BUFFER);
            unsigned char *x = compress_range(a, step, 0, n, grad, &len[0]);
            unsigned char *y = compress_range(b, step, 0, n, grad, &len[1]);
            assert_int_equal(len[0], len[1]);
            assert_same_bits(x, y, len[0]);
            test_free(x);
            test_free(y);
        }
        frug_compressor_destroy(a);
        frug_compressor_destroy(b);
    }
    test_free(grad);
    test_free(wild);
    frug_layout_destroy(z);
}

/* ---- gaps, norms, statistics --------------------------------------------------------------- */

/* Two tensors with a gap of arbitrary data between them, and one entry that is a NaN: the rest is clipped. */
static void clipping_ignores_gaps_and_nans(void **state) {
    (void)state;
    static const char *const some[] = {"density=1", "segment=tensor,density=1",
                                       "segment=block,norm=follow,density=0.9"};
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    test_layout_add(z, "a", FRUG_ROLE_LINEAR, TEST_SHAPE(16, 64), 0, 0, 0, 0);
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = "b";
    t.ndim = 2;
    t.shape[0] = 16;
    t.shape[1] = 64;
    t.offset = 1100;
    OK(frug_layout_add(z, &t));
    const size_t n = frug_layout_elements(z);
    float *sent = test_calloc(n, sizeof(float));
    for (size_t i = 0; i < COUNT(some); i++)
        for (int gap = 0; gap < 2; gap++) {
            char config[128];
            snprintf(config, sizeof config, "min_size=1,clip=5,feedback=none,value=f32,%s", some[i]);
            frug_compressor *c = make_compressor(config, z, NULL);
            float *grad = bell_array(n, 3);
            for (size_t e = 1024; e < 1100; e++)
                grad[e] = gap ? NAN : 1e30f;
            grad[7] = gap ? grad[7] : NAN;
            size_t len;
            unsigned char *frame = compress_range(c, 0, 0, n, grad, &len);
            restore_range(c, frame, len, 0, n, sent);
            double energy = 0;
            for (size_t e = 0; e < n; e++)
                energy += (double)sent[e] * (double)sent[e];
            /* of 2048 entries, norm near 45, a block of 256 may be skipped and a tenth not sent */
            if (!(energy > 0.75 * 25 && energy < 25.001))
                fail_msg("%s: the energy sent is %g", config, energy);
            test_free(frame);
            test_free(grad);
            frug_compressor_destroy(c);
        }
    test_free(sent);
    frug_layout_destroy(z);
}

/* A tensor counts once, whether it has no section or two. */
static void statistics_count_every_entry_once(void **state) {
    (void)state;
    static const char *const some[] = {"frugrad", "rule=probabilistic,segment=all,feedback=none",
                                       "rule=threshold:absolute:1e30,segment=tensor"};
    frug_layout *z = make_test_layout(60);
    const size_t n = frug_layout_elements(z);
    float *grad = make_test_gradient(z, 1);
    for (size_t i = 0; i < COUNT(some); i++) {
        char config[128];
        snprintf(config, sizeof config, "%s,min_size=1", some[i]);
        frug_compressor *c = make_compressor(config, z, NULL);
        frug_stats stats = {.struct_size = sizeof stats};
        size_t len;
        test_free(compress_range(c, 0, 0, n, grad, &len));
        OK(frug_compressor_stats(c, &stats));
        assert_int_equal(stats.entries_seen, n);
        assert_int_equal(stats.bytes_dense, 4 * n);
        frug_compressor_destroy(c);
    }
    test_free(grad);
    frug_layout_destroy(z);
}

static void weights_decay_without_a_frame(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    OK(frug_layout_flat(100, &layout));
    frug_compressor *c = make_compressor("min_size=1", layout, NULL);
    float w[100];
    for (size_t i = 0; i < 100; i++)
        w[i] = 2.0f;
    OK(frug_decode_apply(frug_compressor_decoder(c), (frug_range){0, 100}, NULL, NULL, 0, 0.1f, 0.25f, w));
    for (size_t i = 0; i < 100; i++)
        assert_true(w[i] == 1.5f);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* Most of all, a sensitivity must not pass for the share of a budget. */
static void calls_that_the_config_does_not_use_are_rejected(void **state) {
    (void)state;
    const double two = 2;
    frug_layout *z = make_test_layout(60);
    frug_compressor *c = make_compressor("segment=tensor,layers=budget,min_size=1", z, NULL);
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_SENSITIVITY, 0, &two, 1), FRUG_ERR_ARG);
    assert_int_equal(frug_compressor_set_signal(c, FRUG_SIGNAL_NORM, 0, &two, 1), FRUG_ERR_ARG);
    frug_compressor_destroy(c);
    c = make_compressor("layers=sensitivity,norm=follow,min_size=1", z, NULL);
    OK(frug_compressor_set_signal(c, FRUG_SIGNAL_SENSITIVITY, 0, &two, 1));
    OK(frug_compressor_set_signal(c, FRUG_SIGNAL_NORM, 0, &two, 1));
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tensor_may_use_the_budget_of_many),
        cmocka_unit_test(bounds_hold_for_schedules_that_start_dense),
        cmocka_unit_test(the_largest_floats_cause_no_lasting_damage),
        cmocka_unit_test(a_skipped_block_masks_only_what_it_sent),
        cmocka_unit_test(plans_of_hybrid_respect_its_limits),
        cmocka_unit_test(a_failed_step_does_not_change_the_norm),
        cmocka_unit_test(clipping_ignores_gaps_and_nans),
        cmocka_unit_test(statistics_count_every_entry_once),
        cmocka_unit_test(weights_decay_without_a_frame),
        cmocka_unit_test(calls_that_the_config_does_not_use_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_sgc_measure.c - measurements instead of gradients: what a worker contributes, the update from the mean of many,
 * and that one worker gets the same bits. Seeds are those of sparse_gradient() and bell_array(); comparisons are by
 * bits unless a tolerance is given.
 */
#include "optim/sgc_helpers.h"

#include "support/test_clock.h"

#include <stdio.h>

#define GUARD 12345.0f

/* Measure a range and step with it; checks that exactly the announced number of floats is written. */
static void step_by_measuring(frug_optimizer *o, uint64_t step, uint64_t begin, uint64_t count, const float *g,
                              float *w) {
    uint64_t n = frug_optimizer_measure_count(o, step, (frug_range){begin, count});
    float *measured = test_malloc((n + 1) * sizeof *measured);
    unsigned char *before = test_malloc(o->arena_bytes + 1);
    memcpy(before, o->arena, o->arena_bytes);
    measured[n] = GUARD;
    OK(frug_optimizer_measure(o, step, (frug_range){begin, count}, g, measured));
    assert_true(measured[n] == GUARD);
    assert_memory_equal(before, o->arena, o->arena_bytes);
    assert_int_equal(frug_optimizer_measure_count(o, step, (frug_range){begin, count}), n);
    OK(frug_optimizer_step_measured(o, step, (frug_range){begin, count}, measured, 0.01, w));
    assert_true(measured[n] == GUARD);
    test_free(before);
    test_free(measured);
}

static void assert_one_worker_is_a_step(const char *text, frug_optimizer *a, frug_optimizer *b, uint64_t n,
                                        const uint64_t *cuts, size_t ranges) {
    float *w = bell_array(n, 5), *x = bell_array(n, 5), *g = test_malloc(n * sizeof *g);
    for (uint64_t t = 0; t < 13; t++) {
        sparse_gradient(g, n, t, 3);
        if (t == 5)
            g[n - 1] = g[7] = NAN; /* skipped either way */
        OK(frug_optimizer_step(a, t, (frug_range){0, n}, g, 0.01, w));
        for (size_t i = ranges; i > 0; i--)
            step_by_measuring(b, t, cuts[i - 1], cuts[i] - cuts[i - 1], g + cuts[i - 1], x + cuts[i - 1]);
        if (memcmp(w, x, n * sizeof *w) != 0 || memcmp(a->arena, b->arena, a->arena_bytes) != 0)
            fail_msg("%s: other bits at step %d", text, (int)t);
    }
    test_free(g);
    test_free(w);
    test_free(x);
    frug_optimizer_destroy(a);
    frug_optimizer_destroy(b);
}

static void one_worker_gets_the_same_bits(void **state) {
    (void)state;
    static const uint64_t whole[] = {0, TUNE_N}, tensors[] = {0, Q_N, BIAS, V, K, MLP, TUNE_N};
    static const uint64_t blocks[] = {0, 256, 740, 753, OPTIM_BIAS + 256, OPTIM_BIG, OPTIM_BIG + 512, OPTIM_N};
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        const char *text = every_tuned[k];
        assert_one_worker_is_a_step(text, target_optimizer(text), target_optimizer(text), TUNE_N, whole, 1);
        assert_one_worker_is_a_step(text, target_optimizer(text), target_optimizer(text), TUNE_N, tensors, 6);
    }
    for (size_t k = 0; k < EVERY_OPTIMIZER; k++) {
        const char *text = every_optimizer[k];
        assert_one_worker_is_a_step(text, optimizer_with_gaps(text, "min_size=100"),
                                    optimizer_with_gaps(text, "min_size=100"), OPTIM_N, blocks, 7);
    }
}

/* ---- number of floats ------------------------------------------------------------- */

/* For q, a gap, a bias, v, k and mlp, at the first step, at the next, and at one that renews basis and shares. */
static const struct {
    const char *text;
    uint64_t first, later, renewed; /* at steps 0, 1 and 4 */
} wants[] = {
    {"sgc:s=24", 4 * 168, 4 * 168, 4 * 168},
    {"mesgc:s=24,c=8", 4 * 168, 4 * 168, 4 * 168},
    {"mesgc:s=24,c=8,others=adamw", 4 * 168 + 970, 4 * 168 + 970, 4 * 168 + 970},
    {"mesgc:s=24,c=8,others=*bias", 4 * 168 + 50, 4 * 168 + 50, 4 * 168 + 50},
    {"mesgc:s=32,c=8,kappa=5,adaptive=1,refresh=4", 2400, 4 * 160, 2400},
    {"cesgc:s=16,c=2,rank=6,refresh=4,kappa=5", 2400, 4 * 80, 2400},
    {"cesgc:s=16,c=4,rank=6,refresh=4,kappa=5,adaptive=1", 2400, 4 * 80, 2400},
    {"table:s=24,c=8", 2400, 2400, 2400},
    {"lora:rank=2,others=layer.1*+*.k", 2400 + 920, 2400 + 920, 2400 + 920},
    {"galore:rank=5,refresh=4", 2400, 2400, 2400},
    {"adamw", 3370, 3370, 3370},
};

static void contribution_matches_documentation(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof wants / sizeof *wants; k++) {
        frug_optimizer *o = target_optimizer(wants[k].text);
        float *w = bell_array(TUNE_N, 1), g[TUNE_N];
        for (uint64_t t = 0; t < 6; t++) {
            uint64_t want = t == 0 ? wants[k].first : t == 4 ? wants[k].renewed : wants[k].later;
            if (frug_optimizer_measure_count(o, t, (frug_range){0, TUNE_N}) != want)
                fail_msg("%s: %d floats at step %d", wants[k].text,
                         (int)frug_optimizer_measure_count(o, t, (frug_range){0, TUNE_N}), (int)t);
            sparse_gradient(g, TUNE_N, t, 3);
            OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 0.01, w));
        }
        test_free(w);
        frug_optimizer_destroy(o);
    }
    frug_optimizer *o = target_optimizer("mesgc:s=24,c=8");
    assert_int_equal(frug_optimizer_measure_count(o, 0, (frug_range){K, TUNE_N - K}), 0); /* all of it is frozen */
    assert_int_equal(frug_optimizer_measure_count(o, 0, (frug_range){K, 256}), 0);
    assert_int_equal(frug_optimizer_measure_count(o, 0, (frug_range){Q, 256}), 0); /* cuts a target */
    assert_int_equal(frug_optimizer_measure_count(o, 0, (frug_range){0, TUNE_N + 1}), 0);
    assert_int_equal(frug_optimizer_measure_count(NULL, 0, (frug_range){0, 1}), 0);
    frug_optimizer_destroy(o);
}

/* If the first gradient is skipped, basis and shares are still due; a restored optimizer behaves the same. */
static void renewal_follows_from_the_state(void **state) {
    (void)state;
    static const char *const texts[] = {"cesgc:s=16,c=2,rank=6,refresh=4,kappa=5",
                                        "mesgc:s=32,c=8,adaptive=1,refresh=4,kappa=5"};
    for (size_t k = 0; k < 2; k++) {
        frug_optimizer *o = target_optimizer(texts[k]);
        float *w = bell_array(TUNE_N, 1), g[TUNE_N];
        for (uint64_t t = 1; t < 10; t++) {
            frug_optimizer *again = target_optimizer(texts[k]);
            size_t len = 0;
            unsigned char *bytes = save_optimizer(o, &len);
            OK(frug_optimizer_restore(again, bytes, len));
            assert_int_equal(frug_optimizer_measure_count(again, t, (frug_range){0, TUNE_N}),
                             frug_optimizer_measure_count(o, t, (frug_range){0, TUNE_N}));
            assert_int_equal(frug_optimizer_measure_count(o, t, (frug_range){0, Q_N}) == Q_N, t % 4 == 0 || t <= 2);
            test_free(bytes);
            frug_optimizer_destroy(again);
            sparse_gradient(g, TUNE_N, t, 3);
            if (t == 1)
                g[Q + 3] = INFINITY;
            step_by_measuring(o, t, 0, TUNE_N, g, w);
        }
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* ---- many workers ------------------------------------------------------------------ */

#define WORKERS 3

/* The measurements of all workers, divided by their number, in the order of ranks. */
static uint64_t average_measurements(frug_optimizer **o, uint64_t step, float g[WORKERS][TUNE_N], float *mean) {
    uint64_t n = frug_optimizer_measure_count(o[0], step, (frug_range){0, TUNE_N});
    float *own = test_malloc(n * sizeof *own);
    memset(mean, 0, n * sizeof *mean);
    for (size_t r = 0; r < WORKERS; r++) {
        assert_int_equal(frug_optimizer_measure_count(o[r], step, (frug_range){0, TUNE_N}), n);
        OK(frug_optimizer_measure(o[r], step, (frug_range){0, TUNE_N}, g[r], own));
        for (uint64_t i = 0; i < n; i++)
            mean[i] += own[i];
    }
    for (uint64_t i = 0; i < n; i++)
        mean[i] /= WORKERS;
    test_free(own);
    return n;
}

/* Keep the s largest of each of c chunks of a tensor, divided like the optimizer's. */
static void keep_largest_of_chunks(float *g, uint64_t n, uint32_t c, uint32_t s) {
    for (uint32_t j = 0; j < c; j++) {
        uint64_t from = n * j / c, len = n * (j + 1) / c - from;
        float was[Q_N];
        memcpy(was, g + from, len * sizeof *was);
        for (uint64_t i = 0; i < len; i++) {
            size_t above = 0;
            for (uint64_t e = 0; e < len; e++)
                above += fabsf(was[e]) > fabsf(was[i]) || (fabsf(was[e]) == fabsf(was[i]) && e < i);
            if (above >= s)
                g[from + i] = 0;
        }
    }
}

static void assert_measures(const frug_optimizer *o, const frugi_optim_target *t, const float *x, const float *got) {
    float *work = test_malloc(frugi_matrix_span(frugi_chunk_solver(o, t, 0)->matrix) * sizeof *work), p[512];
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t from = frugi_chunk_begin(t, j), len = frugi_chunk_begin(t, j + 1) - from;
        uint32_t index[Q_N];
        float largest = 0;
        for (uint32_t i = 0; i < len; i++)
            index[i] = i;
        OK(frugi_matrix_apply(frugi_chunk_solver(o, t, j)->matrix, index, x + from, (uint32_t)len, work, p));
        for (uint32_t i = 0; i < t->k; i++)
            largest = fmaxf(largest, fabsf(p[i]));
        assert_true(largest > 0);
        for (uint32_t i = 0; i < t->k; i++)
            assert_true(fabsf(p[i] - got[j * t->k + i]) <= 1e-5f * largest);
    }
    test_free(work);
}

/* p is the measurement of the mean of the workers' reduced gradients, q that of the mean of their squares: 1e-5. */
static void mean_of_measurements_measures_the_mean(void **state) {
    (void)state;
    static const char *const texts[] = {"sgc:s=24", "mesgc:s=28,c=7", "mesgc:s=24,c=8,matrix=explicit"};
    for (size_t k = 0; k < 3; k++) {
        frug_optimizer *o[WORKERS];
        static float g[WORKERS][TUNE_N], mean[TUNE_N], square[TUNE_N], measured[TUNE_N];
        for (size_t r = 0; r < WORKERS; r++) {
            o[r] = target_optimizer(texts[k]);
            sparse_gradient(g[r], TUNE_N, r, 2);
        }
        average_measurements(o, 0, g, measured);
        const frugi_optim_target *q = &o[0]->targets->target[0], *v = &o[0]->targets->target[1];
        memset(mean, 0, sizeof mean);
        memset(square, 0, sizeof square);
        for (size_t r = 0; r < WORKERS; r++) {
            keep_largest_of_chunks(g[r] + Q, Q_N, q->c, q->s);
            keep_largest_of_chunks(g[r] + V, V_N, v->c, v->s);
            for (size_t i = 0; i < TUNE_N; i++) {
                mean[i] += g[r][i] / WORKERS;
                square[i] += g[r][i] * g[r][i] / WORKERS;
            }
        }
        assert_measures(o[0], q, mean + Q, measured);
        assert_measures(o[0], q, square + Q, measured + q->moments);
        assert_measures(o[0], v, mean + V, measured + 2 * q->moments);
        assert_measures(o[0], v, square + V, measured + 2 * q->moments + v->moments);
        for (size_t r = 0; r < WORKERS; r++)
            frug_optimizer_destroy(o[r]);
    }
}

/*
 * Workers with different gradients stay identical. If one has a NaN, or a too large gradient, at an ordinary step or at
 * one that would renew, all skip that tensor, and update the others.
 */
static void all_workers_skip_together(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        frug_optimizer *o[WORKERS];
        static float g[WORKERS][TUNE_N], w[WORKERS][TUNE_N], was[TUNE_N], measured[2 * TUNE_N];
        float *start = bell_array(TUNE_N, 4);
        for (size_t r = 0; r < WORKERS; r++) {
            o[r] = target_optimizer(every_tuned[k]);
            memcpy(w[r], start, sizeof w[r]);
        }
        for (uint64_t t = 0; t < 9; t++) {
            for (size_t r = 0; r < WORKERS; r++)
                sparse_gradient(g[r], TUNE_N, t * WORKERS + r, 3);
            bool bad = t == 4 || t == 5 || t == 6;
            if (bad)
                g[t % WORKERS][V + 77] = t == 5 ? 1e13f : NAN;
            memcpy(was, w[0], sizeof was);
            unsigned char *before = test_malloc(o[0]->arena_bytes);
            memcpy(before, o[0]->arena, o[0]->arena_bytes);
            average_measurements(o, t, g, measured);
            for (size_t r = 0; r < WORKERS; r++)
                OK(frug_optimizer_step_measured(o[r], t, (frug_range){0, TUNE_N}, measured, 0.01, w[r]));
            for (size_t r = 1; r < WORKERS; r++) {
                assert_same_bits(w[0], w[r], sizeof w[0]);
                assert_same_bits(o[0]->arena, o[r]->arena, o[0]->arena_bytes);
            }
            assert_true(memcmp(w[0], was, Q_N * sizeof *was) != 0);
            assert_int_equal(memcmp(w[0] + V, was + V, V_N * sizeof *was) == 0, bad);
            const frugi_optim_target *v = &o[0]->targets->target[1];
            const size_t at =
                (size_t)((unsigned char *)(o[0]->targets->mean + v->moment_at) - (unsigned char *)o[0]->arena);
            assert_int_equal(memcmp(before + at, (unsigned char *)o[0]->arena + at, 4 * v->moments) == 0, bad);
            test_free(before);
        }
        test_free(start);
        for (size_t r = 0; r < WORKERS; r++)
            frug_optimizer_destroy(o[r]);
    }
}

/*
 * Measurements are untrusted: NaN and too large ones are skipped; the largest that are used give a state that can be
 * restored.
 */
static void invalid_measurements_are_skipped(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e33f, -3e38f};
    frug_optimizer *o = target_optimizer("mesgc:s=24,c=8,decay=0.1,beta1=0.999999");
    uint64_t n = frug_optimizer_measure_count(o, 0, (frug_range){Q, Q_N});
    float *w = bell_array(Q_N, 3), *start = bell_array(Q_N, 3), *measured = test_malloc(n * sizeof *measured);
    unsigned char *before = test_malloc(o->arena_bytes);
    memcpy(before, o->arena, o->arena_bytes);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        memset(measured, 0, n * sizeof *measured);
        measured[k % 2 ? n - 1 : k] = bad[k];
        OK(frug_optimizer_step_measured(o, k, (frug_range){Q, Q_N}, measured, 0.01, w));
        assert_same_bits(w, start, Q_N * sizeof *w);
        assert_memory_equal(before, o->arena, o->arena_bytes);
    }
    for (uint64_t i = 0; i < n; i++)
        measured[i] = i % 3 ? 6.4e32f : -6.4e32f;
    for (uint64_t t = 0; t < 40; t++)
        OK(frug_optimizer_step_measured(o, t, (frug_range){Q, Q_N}, measured, 0.01, w));
    size_t len = 0;
    unsigned char *bytes = save_optimizer(o, &len);
    OK(frug_optimizer_restore(o, bytes, len));
    for (size_t i = 0; i < Q_N; i++)
        assert_true(isfinite(w[i]));
    test_free(bytes);
    test_free(before);
    test_free(measured);
    test_free(start);
    test_free(w);
    frug_optimizer_destroy(o);
}

/* ---- timings and calls ------------------------------------------------------------------ */

static void timings_cover_the_phases(void **state) {
    (void)state;
    frugi_clock_source = read_ticking_clock;
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        frug_optimizer *o = target_optimizer(every_tuned[k]);
        float *w = bell_array(TUNE_N, 1), g[TUNE_N], measured[2 * TUNE_N];
        frug_optimizer_times spent = {.struct_size = sizeof spent}, more = spent;
        double phase_start = frugi_clock();
        for (uint64_t t = 0; t < 6; t++) {
            sparse_gradient(g, TUNE_N, t, 3);
            OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 0.01, w));
        }
        OK(frug_optimizer_time(o, &spent));
        assert_true(spent.seconds_project > 0 && spent.seconds_apply > 0);
        assert_int_equal(spent.seconds_recover > 0, o->options.s != 0);
        assert_true(spent.seconds_project + spent.seconds_recover + spent.seconds_apply <= frugi_clock() - phase_start);
        OK(frug_optimizer_measure(o, 6, (frug_range){0, TUNE_N}, g, measured));
        OK(frug_optimizer_time(o, &more));
        assert_int_equal(more.seconds_project > spent.seconds_project,
                         frugi_is_sketch(&o->options) &&
                             frug_optimizer_measure_count(o, 6, (frug_range){0, Q_N}) != Q_N);
        assert_true(more.seconds_apply == spent.seconds_apply && more.seconds_recover == spent.seconds_recover);
        test_free(w);
        frug_optimizer_destroy(o);
    }
    restore_clock();
    frug_optimizer *o = target_optimizer("adamw");
    frug_optimizer_times spent = {.struct_size = sizeof spent, .seconds_apply = 1};
    OK(frug_optimizer_time(o, &spent));
    assert_true(spent.seconds_project + spent.seconds_recover + spent.seconds_apply == 0);
    spent.struct_size = 0;
    assert_int_equal(frug_optimizer_time(o, &spent), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_time(NULL, &spent), FRUG_ERR_ARG);
    frug_optimizer_destroy(o);
}

static void invalid_calls_are_refused(void **state) {
    (void)state;
    frug_optimizer *o = target_optimizer("mesgc:s=24,c=8");
    float w[TUNE_N] = {0}, g[TUNE_N] = {0}, measured[TUNE_N] = {0};
    assert_int_equal(frug_optimizer_measure(NULL, 0, (frug_range){0, Q_N}, g, measured), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_measure(o, 0, (frug_range){0, Q_N}, NULL, measured), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_measure(o, 0, (frug_range){0, Q_N}, g, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_measure(o, 0, (frug_range){0, 256}, g, measured), FRUG_ERR_ARG);
    assert_string_equal(frug_last_error(),
                        "range: its end at element 256 cuts tensor 'layer.0.q', which mesgc updates as a whole");
    assert_int_equal(frug_optimizer_step_measured(NULL, 0, (frug_range){0, Q_N}, measured, 0.1, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step_measured(o, 0, (frug_range){0, Q_N}, NULL, 0.1, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step_measured(o, 0, (frug_range){0, Q_N}, measured, 0.1, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step_measured(o, 0, (frug_range){0, Q_N}, measured, (double)NAN, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step_measured(o, 0, (frug_range){V, V_N + 1000}, measured, 0.1, w), FRUG_ERR_ARG);
    OK(frug_optimizer_measure(o, 0, (frug_range){K, K_N}, g + K,
                              NULL)); /* NULL is valid if there is nothing to write */
    OK(frug_optimizer_step_measured(o, 0, (frug_range){K, K_N}, NULL, 0.1, w + K));
    frug_optimizer_destroy(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_gets_the_same_bits),  cmocka_unit_test(contribution_matches_documentation),
        cmocka_unit_test(renewal_follows_from_the_state), cmocka_unit_test(mean_of_measurements_measures_the_mean),
        cmocka_unit_test(all_workers_skip_together),      cmocka_unit_test(invalid_measurements_are_skipped),
        cmocka_unit_test(timings_cover_the_phases),       cmocka_unit_test(invalid_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

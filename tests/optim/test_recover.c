/*
 * test_recover.c - matching pursuit against the naive one and against the true vectors. Seeds are fixed, so that rates
 * do not vary from run to run; tolerances are explained where they are used.
 */
#include "optim/recover_helpers.h"

/* Some s-sparse vectors, their measurements, and the recovered vectors. */
typedef struct trial {
    const frugi_matrix *a;
    uint32_t s, k, chunks;
    uint32_t *truth; /* chunks x s, ascending */
    float *amount;
    float *p; /* chunks x k */
    uint32_t *index, *count;
    float *value;
} trial;

static void draw_indices(uint32_t d, uint32_t s, uint64_t *random, uint32_t *index) {
    for (uint32_t n = 0; n < s;) {
        uint32_t at = (uint32_t)(next_random(random) >> 16) % d, i = n;
        for (uint32_t m = 0; m < n; m++)
            if (index[m] == at)
                i = UINT32_MAX;
        if (i == UINT32_MAX)
            continue;
        for (; i > 0 && index[i - 1] > at; i--)
            index[i] = index[i - 1];
        index[i] = at;
        n++;
    }
}

static trial make_trial(const frugi_matrix *a, uint32_t s, uint32_t chunks, uint64_t seed) {
    trial t = {.a = a, .s = s, .k = frugi_matrix_rows(a), .chunks = chunks};
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    float *work = floats(frugi_matrix_span(a));
    t.truth = test_malloc(chunks * s * sizeof *t.truth);
    t.amount = bell_array((size_t)chunks * s, seed);
    t.p = floats((size_t)chunks * t.k);
    t.index = test_malloc(chunks * s * sizeof *t.index);
    t.value = test_malloc(chunks * s * sizeof *t.value);
    t.count = test_malloc(chunks * sizeof *t.count);
    for (uint32_t c = 0; c < chunks; c++) {
        draw_indices(frugi_matrix_columns(a), s, &random, t.truth + c * s);
        OK(frugi_matrix_apply(a, t.truth + c * s, t.amount + c * s, s, work, t.p + c * t.k));
    }
    free(work);
    return t;
}

static void free_trial(trial *t) {
    free(t->p);
    test_free(t->truth), test_free(t->amount), test_free(t->index), test_free(t->value), test_free(t->count);
}

/* Add noise of the given size to all measurements from a chunk on: they have no exact sparse solution any more. */
static void add_noise(trial *t, uint32_t from, float size, uint64_t seed) {
    uint64_t random = seed + 1;
    for (size_t i = (size_t)from * t->k; i < (size_t)t->chunks * t->k; i++)
        t->p[i] += size * next_bell(&random);
}

static void run(trial *t, frugi_recover_options plan) {
    frugi_recover *r = NULL;
    plan.s = t->s;
    plan.threads = plan.threads ? plan.threads : 1;
    if (frugi_recover_create(t->a, &plan, &r) != FRUG_OK)
        fail_msg("%s", frug_last_error());
    OK(frugi_recover_run(r, t->p, t->chunks, t->index, t->value, t->count));
    frugi_recover_destroy(r);
}

/* Number of chunks whose support was found, with every value within 1e-3 of the largest. */
static uint32_t count_recovered(const trial *t) {
    uint32_t found = 0;
    for (uint32_t c = 0; c < t->chunks; c++) {
        bool same = t->count[c] == t->s && !memcmp(t->truth + c * t->s, t->index + c * t->s, t->s * sizeof *t->truth);
        for (uint32_t i = 0; i < t->s && same; i++)
            same = fabsf(t->value[c * t->s + i] - t->amount[c * t->s + i]) < 4e-3f;
        found += same;
    }
    return found;
}

/* Share of the true indices among those found. */
static double overlap(const trial *t) {
    uint64_t hits = 0;
    for (uint32_t c = 0; c < t->chunks; c++)
        for (uint32_t i = 0; i < t->count[c]; i++)
            for (uint32_t m = 0; m < t->s; m++)
                hits += t->index[c * t->s + i] == t->truth[c * t->s + m];
    return (double)hits / ((double)t->chunks * t->s);
}

/* ---- against the naive pursuit ---------------------------------------------------------------- */

static void expect_same_support(const trial *t, const uint32_t *index, const uint32_t *count, const float *value,
                                const char *what) {
    for (uint32_t c = 0; c < t->chunks; c++) {
        if (count[c] != t->count[c] || memcmp(index + c * t->s, t->index + c * t->s, t->s * sizeof *index) != 0)
            fail_msg("%s: chunk %u has another support than the naive pursuit", what, c);
        for (uint32_t i = 0; i < t->s; i++) /* values of size 1; random columns are well conditioned */
            assert_true(fabsf(value[c * t->s + i] - t->value[c * t->s + i]) < 1e-3f);
    }
}

/*
 * 2 kinds x 6 shapes x 20 problems, half of them with noise, from easy to unsolvable; for OMP and for four columns per
 * pass.
 */
static void test_fast_equals_naive(void **state) {
    (void)state;
    static const struct {
        uint32_t d, s, k, atoms, reach;
    } problem[] = {{1024, 16, 112, 1, 0}, {512, 20, 100, 1, 0},  {2048, 31, 217, 1, 0},
                   {700, 10, 140, 1, 0},  {1024, 16, 112, 4, 0}, {1024, 16, 112, 4, 32}};
    BOTH(kind) {
        for (size_t i = 0; i < sizeof problem / sizeof problem[0]; i++) {
            frugi_matrix *a = matrix(kind, problem[i].k, problem[i].d, 11 + i);
            trial naive = make_trial(a, problem[i].s, 20, 50 + i), fast = make_trial(a, problem[i].s, 20, 50 + i);
            frugi_recover_options plan = {FRUGI_RECOVER_NAIVE, 0, problem[i].atoms, problem[i].reach, 0, 1};
            add_noise(&naive, 10, 0.1f, i), add_noise(&fast, 10, 0.1f, i);
            run(&naive, plan);
            plan.method = FRUGI_RECOVER_GRAM;
            run(&fast, plan);
            expect_same_support(&naive, fast.index, fast.count, fast.value, "gram");
            plan.method = FRUGI_RECOVER_RESIDUAL;
            run(&fast, plan);
            expect_same_support(&naive, fast.index, fast.count, fast.value, "residual");
            free_trial(&naive), free_trial(&fast);
            frugi_matrix_destroy(a);
        }
    }
}

/* The residual is orthogonal to all columns in use: |A_S^T r| <= 1e-5 |p|, with noise and without. */
static void test_residual_is_orthogonal(void **state) {
    (void)state;
    BOTH(kind) {
        for (int method = FRUGI_RECOVER_NAIVE; method <= FRUGI_RECOVER_RESIDUAL; method++) {
            frugi_matrix *a = matrix(kind, 112, 1000, 12);
            trial t = make_trial(a, 16, 12, 21);
            add_noise(&t, 0, 0.2f, 3);
            run(&t, (frugi_recover_options){.method = (frugi_recover_method)method, .atoms = 2, .reach = 24});
            float *r = floats(112), *out = floats(frugi_matrix_span(a)), *work = floats(frugi_matrix_span(a));
            for (uint32_t c = 0; c < t.chunks; c++) {
                double norm = 0;
                OK(frugi_matrix_apply(a, t.index + c * 16, t.value + c * 16, t.count[c], work, r));
                for (uint32_t i = 0; i < 112; i++) {
                    norm += (double)t.p[c * 112 + i] * (double)t.p[c * 112 + i];
                    r[i] = t.p[c * 112 + i] - r[i];
                }
                frugi_matrix_correlate(a, r, 1, out);
                for (uint32_t i = 0; i < t.count[c]; i++)
                    assert_true(fabs((double)out[t.index[c * 16 + i]]) <= 1e-5 * sqrt(norm));
            }
            free(r), free(out), free(work);
            free_trial(&t);
            frugi_matrix_destroy(a);
        }
    }
}

/* ---- against the true vectors ----------------------------------------------------------------- */

static void test_exact_at_fourteen(void **state) {
    (void)state;
    BOTH(kind) {
        frugi_matrix *a = matrix(kind, 14 * 16, 1024, 13);
        trial t = make_trial(a, 16, 300, 31);
        run(&t, (frugi_recover_options){.method = FRUGI_RECOVER_GRAM});
        assert_true(count_recovered(&t) >= 297);
        run(&t, (frugi_recover_options){.method = FRUGI_RECOVER_GRAM, .atoms = 4, .reach = 32});
        assert_true(count_recovered(&t) >= 297);
        free_trial(&t);
        frugi_matrix_destroy(a);
    }
}

/* More measurements do not reduce the rate by more than three standard errors of 200 trials. */
static void check_rates(frugi_matrix_kind kind, uint32_t atoms, uint32_t reach) {
    static const uint32_t kappa[] = {5, 6, 7, 8, 10, 14};
    double before = 0;
    printf("%s, d = 1024, s = 16, %u a pass, %u in all:", kind == FRUGI_MATRIX_GAUSSIAN ? "gaussian" : "hadamard",
           atoms, reach);
    for (size_t i = 0; i < sizeof kappa / sizeof kappa[0]; i++) {
        frugi_matrix *a = matrix(kind, 16 * kappa[i], 1024, 14);
        trial t = make_trial(a, 16, 200, 41);
        run(&t, (frugi_recover_options){.method = FRUGI_RECOVER_GRAM, .atoms = atoms, .reach = reach});
        double rate = count_recovered(&t) / 200.0;
        printf(" kappa %u: %.3f (overlap %.3f)%s", kappa[i], rate, overlap(&t), i < 5 ? "," : "\n");
        assert_true(rate >= before - 3 * sqrt(before * (1 - before) / 200) - 0.01);
        before = rate;
        free_trial(&t);
        frugi_matrix_destroy(a);
    }
    assert_true(before >= 0.99);
}

static void test_rate_rises_with_kappa(void **state) {
    (void)state;
    BOTH(kind) {
        check_rates(kind, 1, 16);
        check_rates(kind, 4, 32);
    }
}

/* At d = 4096, kappa 6 and 8: rates within three standard errors of the difference of two rates of 150 trials. */
static void test_hadamard_recovers_as_well_as_gaussian(void **state) {
    (void)state;
    for (uint32_t kappa = 6; kappa <= 8; kappa += 2) {
        double rate[2], same[2];
        BOTH(kind) {
            frugi_matrix *a = matrix(kind, 12 * kappa, 4096, 15);
            trial t = make_trial(a, 12, 150, 51);
            run(&t, (frugi_recover_options){.method = FRUGI_RECOVER_RESIDUAL, .atoms = 4, .reach = 24});
            rate[kind] = count_recovered(&t) / 150.0;
            same[kind] = overlap(&t);
            free_trial(&t);
            frugi_matrix_destroy(a);
        }
        double mean = (rate[0] + rate[1]) / 2, error = sqrt(2 * (mean * (1 - mean) + 0.01) / 150);
        printf("d = 4096, s = 12, kappa %u: gaussian %.3f (overlap %.3f), hadamard %.3f (%.3f)\n", kappa, rate[0],
               same[0], rate[1], same[1]);
        assert_true(fabs(rate[0] - rate[1]) <= 3 * error);
        assert_true(rate[0] > 0.05);
    }
}

/* ---- batches, threads, scales, stopping ------------------------------------------------------- */

static void test_batching_and_threads_change_no_bit(void **state) {
    (void)state;
    BOTH(kind) {
        for (int method = FRUGI_RECOVER_NAIVE; method <= FRUGI_RECOVER_RESIDUAL; method++) {
            frugi_matrix *a = matrix(kind, 70, 500, 16);
            trial t = make_trial(a, 10, 23, 61), alone = t;
            add_noise(&t, 0, 0.05f, 5);
            frugi_recover_options plan = {.method = (frugi_recover_method)method, .atoms = 2, .tolerance = 0.1};
            run(&t, plan);
            uint32_t index[230], count[23];
            float value[230];
            alone.index = index, alone.value = value, alone.count = count;
            for (plan.threads = 2; plan.threads <= 30; plan.threads += 14) {
                run(&alone, plan);
                assert_memory_equal(index, t.index, sizeof index);
                assert_memory_equal(value, t.value, sizeof value);
                assert_memory_equal(count, t.count, sizeof count);
            }
            plan.threads = 1;
            frugi_recover *r = NULL;
            plan.s = 10;
            OK(frugi_recover_create(a, &plan, &r));
            for (uint32_t c = 23; c-- > 0;) {
                OK(frugi_recover_run(r, t.p + c * 70, 1, index, value, count));
                assert_memory_equal(index, t.index + c * 10, 10 * sizeof *index);
                assert_memory_equal(value, t.value + c * 10, 10 * sizeof *value);
                assert_int_equal(count[0], t.count[c]);
            }
            frugi_recover_destroy(r);
            free_trial(&t);
            frugi_matrix_destroy(a);
        }
    }
}

/* Golden bits: the same on every machine and for every compiler. */
static void test_results_match_golden_bits(void **state) {
    (void)state;
    static const uint32_t want[2][2] = {{0xeaa2b785u, 0xeaa2b785u}, {0xd8539548u, 0xb57a59c7u}};
    BOTH(kind) {
        for (int fast = 0; fast < 2; fast++) {
            frugi_matrix *a = matrix(kind, 70, 500, 20);
            trial t = make_trial(a, 10, 9, 62);
            uint32_t sum = 0, bits = 0;
            add_noise(&t, 0, 0.05f, 6);
            run(&t, (frugi_recover_options){.method = fast ? FRUGI_RECOVER_GRAM : FRUGI_RECOVER_RESIDUAL, .reach = 15});
            for (uint32_t i = 0; i < 90; i++) {
                memcpy(&bits, t.value + i, sizeof bits);
                sum = ((sum ^ bits) * 0x9e3779b1u ^ t.index[i]) * 0x85ebca6bu;
            }
            if (sum != want[kind][fast])
                fail_msg("kind %d, method %d: 0x%08xu", (int)kind, fast, sum);
            free_trial(&t);
            frugi_matrix_destroy(a);
        }
    }
}

static void test_scale_changes_no_bit(void **state) {
    (void)state;
    frugi_matrix *a = matrix(FRUGI_MATRIX_GAUSSIAN, 112, 1024, 17);
    for (int exponent = -100; exponent <= 120; exponent += 55) {
        trial t = make_trial(a, 8, 10, 71), scaled = make_trial(a, 8, 10, 71);
        for (uint32_t i = 0; i < 10 * 112; i++)
            scaled.p[i] = ldexpf(scaled.p[i], exponent);
        run(&t, (frugi_recover_options){.method = FRUGI_RECOVER_GRAM});
        run(&scaled, (frugi_recover_options){.method = FRUGI_RECOVER_GRAM});
        assert_memory_equal(t.index, scaled.index, 80 * sizeof *t.index);
        for (uint32_t i = 0; i < 80; i++)
            assert_true(ldexpf(t.value[i], exponent) == scaled.value[i]);
        free_trial(&t), free_trial(&scaled);
    }
    frugi_matrix_destroy(a);
}

/* Fewer entries than s: the pursuit ends when they are found. A tolerance ends it sooner, and is met. */
static void test_stops_at_tolerance(void **state) {
    (void)state;
    BOTH(kind) {
        for (int method = FRUGI_RECOVER_NAIVE; method <= FRUGI_RECOVER_RESIDUAL; method++) {
            frugi_matrix *a = matrix(kind, 120, 900, 18);
            trial t = make_trial(a, 5, 4, 81);
            frugi_recover_options plan = {.method = (frugi_recover_method)method, .s = 20, .threads = 1};
            frugi_recover *r = NULL;
            uint32_t index[80], count[4];
            float value[80], work[1024], p[120];
            memset(t.p + 120, 0, 120 * sizeof *t.p); /* chunk 1 */
            OK(frugi_recover_create(a, &plan, &r));
            OK(frugi_recover_run(r, t.p, 4, index, value, count));
            frugi_recover_destroy(r);
            for (uint32_t c = 0; c < 4; c++) {
                assert_int_equal(count[c], c == 1 ? 0 : 5);
                assert_memory_equal(index + 20 * c, t.truth + 5 * c, count[c] * sizeof *index);
                for (uint32_t i = count[c]; i < 20; i++)
                    assert_true(index[20 * c + i] == 0 && value[20 * c + i] == 0.0f);
            }
            plan.tolerance = 0.5;
            OK(frugi_recover_create(a, &plan, &r));
            OK(frugi_recover_run(r, t.p, 4, index, value, count));
            frugi_recover_destroy(r);
            double before = 0, after = 0;
            assert_in_range(count[0], 1, 4);
            OK(frugi_matrix_apply(a, index, value, count[0], work, p));
            for (uint32_t i = 0; i < 120; i++) {
                before += (double)t.p[i] * (double)t.p[i];
                after += pow((double)t.p[i] - (double)p[i], 2);
            }
            assert_true(after <= 0.2501 * before && after > 1e-6 * before);
            free_trial(&t);
            frugi_matrix_destroy(a);
        }
    }
}

/* Eight measurements distinguish at most 128 of 512 Hadamard columns: a pass of four gets equal columns. */
static void test_spanned_columns_are_rejected(void **state) {
    (void)state;
    for (int method = FRUGI_RECOVER_NAIVE; method <= FRUGI_RECOVER_RESIDUAL; method++) {
        frugi_matrix *a = matrix(FRUGI_MATRIX_HADAMARD, 8, 512, 19);
        trial t = make_trial(a, 6, 50, 91);
        float one[8], two[8];
        uint32_t full = 0;
        run(&t, (frugi_recover_options){.method = (frugi_recover_method)method, .atoms = 4});
        for (uint32_t c = 0; c < t.chunks; c++) {
            full += t.count[c] >= 4;
            for (uint32_t i = 0; i < t.count[c]; i++)
                for (uint32_t m = 0; m < i; m++) {
                    float dot = 0;
                    frugi_matrix_column(a, t.index[c * 6 + i], one);
                    frugi_matrix_column(a, t.index[c * 6 + m], two);
                    for (uint32_t j = 0; j < 8; j++)
                        dot += one[j] * two[j];
                    assert_true(fabsf(dot) < 0.9f);
                }
            for (uint32_t i = 0; i < t.count[c]; i++)
                assert_true(fabsf(t.value[c * 6 + i]) < 1e3f);
        }
        assert_true(full >= 40);
        free_trial(&t);
        frugi_matrix_destroy(a);
    }
}

/* ---- invalid arguments ------------------------------------------------------------------------ */

static void assert_refused_with(frug_status status, const char *why) {
    if (status != FRUG_ERR_ARG || !strstr(frug_last_error(), why))
        fail_msg("status %d, '%s' lacks '%s'", (int)status, frug_last_error(), why);
}

static void test_invalid_options(void **state) {
    (void)state;
    static const struct {
        frugi_matrix_options plan;
        const char *why;
    } matrices[] = {{{FRUGI_MATRIX_GAUSSIAN, 5, 4, 1, 1}, "more than the 4 columns"},
                    {{FRUGI_MATRIX_HADAMARD, 0, 4, 1, 1}, "0 rows"},
                    {{FRUGI_MATRIX_HADAMARD, 1, 0, 1, 1}, "0 columns"},
                    {{FRUGI_MATRIX_HADAMARD, 1, UINT32_MAX, 1, 1}, "columns"},
                    {{FRUGI_MATRIX_GAUSSIAN, UINT32_MAX, 1 << 28, 1, 1}, "rows"},
                    {{FRUGI_MATRIX_GAUSSIAN, 1, 4, 1, 0}, "0 threads"},
                    {{FRUGI_MATRIX_GAUSSIAN, 1, 4, 1, 1025}, "1025 threads"},
                    {{(frugi_matrix_kind)7, 1, 4, 1, 1}, "kind 7"}};
    static const struct {
        frugi_recover_options plan;
        const char *why;
    } plans[] = {{{FRUGI_RECOVER_GRAM, 0, 1, 0, 0, 1}, "s = 0"},
                 {{FRUGI_RECOVER_GRAM, 40, 1, 0, 0, 1}, "not sparse"},
                 {{FRUGI_RECOVER_GRAM, 50, 1, 0, 0, 1}, "not sparse"},
                 {{FRUGI_RECOVER_GRAM, 11, 1, 0, 0, 1}, "k = 10"},
                 {{FRUGI_RECOVER_GRAM, 3, 4, 0, 0, 1}, "per pass"},
                 {{FRUGI_RECOVER_GRAM, 3, 1, 2, 0, 1}, "reach"},
                 {{FRUGI_RECOVER_GRAM, 3, 1, 11, 0, 1}, "reach"},
                 {{FRUGI_RECOVER_GRAM, 3, 1, 0, -0.1, 1}, "tolerance"},
                 {{FRUGI_RECOVER_GRAM, 3, 1, 0, (double)NAN, 1}, "tolerance"},
                 {{FRUGI_RECOVER_GRAM, 3, 1, 0, 0, 0}, "threads"},
                 {{(frugi_recover_method)9, 3, 1, 0, 0, 1}, "method 9"}};
    frugi_matrix *a = NULL;
    frugi_recover *r = NULL;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        assert_refused_with(frugi_matrix_create(&matrices[i].plan, &a), matrices[i].why);
    assert_refused_with(frugi_matrix_create(NULL, &a), "null");
    assert_null(a);
    a = matrix(FRUGI_MATRIX_HADAMARD, 10, 40, 1);
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
        assert_refused_with(frugi_recover_create(a, &plans[i].plan, &r), plans[i].why);
    assert_refused_with(frugi_recover_create(NULL, &plans[0].plan, &r), "null");
    frugi_matrix_destroy(a);
    a = matrix(FRUGI_MATRIX_HADAMARD, 10, FRUGI_RECOVER_GRAM_MOST + 1, 1);
    assert_refused_with(frugi_recover_create(a, &(frugi_recover_options){FRUGI_RECOVER_GRAM, 3, 1, 0, 0, 1}, &r),
                        "too large");
    assert_null(r);
    frugi_matrix_destroy(a);
}

static void test_invalid_inputs(void **state) {
    (void)state;
    frugi_matrix *a = matrix(FRUGI_MATRIX_GAUSSIAN, 10, 40, 1);
    frugi_recover *r = NULL;
    float p[30] = {1}, value[9] = {7}, work[64], q[10] = {5}, one = 1;
    uint32_t index[9] = {7}, count[3] = {7}, outside = 40;
    OK(frugi_recover_create(a, &(frugi_recover_options){FRUGI_RECOVER_GRAM, 3, 1, 0, 0, 2}, &r));
    assert_true(frugi_recover_bytes(r) >= 40 * 64 * sizeof(float) && frugi_matrix_bytes(a) == 40 * 12 * sizeof(float));
    assert_refused_with(frugi_recover_run(r, p, 0, index, value, count), "zero chunks");
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        p[24] = bad[i];
        assert_refused_with(frugi_recover_run(r, p, 3, index, value, count), "measurement 4 of chunk 2");
    }
    assert_refused_with(frugi_recover_run(r, NULL, 1, index, value, count), "null");
    assert_refused_with(frugi_matrix_apply(a, &outside, &one, 1, work, q), "at 40 of 40");
    assert_true(value[0] == 7 && index[0] == 7 && count[0] == 7 && q[0] == 5); /* outputs did not change */
    p[24] = 3e38f;                                                             /* large values are valid */
    p[25] = -3e38f;
    OK(frugi_recover_run(r, p, 3, index, value, count));
    for (int i = 0; i < 9; i++)
        assert_true(isfinite(value[i]));
    frugi_recover_destroy(r);
    frugi_recover_destroy(NULL);
    frugi_matrix_destroy(a);
    frugi_matrix_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_equals_naive),
        cmocka_unit_test(test_residual_is_orthogonal),
        cmocka_unit_test(test_exact_at_fourteen),
        cmocka_unit_test(test_rate_rises_with_kappa),
        cmocka_unit_test(test_hadamard_recovers_as_well_as_gaussian),
        cmocka_unit_test(test_batching_and_threads_change_no_bit),
        cmocka_unit_test(test_results_match_golden_bits),
        cmocka_unit_test(test_scale_changes_no_bit),
        cmocka_unit_test(test_stops_at_tolerance),
        cmocka_unit_test(test_spanned_columns_are_rejected),
        cmocka_unit_test(test_invalid_options),
        cmocka_unit_test(test_invalid_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

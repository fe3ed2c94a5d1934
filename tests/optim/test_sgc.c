/*
 * test_sgc.c - sgc, mesgc, cesgc and table against reference loops in double: states, recovered entries, lengths of
 * steps. Seeds are those of sparse_gradient() and bell_array(); each tolerance is explained at its test.
 */
#include "optim/sgc_helpers.h"

#include <stdio.h>

/* Zero all but the s largest of every one of c chunks of n / c. */
static void keep_largest(float *g, size_t n, size_t c, size_t s) {
    static float was[D];
    size_t len = n / c;
    memcpy(was, g, n * sizeof *g);
    for (size_t i = 0; i < n; i++) {
        size_t above = 0;
        for (size_t j = i / len * len; j < (i / len + 1) * len && above < s; j++)
            above += fabsf(was[j]) > fabsf(was[i]) || (fabsf(was[j]) == fabsf(was[i]) && j < i);
        if (above >= s)
            g[i] = 0;
    }
}

static void assert_near(const char *text, const float *w, const double *want, size_t n, double tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)w[i] - want[i]) <= tolerance))
            fail_msg("%s: weight %zu is %.9g, not %.9g", text, i, (double)w[i], want[i]);
}

/* ---- sketches ---------------------------------------------------------------- */

/* The running mean of measurements is the measurement of the running mean: 1e-5 of the largest measurement. */
static void measuring_and_averaging_commute(void **state) {
    (void)state;
    static const char *const texts[] = {"sgc:s=24", "mesgc:s=32,c=8", "mesgc:s=32,c=8,matrix=explicit"};
    static const size_t chunks[] = {1, 8, 8}, entries[] = {24, 32, 32};
    for (size_t k = 0; k < 3; k++) {
        frug_optimizer *o = single_optimizer(texts[k], 32, 64);
        static adam a;
        memset(&a, 0, sizeof a);
        float *w = bell_array(D, 1), g[D];
        for (uint64_t t = 0; t < 30; t++) {
            sparse_gradient(g, D, t, 3);
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
            keep_largest(g, D, chunks[k], entries[k] / chunks[k]);
            adam_step(&a, g, D, t, 0.01);
        }
        const frugi_solver *solver = frugi_chunk_solver(o, &o->targets->target[0], 0);
        size_t len = D / chunks[k], rows = 7 * entries[k] / chunks[k];
        uint32_t place[D];
        float m[D], p[D], *work = test_malloc(frugi_matrix_span(solver->matrix) * sizeof *work);
        for (size_t j = 0; j < chunks[k]; j++)
            for (int which = 0; which < 2; which++) {
                const float *kept = (which ? o->targets->square : o->targets->mean) + j * rows;
                for (size_t i = 0; i < len; i++) {
                    place[i] = (uint32_t)i;
                    m[i] = (float)(which ? a.v : a.m)[j * len + i];
                }
                OK(frugi_matrix_apply(solver->matrix, place, m, (uint32_t)len, work, p));
                float largest = 0;
                for (size_t i = 0; i < rows; i++)
                    largest = fmaxf(largest, fabsf(p[i]));
                assert_true(largest > 0);
                for (size_t i = 0; i < rows; i++)
                    assert_true(fabsf(p[i] - kept[i]) <= 1e-5f * largest);
            }
        test_free(work);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* A gradient with entries at the same few indices of every chunk, at every step. */
static void steady_gradient(float *g, size_t n, size_t c, size_t each, uint64_t t, int moving) {
    uint64_t state = t * 77 + 5;
    memset(g, 0, n * sizeof *g);
    for (size_t j = 0; j < c; j++)
        for (size_t i = 0; i < each; i++) {
            float x = next_bell(&state), size = moving && (j < c / 2) == (t < 10) ? 0.05f : 1.0f;
            g[j * (n / c) + (i * 37 + j * 11) % (n / c)] = size * (x + (x < 0 ? -0.5f : 0.5f));
        }
}

/*
 * If the means have no more than s entries, recovery is exact and every sketch is AdamW on the sparse gradient. 30
 * steps of 0.01; the mean square is recovered to about 1e-5, and small ones relative to the largest less well: 2e-3.
 */
static void sparse_gradients_match_adamw(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t chunks, each;
        int moving;
    } cases[] = {
        {"sgc:s=24,kappa=14,method=batch", 1, 20, 0},
        {"sgc:s=24,kappa=14,method=batch,matrix=explicit", 1, 20, 0},
        {"mesgc:s=128,c=8,kappa=14", 8, 4, 0},
        {"mesgc:s=64,c=8,kappa=14,method=batch", 8, 6, 0},
        {"mesgc:s=64,c=8,kappa=14,method=batch,matrix=explicit", 8, 6, 0},
        {"mesgc:s=64,c=8,kappa=10,adaptive=1,refresh=7,method=batch", 8, 4, 0},
        {"mesgc:s=96,c=8,kappa=8,adaptive=1,refresh=7,method=batch", 8, 4,
         1}, /* shares change while means are stored */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        frug_optimizer *o = single_optimizer(cases[k].text, 32, 64);
        static adam a;
        float *w = bell_array(D, 1), g[D];
        memset(&a, 0, sizeof a);
        for (size_t i = 0; i < D; i++)
            a.w[i] = (double)w[i];
        for (uint64_t t = 0; t < 30; t++) {
            steady_gradient(g, D, cases[k].chunks, cases[k].each, t, cases[k].moving);
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
            adam_step(&a, g, D, t, 0.01);
        }
        assert_near(cases[k].text, w, a.w, D, 2e-3);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/*
 * However badly means are recovered from dense gradients, no weight changes by more than AdamW can change it: at step
 * t, the rate times sqrt(sum a_i^2 / b_i) of its weights. 1e-3 for rounding.
 */
static void no_step_is_longer_than_adamws(void **state) {
    (void)state;
    static const char *const texts[] = {"sgc:s=24,kappa=2", "mesgc:s=32,c=8,kappa=3", "mesgc:s=32,c=8,adaptive=1"};
    for (size_t k = 0; k < 3; k++) {
        frug_optimizer *o = single_optimizer(texts[k], 32, 64);
        float *w = bell_array(D, 1), *was = bell_array(D, 1), g[D];
        size_t moved = 0;
        for (uint64_t t = 0; t < 40; t++) {
            double bound = 0, one1 = 1 - pow(0.9, (double)t + 1), one2 = 1 - pow(0.999, (double)t + 1);
            for (uint64_t i = 0; i <= t; i++) {
                double first = 0.1 * pow(0.9, (double)i) / one1, second = 0.001 * pow(0.999, (double)i) / one2;
                bound += first * first / second;
            }
            sparse_gradient(g, D, t, 1 + (unsigned)t % 5);
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
            for (size_t i = 0; i < D; i++) {
                assert_true(fabs((double)w[i] - (double)was[i]) <= 0.01 * sqrt(bound) * (1 + 1e-3) + 1e-6);
                moved += w[i] != was[i];
            }
            memcpy(was, w, D * sizeof *w);
        }
        assert_true(moved >= 40 * 20);
        test_free(w);
        test_free(was);
        frug_optimizer_destroy(o);
    }
}

static void one_chunk_of_mesgc_is_sgc(void **state) {
    (void)state;
    frug_optimizer *a = target_optimizer("sgc:s=24"), *b = target_optimizer("mesgc:s=24,c=1");
    float *w = bell_array(TUNE_N, 1), *x = bell_array(TUNE_N, 1), g[TUNE_N];
    for (uint64_t t = 0; t < 12; t++) {
        sparse_gradient(g, TUNE_N, t, 3);
        OK(frug_optimizer_step(a, t, (frug_range){0, TUNE_N}, g, 0.01, w));
        OK(frug_optimizer_step(b, t, (frug_range){0, TUNE_N}, g, 0.01, x));
    }
    assert_same_bits(w, x, TUNE_N * sizeof *w);
    assert_int_equal(a->arena_bytes, b->arena_bytes);
    assert_same_bits(a->arena, b->arena, a->arena_bytes);
    test_free(w);
    test_free(x);
    frug_optimizer_destroy(a);
    frug_optimizer_destroy(b);
}

/* The sum of all shares is s; a chunk that has all large entries gets sixteen shares, four times an even share. */
static void shares_follow_large_gradients(void **state) {
    (void)state;
    frug_optimizer *o = single_optimizer("mesgc:s=64,c=8,kappa=4,adaptive=1,refresh=10", 32, 64);
    float *w = bell_array(D, 1), g[D];
    for (uint64_t t = 0; t < 25; t++) {
        sparse_gradient(g, D, t, 2);
        size_t from = t < 10 ? 512 : 1536; /* chunk 2, then chunk 6 */
        for (size_t i = from; i < from + 256; i++)
            g[i] *= 1000;
        OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
        unsigned sum = 0;
        for (size_t j = 0; j < 8; j++)
            sum += o->targets->level[j];
        assert_int_equal(sum, 32);
        assert_int_equal(o->targets->level[t < 10 ? 2 : 6], 16);
    }
    test_free(w);
    frug_optimizer_destroy(o);
}

/* cesgc changes weights within its basis only, and by the update of mesgc on the projection: 1e-5. */
static void cesgc_is_mesgc_of_the_projection(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{32, 64}, {64, 32}};
    for (size_t k = 0; k < 2; k++) {
        const size_t rows = shapes[k][0], cols = shapes[k][1], rank = 8, far = 64, near = 32;
        frug_optimizer *o = single_optimizer("cesgc:s=32,c=4,rank=8,refresh=1000,scale=0.5", rows, cols);
        frug_optimizer *inner = single_optimizer("mesgc:s=32,c=4,scale=0.5", rank, far);
        float *w = bell_array(D, 1), *start = bell_array(D, 1), g[D], r[512], inside[512] = {0};
        for (uint64_t t = 0; t < 10; t++) {
            sparse_gradient(g, D, t, 2);
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
            frugi_project_to_longer(&o->targets->target[0].side, o->targets->basis, rank, g, r, 1);
            OK(frug_optimizer_step(inner, t, (frug_range){0, rank * far}, r, 0.01, inside));
        }
        for (size_t i = 0; i < D; i++) {
            double want = (double)start[i];
            size_t row = i / cols, col = i % cols, at_far = rows > cols ? row : col, at_near = rows > cols ? col : row;
            for (size_t e = 0; e < rank; e++)
                want += (double)inside[e * far + at_far] * (double)o->targets->basis[e * near + at_near];
            assert_true(fabs((double)w[i] - want) <= 1e-5);
        }
        test_free(w);
        test_free(start);
        frug_optimizer_destroy(o);
        frug_optimizer_destroy(inner);
    }
}

/* ---- the table ---------------------------------------------------------------- */

/* Below its capacity, the table is AdamW on the reduced gradient: 2e-6 (1 + |w|), floats. */
static void table_below_capacity_matches_sparse_adamw(void **state) {
    (void)state;
    frug_optimizer *o = single_optimizer("table:s=64,c=8,kappa=20", 32, 64); /* capacity 128 of 256 */
    static adam a;
    float *w = bell_array(D, 1), g[D];
    memset(&a, 0, sizeof a);
    for (size_t i = 0; i < D; i++)
        a.w[i] = (double)w[i];
    for (uint64_t t = 0; t < 60; t++) {
        sparse_gradient(g, D, t, 2);
        for (size_t i = 0; i < D; i++)
            g[i] = i % 256 < 120 ? g[i] : 0; /* the union of all steps: at most 120 */
        OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
        keep_largest(g, D, 8, 8);
        adam_step(&a, g, D, t, 0.01);
    }
    assert_near("table", w, a.w, D, 1e-5);
    test_free(w);
    frug_optimizer_destroy(o);
}

/*
 * Above its capacity, the smallest means that were not selected in this step are evicted: compared with a plain list of
 * all indices.
 */
static void full_table_evicts_the_smallest(void **state) {
    (void)state;
    const size_t s = 8, room = 12, len = 256; /* 8 k / 10 = 12 */
    frug_optimizer *o = single_optimizer("table:s=8,c=1,kappa=2", 16, 16);
    float *w = bell_array(len, 1), *x = bell_array(len, 1), g[256], m[256] = {0}, v[256] = {0};
    for (uint64_t t = 0; t < 40; t++) {
        sparse_gradient(g, len, t, 2);
        OK(frug_optimizer_step(o, t, (frug_range){0, len}, g, 0.01, w));
        keep_largest(g, len, 1, s);
        size_t used = 0;
        float rate = (float)(0.01 / (1 - pow(0.9, (double)t + 1))),
              gain = (float)(1 / sqrt(1 - pow(0.999, (double)t + 1)));
        for (size_t i = 0; i < len; i++) {
            m[i] = 0.9f * m[i] + (float)(1 - 0.9) * g[i];
            v[i] = 0.999f * v[i] + (float)(1 - 0.999) * (g[i] * g[i]);
            x[i] -= m[i] != 0 ? rate * (m[i] / (sqrtf(v[i]) * gain + 1e-8f)) : 0;
            used += m[i] != 0;
        }
        for (; used > room; used--) {
            size_t least = len;
            for (size_t i = len; i-- > 0;)
                if (m[i] != 0 && g[i] == 0 && (least == len || fabsf(m[i]) < fabsf(m[least])))
                    least = i;
            m[least] = v[least] = 0;
        }
        for (size_t i = 0; i < len; i++)
            assert_true(fabsf(w[i] - x[i]) <= 1e-5f);
    }
    test_free(w);
    test_free(x);
    frug_optimizer_destroy(o);
}

/*
 * A gradient with heavy tails whose sizes drift: the cube of a normal number times a size that changes a little every
 * step.
 */
static void drifting_gradient(float *g, float *size, uint64_t t) {
    uint64_t state = t * 0x9e3779b97f4a7c15u + 3;
    for (size_t i = 0; i < D; i++) {
        float x = next_bell(&state), y = next_bell(&state);
        size[i] = t == 0 ? y * y * y : 0.99f * size[i] + 0.14f * y * y * y;
        g[i] = size[i] * (0.5f + x);
    }
}

/*
 * The mean cosine between the steps of an optimizer and those of AdamW on the 32 largest entries of 2048, steps 20-60.
 */
static double mean_cosine(const char *text) {
    frug_optimizer *o = single_optimizer(text, 32, 64);
    static adam a;
    static float g[D], size[D], w[D];
    static double before[D];
    double sum = 0;
    memset(&a, 0, sizeof a);
    memset(w, 0, sizeof w);
    for (uint64_t t = 0; t < 60; t++) {
        float was[D];
        double along = 0, own = 0, other = 0;
        drifting_gradient(g, size, t);
        memcpy(was, w, sizeof w);
        memcpy(before, a.w, sizeof before);
        OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
        keep_largest(g, D, 1, 32);
        adam_step(&a, g, D, t, 0.01);
        for (size_t i = 0; i < D; i++) {
            double x = (double)w[i] - (double)was[i], y = a.w[i] - before[i];
            along += x * y;
            own += x * x;
            other += y * y;
        }
        sum += t < 20 ? 0 : along / sqrt(own * other) / 40;
    }
    frug_optimizer_destroy(o);
    return sum;
}

/* The same for AdamW that updates only the 32 entries with the largest mean: what an exact sketch would reach. */
static double mean_cosine_of_largest(void) {
    static adam a;
    static float g[D], size[D], mean[D];
    static double before[D];
    double sum = 0;
    memset(&a, 0, sizeof a);
    for (uint64_t t = 0; t < 60; t++) {
        double own = 0, other = 0;
        drifting_gradient(g, size, t);
        memcpy(before, a.w, sizeof before);
        keep_largest(g, D, 1, 32);
        adam_step(&a, g, D, t, 0.01);
        for (size_t i = 0; i < D; i++)
            mean[i] = (float)a.m[i];
        keep_largest(mean, D, 1, 32);
        for (size_t i = 0; i < D; i++) {
            double y = a.w[i] - before[i];
            own += mean[i] != 0 ? y * y : 0;
            other += y * y;
        }
        sum += t < 20 ? 0 : sqrt(own / other) / 40;
    }
    return sum;
}

/*
 * On a synthetic stream, in the same bytes, the steps of the table are closer to sparse AdamW than those of a sketch.
 */
static void table_is_closer_to_adamw_than_a_sketch(void **state) {
    (void)state;
    static const int kappas[] = {5, 7, 10, 14};
    double largest = mean_cosine_of_largest();
    print_message("cosine to sparse AdamW of its 32 largest entries alone: %.3f\n", largest);
    for (size_t k = 0; k < 4; k++) {
        char text[3][64];
        snprintf(text[0], sizeof text[0], "sgc:s=32,kappa=%d,method=batch", kappas[k]);
        snprintf(text[1], sizeof text[1], "sgc:s=32,kappa=%d", kappas[k]);
        snprintf(text[2], sizeof text[2], "table:s=32,kappa=%d,c=1", kappas[k]);
        double batch = mean_cosine(text[0]), four = mean_cosine(text[1]), table = mean_cosine(text[2]);
        print_message("kappa %2d: cosine to sparse AdamW: batch %.3f, gomp4 %.3f, table %.3f\n", kappas[k], batch, four,
                      table);
        assert_true(table > batch + 0.1 && table > four + 0.1 && table > largest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_and_averaging_commute),
        cmocka_unit_test(sparse_gradients_match_adamw),
        cmocka_unit_test(no_step_is_longer_than_adamws),
        cmocka_unit_test(one_chunk_of_mesgc_is_sgc),
        cmocka_unit_test(shares_follow_large_gradients),
        cmocka_unit_test(cesgc_is_mesgc_of_the_projection),
        cmocka_unit_test(table_below_capacity_matches_sparse_adamw),
        cmocka_unit_test(full_table_evicts_the_smallest),
        cmocka_unit_test(table_is_closer_to_adamw_than_a_sketch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

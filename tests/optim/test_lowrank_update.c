/*
 * test_lowrank_update.c - lora, galore and apollo against reference loops in double. Seeds are those of
 * sparse_gradient() and bell_array(); each tolerance is explained at its test.
 */
#include "optim/sgc_helpers.h"

/* ---- lora ------------------------------------------------------------------------ */

#define RANK 3u

typedef struct lora {
    double a[RANK][64], b[64][RANK], m[2][RANK * 64], v[2][RANK * 64];
} lora;

static void lora_adam(double *x, double g, double *m, double *v, double t, double rate) {
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.999 * *v + 0.001 * g * g;
    *x = *x * (1 - rate * 0.1) - rate * *m / (1 - pow(0.9, t)) / (sqrt(*v / (1 - pow(0.999, t))) + 1e-8);
}

static void lora_step(lora *l, const float *g, size_t rows, size_t cols, double t, double rate) {
    static double da[RANK][64], db[64][RANK];
    memset(da, 0, sizeof da);
    memset(db, 0, sizeof db);
    for (size_t r = 0; r < RANK; r++)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++) {
                da[r][j] += 2 * l->b[i][r] * (double)g[i * cols + j];
                db[i][r] += 2 * l->a[r][j] * (double)g[i * cols + j];
            }
    for (size_t r = 0; r < RANK; r++)
        for (size_t i = 0; i < 64; i++) {
            lora_adam(&l->a[r][i], da[r][i], &l->m[0][r * 64 + i], &l->v[0][r * 64 + i], t, rate);
            lora_adam(&l->b[i][r], db[i][r], &l->m[1][r * 64 + i], &l->v[1][r * 64 + i], t, rate);
        }
}

/*
 * Against A and B in double. The first gradient of A is exactly zero, so A does not change and w changes by B alone.
 * Adam amplifies the sign of tiny gradients; after step 0 they are not tiny. 15 steps of 0.01: 1e-4.
 */
static void lora_trains_two_factors(void **state) {
    (void)state;
    const size_t rows = 32, cols = 64;
    frug_optimizer *o = single_optimizer("lora:rank=3,alpha=6,decay=0.1", rows, cols);
    static lora l;
    memset(&l, 0, sizeof l);
    float *w = bell_array(D, 1), *start = bell_array(D, 1), g[D];
    for (size_t i = 0; i < RANK * cols; i++) {
        l.a[i / cols][i % cols] = (double)o->targets->basis[i];
        assert_true(fabsf(o->targets->basis[i]) <= 0.125f); /* 1 / root of the number of inputs */
    }
    for (size_t i = 0; i < RANK * rows; i++)
        assert_true(o->targets->basis[RANK * cols + i] == 0);
    for (uint64_t t = 0; t < 15; t++) {
        sparse_gradient(g, D, t, 1);
        OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
        if (t == 0)
            for (size_t i = 0; i < RANK * cols; i++) /* only decayed */
                assert_true(fabs((double)o->targets->basis[i] - l.a[i / cols][i % cols] * 0.999) <= 1e-7);
        lora_step(&l, g, rows, cols, (double)t + 1, 0.01);
        for (size_t i = 0; i < D; i++) {
            double want = (double)start[i];
            for (size_t r = 0; r < RANK; r++)
                want += 2 * l.b[i / cols][r] * l.a[r][i % cols];
            if (!(fabs((double)w[i] - want) <= 1e-4))
                fail_msg("step %d: weight %zu is %.9g, not %.9g", (int)t, i, (double)w[i], want);
        }
    }
    test_free(w);
    test_free(start);
    frug_optimizer_destroy(o);
}

/* With the input first, the factor of the inputs is that of the rows. */
static void lora_begins_at_the_input_side(void **state) {
    (void)state;
    frug_optimizer *o = target_optimizer("lora:rank=3,targets=*.k"); /* 20 inputs, 30 outputs */
    const float *factor = o->targets->basis;
    for (size_t i = 0; i < 3 * 50; i++)
        assert_true((factor[i] == 0) == (i < 3 * 30));
    frug_optimizer_destroy(o);
}

/* ---- galore and apollo ------------------------------------------------------------ */

/*
 * With rank = the shorter side the projection is a rotation P, and galore is AdamW on P g, rotated back: compared with
 * a reference in double on P g. 2e-5: P g is a sum of 32 products in floats, and Adam divides by its size.
 */
static void galore_of_full_rank_is_adamw_up_to_rotation(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{32, 64}, {64, 32}};
    for (size_t k = 0; k < 2; k++) {
        const size_t rows = shapes[k][0], cols = shapes[k][1], near = 32, far = 64;
        frug_optimizer *o = single_optimizer("galore:rank=32,refresh=1000,scale=1", rows, cols);
        static adam a;
        static float r[D];
        float *w = bell_array(D, 1), *start = bell_array(D, 1), g[D];
        memset(&a, 0, sizeof a);
        for (uint64_t t = 0; t < 15; t++) {
            sparse_gradient(g, D, t, 1);
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
            for (size_t e = 0; e < near; e++)
                for (size_t f = 0; f < far; f++) {
                    double sum = 0;
                    for (size_t i = 0; i < near; i++)
                        sum += (double)o->targets->basis[e * near + i] *
                               (double)(rows > cols ? g[f * cols + i] : g[i * cols + f]);
                    r[e * far + f] = (float)sum;
                }
            adam_step(&a, r, D, t, 0.01);
        }
        for (size_t i = 0; i < D; i++) {
            size_t f = rows > cols ? i / cols : i % cols, n = rows > cols ? i % cols : i / cols;
            double want = (double)start[i];
            for (size_t e = 0; e < near; e++)
                want += a.w[e * far + f] * (double)o->targets->basis[e * near + n];
            if (!(fabs((double)w[i] - want) <= 2e-5))
                fail_msg("weight %zu is %.9g, not %.9g", i, (double)w[i], want);
        }
        test_free(w);
        test_free(start);
        frug_optimizer_destroy(o);
    }
}

/* At the first step AdamW turns every number into its sign, so a row of r projections gets length sqrt(r). 1e-5. */
static void apollo_scales_channels_or_tensors(void **state) {
    (void)state;
    for (int together = 0; together < 2; together++) {
        frug_optimizer *o = single_optimizer(together ? "apollo:rank=16,per=tensor" : "apollo:rank=16", 64, 32);
        float w[D] = {0}, g[D];
        double ratio = 0, step = 0, projected = 0;
        sparse_gradient(g, D, 3, 1);
        OK(frug_optimizer_step(o, 0, (frug_range){0, D}, g, 1.0, w));
        for (size_t row = 0; row < 64; row++) {
            double before = 0, after = 0, factor = (double)w[row * 32] / (double)g[row * 32];
            for (size_t i = 0; i < 16; i++)
                before += pow((double)o->targets->mean[i * 64 + row] / 0.1, 2);
            for (size_t j = 0; j < 32; j++) {
                assert_true(fabs((double)w[row * 32 + j] - factor * (double)g[row * 32 + j]) <= 1e-5);
                after += pow((double)g[row * 32 + j], 2);
            }
            if (!together)
                assert_true(fabs(factor + 4 / sqrt(before)) <= 1e-5 * fabs(factor));
            ratio += before / after / 64;
            projected += before;
            step = factor;
        }
        if (together)
            assert_true(fabs(step + sqrt(16 * 64 / projected)) <= 1e-5 * fabs(step));
        assert_true(ratio > 0.85 && ratio < 1.15); /* projections preserve lengths: 64 rows, each to sqrt(2 / 16) */
        frug_optimizer_destroy(o);
    }
}

/* A gradient that is suddenly a hundred times larger: norms of steps grow by at most 1.01 per step, here to 1e-4. */
static void apollo_limits_the_growth_of_steps(void **state) {
    (void)state;
    frug_optimizer *o = single_optimizer("apollo:rank=16", 64, 32),
                   *free_one = single_optimizer("apollo:rank=16,growth=1e9", 64, 32);
    float *w = bell_array(D, 1), *x = bell_array(D, 1), g[D];
    double last = 0, last_free = 0, jump = 0;
    for (uint64_t t = 0; t < 12; t++) {
        double norm = 0, norm_free = 0;
        float before[D], before_free[D];
        memcpy(before, w, sizeof before);
        memcpy(before_free, x, sizeof before_free);
        sparse_gradient(g, D, t, 1);
        for (size_t i = 0; i < D; i++)
            g[i] *= t < 6 ? 0.01f : 1.0f;
        OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.1, w));
        OK(frug_optimizer_step(free_one, t, (frug_range){0, D}, g, 0.1, x));
        for (size_t i = 0; i < D; i++) {
            norm += pow((double)w[i] - (double)before[i], 2);
            norm_free += pow((double)x[i] - (double)before_free[i], 2);
        }
        if (t > 0) {
            assert_true(sqrt(norm) <= 1.01 * last * (1 + 1e-4));
            jump = fmax(jump, sqrt(norm_free) / last_free);
        }
        last = sqrt(norm);
        last_free = sqrt(norm_free);
    }
    if (!(jump > 1.1))
        fail_msg("the longest jump is %g", jump); /* without the limit the step is larger */
    test_free(w);
    test_free(x);
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(free_one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_trains_two_factors),
        cmocka_unit_test(lora_begins_at_the_input_side),
        cmocka_unit_test(galore_of_full_rank_is_adamw_up_to_rotation),
        cmocka_unit_test(apollo_scales_channels_or_tensors),
        cmocka_unit_test(apollo_limits_the_growth_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

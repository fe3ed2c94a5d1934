/*
 * test_nn_text.c - operations of text models against finite differences (gradcheck.h: relative to the largest entry of
 * a tensor, tolerance 1e-3 unless noted), with small tiles, batches smaller than the largest, padding, dropout with a
 * fixed mask, and one thread against two; fastmath.h against the C library.
 */
#include "trainer/gradcheck.h"

#include "trainer/nn/fastmath.h"
#include "trainer/nn/kernels.h"

#include <stdio.h>

#define TOLERANCE 1e-3

static fgt_value *given(fgt_graph *g, uint32_t rows, uint32_t cols) {
    const uint32_t dims[2] = {rows, cols};
    return fgt_op_input(g, 2, dims, true);
}

/* Whole tensors and tiles of 3 rows; the largest batch and a smaller one. */
static void check(fgt_graph *g, fgt_value *out, const fgt_batch *batch, uint64_t seed) {
    gradcheck c;
    gradcheck_open(&c, g, out, seed);
    if (batch)
        c.batch = *batch;
    gradcheck_run(&c, g->batch_max, 0, TOLERANCE);
    gradcheck_run(&c, g->batch_max - 1, 3, TOLERANCE);
    gradcheck_close(&c);
}

/* ---- fastmath ---- */

static double worst_error(vec fast(vec), double exact(double), float low, float high) {
    double worst = 0;
    for (int i = 0; i <= 400000; i++) {
        float x = low + (high - low) * (float)i / 400000.0f;
        double is = (double)fast(splat(x))[i & 3], should = exact((double)x);
        if (should != 0)
            worst = fmax(worst, fabs(is / should - 1));
    }
    return worst;
}

static void test_fast_functions_are_near_those_of_libm(void **state) {
    (void)state;
    assert_true(worst_error(fgt_exp, exp, -87.0f, 88.0f) < 4e-7);
    assert_true(worst_error(fgt_tanh, tanh, -12.0f, 12.0f) < 4e-7);
    assert_true(worst_error(fgt_tanh, tanh, -1e-3f, 1e-3f) < 4e-7);
    assert_true(worst_error(fgt_erf, erf, -6.0f, 6.0f) < 4e-7);
    assert_true(worst_error(fgt_erf, erf, -1e-3f, 1e-3f) < 4e-7);
    assert_true(fgt_exp(splat(-INFINITY))[0] == 0.0f);
    assert_true(isnan(fgt_exp(splat(NAN))[1]));
    assert_true(fgt_exp(splat(1e30f))[2] > 1e38f);
    assert_true(fgt_tanh(splat(-1e30f))[3] == -1.0f);
    assert_true(fgt_erf(splat(1e30f))[0] == 1.0f);
}

static void check_row(const fgt_row_kernel *k, size_t n) {
    float x[151], y[151], most = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = 3.0f * gradcheck_number(n, i);
        most = fmaxf(most, x[i]);
        sum += exp((double)x[i] - 1.5);
    }
    y[n] = -7.0f;
    assert_true(k->max(x, n) == most);
    assert_true(fabs((double)k->exp_sum(y, x, n, 1.5f) / sum - 1) < 1e-6);
    assert_true(y[n] == -7.0f); /* nothing written beyond */
    for (size_t i = 0; i < n; i++)
        assert_true(fabs((double)y[i] / exp((double)x[i] - 1.5) - 1) < 1e-6);
}

static void test_rows_of_any_length(void **state) {
    (void)state;
    for (size_t v = 0; frug_isa_at(v); v++) {
        setenv("FRUG_ISA", frug_isa_at(v), 1);
        for (size_t n = 1; n <= 150; n++)
            check_row(&fgt_kernels_chosen()->row, n);
    }
    unsetenv("FRUG_ISA");
}

/* ---- element by element ---- */

static void test_gelu_and_tanh(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        fgt_graph *g = fgt_graph_create(3, 1);
        fgt_value *x = given(g, 3, 7); /* no multiple of 4 */
        check(g, form == 2 ? fgt_op_tanh(g, x) : fgt_op_gelu(g, x, form == 0), NULL, 11);
    }
}

static void test_gradients_add_up_where_a_value_is_used_twice(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(2, 1);
    fgt_value *x = given(g, 5, 6);
    fgt_value *k = fgt_op_tanh(g, x), *v = fgt_op_gelu(g, x, true), *q = fgt_op_layer_norm(g, "n", x, 1e-5f);
    fgt_value *y = fgt_op_attention(g, q, k, v, 2, false, 0.0f);
    check(g, fgt_op_attention(g, y, k, v, 2, true, 0.0f), NULL, 12);
}

static void test_layer_norm(void **state) {
    (void)state;
    for (uint32_t width = 5; width <= 18; width += 13) {
        fgt_graph *g = fgt_graph_create(3, 1);
        check(g, fgt_op_layer_norm(g, "ln", given(g, 4, width), 1e-5f), NULL, 13);
    }
}

static void test_first_token(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(3, 1);
    check(g, fgt_op_first_token(g, given(g, 4, 5)), NULL, 14);
}

static void test_dropout_has_the_same_mask_in_backward(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(3, 1);
    g->seed = 5;
    g->step = 7;
    check(g, fgt_op_dropout(g, fgt_op_gelu(g, given(g, 4, 5), true), 0.4f), NULL, 15);
}

/* Mean and share of the remaining of 40,000 ones, within five standard deviations; masks differ by step and worker. */
static void test_dropout_keeps_the_mean(void **state) {
    (void)state;
    float *first = malloc(40000 * sizeof *first);
    assert_non_null(first);
    for (uint64_t round = 0; round < 3; round++) {
        fgt_graph *g = fgt_graph_create(4, 2);
        fgt_value *x = given(g, 100, 100), *y = fgt_op_dropout(g, x, 0.1f);
        assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
        g->step = round == 1;
        g->worker = round == 2;
        for (size_t i = 0; i < 40000; i++)
            x->data[i] = 1.0f;
        fgt_batch batch = {.n = 4};
        fgt_graph_forward(g, &batch, false);
        for (size_t i = 0; i < 40000; i++)
            assert_true(y->data[i] == 1.0f); /* only in training */
        fgt_graph_forward(g, &batch, true);
        size_t zeros = 0, other = 0;
        for (size_t i = 0; i < 40000; i++) {
            zeros += y->data[i] == 0.0f;
            other += (y->data[i] == 0.0f) != (first[i] == 0.0f);
            assert_true(y->data[i] == 0.0f || fabsf(y->data[i] - 1.0f / 0.9f) < 1e-4f);
        }
        assert_true(zeros > 4000 - 300 && zeros < 4000 + 300);
        assert_true(round == 0 || other > 7200 - 500);
        if (round == 0)
            memcpy(first, y->data, 40000 * sizeof *first);
        fgt_graph_destroy(g);
    }
    free(first);
}

/* ---- attention ---- */

static void test_attention_packed(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(3, 1);
    check(g, fgt_op_attention(g, given(g, 7, 3 * 8), NULL, NULL, 2, true, 0.0f), NULL, 16);
}

static void test_attention_over_several_blocks(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        fgt_graph *g = fgt_graph_create(2, 2);
        check(g, fgt_op_attention(g, given(g, 133, 3 * 4), NULL, NULL, 2, causal, 0.0f), NULL, 17);
    }
}

static void test_attention_with_padding(void **state) {
    (void)state;
    int32_t lengths[3] = {5, 9, 1};
    fgt_batch batch = {.lengths = lengths};
    fgt_graph *g = fgt_graph_create(3, 1);
    fgt_value *q = given(g, 9, 6), *k = given(g, 9, 6), *v = given(g, 9, 6);
    check(g, fgt_op_attention(g, q, k, v, 3, false, 0.0f), &batch, 18);
}

static void test_attention_with_dropout(void **state) {
    (void)state;
    int32_t lengths[2] = {5, 7};
    fgt_batch batch = {.lengths = lengths};
    fgt_graph *g = fgt_graph_create(2, 1);
    g->seed = 3;
    check(g, fgt_op_attention(g, given(g, 70, 12), NULL, NULL, 2, true, 0.3f), NULL, 19);
    g = fgt_graph_create(2, 1);
    check(g, fgt_op_attention(g, given(g, 7, 12), NULL, NULL, 2, false, 0.3f), &batch, 20);
}

static void test_padding_is_ignored(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(1, 1);
    fgt_value *x = given(g, 6, 12), *y = fgt_op_attention(g, x, NULL, NULL, 2, false, 0.0f);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    int32_t length = 4;
    fgt_batch batch = {.n = 1, .lengths = &length};
    float before[4 * 4];
    for (size_t i = 0; i < x->sample_size; i++)
        x->data[i] = gradcheck_number(21, i);
    fgt_graph_forward(g, &batch, false);
    memcpy(before, y->data, sizeof before);
    for (size_t i = 4 * 12; i < x->sample_size; i++)
        x->data[i] = 1000.0f;
    fgt_graph_forward(g, &batch, false);
    assert_memory_equal(before, y->data, sizeof before);
    for (size_t i = 4 * 4; i < y->sample_size; i++)
        assert_true(y->data[i] == 0.0f);
    fgt_graph_destroy(g);
}

/* ---- embeddings ---- */

static int32_t tokens[3 * 6] = {3, 1, 3, 0, 10, 3, 2, 2, 5, 10, 9, 0, 7, 7, 7, 7, 1, 1};
static int32_t segments[3 * 6] = {0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1};

static fgt_value *embedded(fgt_graph *g, bool all) {
    fgt_embedding_shape shape = {6, 5, 11, 8, 2, 0.02f};
    return fgt_op_embedding(g, "token", all ? "position" : NULL, all ? "segment" : NULL, shape);
}

static void test_embedding(void **state) {
    (void)state;
    fgt_batch batch = {.tokens = tokens, .segments = segments};
    for (int all = 0; all < 2; all++) {
        fgt_graph *g = fgt_graph_create(3, 1);
        check(g, embedded(g, all), &batch, 22);
    }
}

static void test_tied_embedding(void **state) {
    (void)state;
    fgt_batch batch = {.tokens = tokens, .segments = segments};
    for (int bias = 0; bias < 2; bias++) {
        fgt_graph *g = fgt_graph_create(3, 1);
        fgt_value *e = embedded(g, true), *x = fgt_op_tanh(g, e);
        check(g, fgt_op_tied_linear(g, bias ? "bias" : NULL, x, e), &batch, 23);
    }
}

/* ---- the end of a model ---- */

static void test_squared_error(void **state) {
    (void)state;
    const uint32_t one = 1;
    float numbers[3] = {1.5f, -2.0f, 0.25f}, x[3] = {1.0f, 2.0f, 0.5f};
    fgt_batch batch = {.n = 2, .numbers = numbers};
    fgt_graph *g = fgt_graph_create(3, 1);
    fgt_value *v = fgt_op_input(g, 1, &one, true);
    fgt_op_squared_error(g, v);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    memcpy(v->data, x, sizeof x);
    fgt_graph_forward(g, &batch, false);
    assert_memory_equal(v->data, x, sizeof x);
    fgt_graph_forward(g, &batch, true);
    assert_true(g->score.loss == 0.25 + 16.0 && g->score.count == 2.0);
    const double sums[5] = {3.0, -0.5, 5.0, 6.25, -2.5};
    for (int i = 0; i < 5; i++)
        assert_true(g->score.sums[i] == sums[i]);
    assert_true(v->grad[0] == -0.5f && v->grad[1] == 4.0f); /* 2 (x - y) / n */
    assert_true(g->last->out->data[1] == 2.0f);             /* the prediction */
    fgt_graph_destroy(g);
}

/* ---- threads ---- */

/* All operations in a row; returns all gradients. */
static float *gradients(int threads, size_t *count) {
    int32_t lengths[3] = {70, 33, 70}, *ids = calloc(3 * 70, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < 3 * 70; i++)
        ids[i] = (int32_t)(fgt_random(1, FGT_STREAM_SAMPLE, i) % 90);
    fgt_graph *g = fgt_graph_create(3, threads);
    fgt_embedding_shape shape = {70, 12, 90, 70, 2, 0.02f};
    fgt_value *e = fgt_op_embedding(g, "token", "position", "segment", shape);
    fgt_value *q = fgt_op_tanh(g, e), *k = fgt_op_gelu(g, e, false);
    fgt_value *x = fgt_op_attention(g, q, k, e, 3, false, 0.2f);
    x = fgt_op_dropout(g, fgt_op_layer_norm(g, "ln", x, 1e-5f), 0.1f);
    x = fgt_op_tied_linear(g, "bias", x, e);
    gradcheck c;
    gradcheck_open(&c, g, x, 24);
    c.batch = (fgt_batch){.tokens = ids, .lengths = lengths};
    for (size_t i = 0; i < g->elements; i++)
        c.grads[i] = 0.0f;
    gradcheck_backward(&c, 3, 40);
    *count = (size_t)g->elements;
    float *all = malloc(*count * sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < *count; i++)
        all[i] = isnan(c.grads[i]) ? 0.0f : c.grads[i]; /* gaps between tensors */
    gradcheck_close(&c);
    free(ids);
    return all;
}

/* Matrix products may round differently in tiles: 1e-5 of the largest entry. */
static void test_threads_change_rounding_only(void **state) {
    (void)state;
    size_t count = 0;
    float *one = gradients(1, &count), *most = one, largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(most[i]));
    assert_true(largest > 0);
    for (int threads = 2; threads <= 3; threads++) {
        float *more = gradients(threads, &count);
        for (size_t i = 0; i < count; i++)
            assert_true(fabsf(one[i] - more[i]) <= 1e-5f * largest);
        free(more);
    }
    free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_functions_are_near_those_of_libm),
        cmocka_unit_test(test_rows_of_any_length),
        cmocka_unit_test(test_gelu_and_tanh),
        cmocka_unit_test(test_gradients_add_up_where_a_value_is_used_twice),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_first_token),
        cmocka_unit_test(test_dropout_has_the_same_mask_in_backward),
        cmocka_unit_test(test_dropout_keeps_the_mean),
        cmocka_unit_test(test_attention_packed),
        cmocka_unit_test(test_attention_over_several_blocks),
        cmocka_unit_test(test_attention_with_padding),
        cmocka_unit_test(test_attention_with_dropout),
        cmocka_unit_test(test_padding_is_ignored),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_tied_embedding),
        cmocka_unit_test(test_squared_error),
        cmocka_unit_test(test_threads_change_rounding_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

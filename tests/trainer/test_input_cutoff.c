/* test_input_cutoff.c - inputs of linear layers below a cutoff: the share, the products, and the columns skipped. */
#include "trainer/nn/input_cutoff.h"
#include "trainer/nn/ops.h"
#include "io/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 70, IN = 24, OUT = 20 };

/* A linear layer alone, without backward; x gets numbers of many magnitudes. */
static fgt_graph *make_layer(bool input_first, uint32_t rows, float *x) {
    fgt_graph *g = fgt_graph_create(1, 2);
    const uint32_t dims[2] = {rows, IN};
    assert_non_null(g);
    g->keep = FGT_KEEP_NONE;
    fgt_value *in = fgt_op_input(g, 2, dims, false);
    fgt_op_linear(g, "layer", in, (fgt_linear_shape){.out = OUT, .bias = true, .input_first = input_first});
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    fgt_graph_init(g, 3);
    for (size_t i = 0; i < (size_t)rows * IN; i++)
        x[i] = (i % 2 ? -1.0f : 1.0f) * powf(1.5f, (float)(i * 7 % 31) - 15.0f);
    memcpy(in->data, x, (size_t)rows * IN * sizeof *x);
    return g;
}

static void forward(fgt_graph *g, const float *x, uint32_t rows) {
    fgt_batch batch = {.n = 1};
    memcpy(g->first->out->data, x, (size_t)rows * IN * sizeof *x);
    fgt_graph_forward(g, &batch, false);
}

static void check_outputs(const fgt_graph *g, bool input_first, const float *x, uint32_t rows, float cutoff,
                          double rounding) {
    const float *w = g->params->w, *bias = g->params->next->w;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t o = 0; o < OUT; o++) {
            double sum = (double)bias[o], size = 1, weights = 0, largest = 0;
            for (uint32_t c = 0; c < IN; c++) {
                double weight = (double)(input_first ? w[c * OUT + o] : w[o * IN + c]), input = (double)x[i * IN + c];
                sum += fabs(input) < (double)cutoff ? 0.0 : weight * input;
                size += fabs(weight * input);
                weights += fabs(weight);
                largest = fmax(largest, fabs(input));
            }
            assert_true(fabs((double)g->last->out->data[i * OUT + o] - sum) <=
                        1e-5 * size + rounding * largest * weights);
        }
}

static void inputs_below_the_cutoff_count_as_zero(void **state) {
    (void)state;
    for (int input_first = 0; input_first < 2; input_first++) {
        float x[ROWS * IN];
        fgt_graph *g = make_layer(input_first, ROWS, x);
        size_t below = 0;
        assert_true(fgt_cutoffs_measure(g));
        forward(g, x, ROWS);
        check_outputs(g, input_first, x, ROWS, 0.0f, 0);
        fgt_cutoffs_set(g, 0.5);
        assert_null(g->params->input_counts);
        for (size_t i = 0; i < ROWS * IN; i++)
            below += fabsf(x[i]) < g->params->input_cutoff;
        assert_true(below >= ROWS * IN / 2 && below <= ROWS * IN * 6 / 10);
        forward(g, x, ROWS);
        check_outputs(g, input_first, x, ROWS, g->params->input_cutoff, 0);
        fgt_graph_destroy(g);
    }
}

static void columns_give_the_same_products(void **state) {
    (void)state;
    for (int input_first = 0; input_first < 2; input_first++) {
        float x[IN];
        fgt_graph *g = make_layer(input_first, 1, x);
        assert_true(fgt_cutoffs_measure(g));
        forward(g, x, 1);
        fgt_cutoffs_set(g, 0.4);
        assert_int_equal(fgt_cutoffs_pack(g), FGIO_EXIT_OK);
        assert_non_null(g->params->packed);
        forward(g, x, 1);
        check_outputs(g, input_first, x, 1, g->params->input_cutoff, 0);
        fgt_graph_destroy(g);
    }
}

/* int8 weights stay int8, and sparse ones have no cutoff. */
static void packed_weights(void **state) {
    (void)state;
    for (int sparse = 0; sparse < 2; sparse++) {
        float x[IN], w[OUT * IN];
        frug_sparse_info info = {.struct_size = sizeof info};
        fgt_graph *g = make_layer(false, 1, x);
        fgt_param *p = g->params;
        for (size_t i = 0; i < OUT * IN; i++)
            w[i] = sparse && i % 4 ? 0.0f : p->w[i];
        assert_int_equal(frug_sparse_create(w, OUT, IN, 0, FRUG_SPARSE_INT8, &p->packed), FRUG_OK);
        assert_true(fgt_cutoffs_measure(g));
        forward(g, x, 1);
        fgt_cutoffs_set(g, 0.4);
        assert_int_equal(fgt_cutoffs_pack(g), FGIO_EXIT_OK);
        assert_int_equal(frug_sparse_get_info(p->packed, &info), FRUG_OK);
        assert_int_equal(info.code, FRUG_SPARSE_INT8);
        assert_string_equal(info.form, sparse ? "windows" : "columns");
        assert_true((p->input_cutoff > 0.0f) == !sparse);
        frug_sparse_unpack(p->packed, 0, OUT, p->w);
        forward(g, x, 1);
        check_outputs(g, false, x, 1, p->input_cutoff, 1.0 / 65000);
        fgt_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_below_the_cutoff_count_as_zero),
        cmocka_unit_test(columns_give_the_same_products),
        cmocka_unit_test(packed_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

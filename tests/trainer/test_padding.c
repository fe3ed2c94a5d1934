/*
 * test_padding.c - sentences of different lengths in one batch: rows are as long as the longest, and the padding must
 * not affect any number, forward or backward. Whole models, seed 5.
 */
#include "trainer/data/data_set.h"
#include "trainer/model/model.h"
#include "io/error.h"

#include <cblas.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/** A sink that stores all gradients. */
typedef struct basin {
    fgt_sink sink; /* first: callbacks get a pointer to it */
    float *grad;
} basin;

static float *open_basin(fgt_sink *sink, const fgt_param *p, size_t first) {
    return ((basin *)sink)->grad + p->tensor.offset + first * p->cols;
}

static void close_basin(fgt_sink *sink, const fgt_param *p, size_t first) {
    (void)sink;
    (void)p;
    (void)first;
}

enum { WORDS = 40, SENTENCES = 3 };

/* Loss and gradients of sentences of 5, 9 and 12 tokens in rows of `length`, padded with `filler`. */
static double run_padded(const char *name, fgt_task task, uint32_t length, int32_t filler, float **grad) {
    static const uint32_t tokens[SENTENCES] = {5, 9, 12};
    fgt_data_info info = {.name = "any", .task = task, .classes = 2, .vocab = WORDS, .length = length};
    fgt_model m;
    fgt_graph *g;
    fgt_batch b;
    assert_int_equal(fgt_model_parse(name, &m), FGIO_EXIT_OK);
    assert_int_equal(fgt_model_build(&m, &info, SENTENCES, 1, &g), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(&info, SENTENCES, &b), FGIO_EXIT_OK);
    fgt_graph_init(g, 5);
    b.n = SENTENCES;
    for (uint32_t i = 0; i < SENTENCES; i++)
        for (uint32_t t = 0; t < length; t++) {
            b.lengths[i] = (int32_t)tokens[i];
            b.tokens[i * length + t] = t < tokens[i] ? (int32_t)(1 + (7 * i + 3 * t) % (WORDS - 1)) : filler;
            if (task == FGT_TASK_MASKED)
                b.targets[i * length + t] = t < tokens[i] && t % 3 == 1 ? (int32_t)t : -1;
            else
                b.targets[i] = (int32_t)(i % 2);
        }
    basin all = {{open_basin, close_basin}, calloc((size_t)g->elements, sizeof(float))};
    fgt_graph_forward(g, &b, true);
    fgt_graph_backward(g, &all.sink);
    double loss = g->score.loss / g->score.count;
    *grad = all.grad;
    fgt_batch_destroy(&b);
    fgt_graph_destroy(g);
    return loss;
}

/* The result depends neither on the contents of the padding nor on its length: losses to 1e-6, gradients to 1e-5 of the
 * largest. */
static void padding_does_not_change_the_result(void **state) {
    (void)state;
    static const struct {
        const char *model;
        fgt_task task;
    } cases[] = {{"bert-mini:layers=2,width=32,heads=2,length=24,dropout=0", FGT_TASK_SENTENCES},
                 {"bert-mlm-mini:layers=2,width=32,heads=2,length=24,dropout=0", FGT_TASK_MASKED}};
    for (size_t i = 0; i < 2; i++) {
        fgt_model m;
        fgt_graph *g;
        fgt_data_info info = {.name = "any", .task = cases[i].task, .classes = 2, .vocab = WORDS, .length = 12};
        assert_int_equal(fgt_model_parse(cases[i].model, &m), FGIO_EXIT_OK);
        assert_int_equal(fgt_model_build(&m, &info, 1, 1, &g), FGIO_EXIT_OK);
        for (int other = 0; other < 2; other++) {
            float *a, *b, largest = 0, max_difference = 0;
            double x = run_padded(cases[i].model, cases[i].task, 12, 0, &a);
            double y = run_padded(cases[i].model, cases[i].task, other ? 24 : 12, other ? 0 : 17, &b);
            assert_true(fabs(x - y) < 1e-6 * x);
            for (const fgt_param *p = g->params; p; p = p->next)
                for (size_t k = 0; k < p->rows * p->cols; k++) {
                    largest = fmaxf(largest, fabsf(a[p->tensor.offset + k]));
                    max_difference = fmaxf(max_difference, fabsf(a[p->tensor.offset + k] - b[p->tensor.offset + k]));
                }
            if (!(largest > 0 && max_difference < 1e-5f * largest))
                fail_msg("%s: gradients up to %g differ by %g", cases[i].model, (double)largest,
                         (double)max_difference);
            free(a);
            free(b);
        }
        fgt_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(padding_does_not_change_the_result)};
    openblas_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

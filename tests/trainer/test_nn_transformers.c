/*
 * test_nn_transformers.c - whole text models. One training step of small GPT-2s and BERTs against PyTorch in double
 * precision (golden_transformers.inc, written by reference/transformers.py): loss, gradients and new weights.
 * Causality: later tokens do not change earlier outputs. Parameters have the names and roles of the program's own
 * tables. Generated text depends on the seed alone.
 */
#include "program/model/model_layouts.h"
#include "trainer/model/model_families.h"
#include "trainer/nn/ops.h"
#include "trainer/base/keyed_random.h"
#include "trainer/run/text_sample.h"
#include "io/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct tensor_record {
    const char *name;
    double sum, norm, product, after;
} tensor_record;

typedef struct model_record {
    const char *label;
    fgt_task task;
    uint32_t layers, width, heads, positions, vocab, samples, length, classes;
    double loss;
    const tensor_record *tensors;
    size_t count;
} model_record;

#include "trainer/golden_transformers.inc"

#define RATE   0.1f
#define MODELS (sizeof model_records / sizeof *model_records)

/* The reference's uniform(): number i of a stream. */
static double uniform(uint32_t stream, size_t i) {
    uint32_t h = (uint32_t)(i + 1) * 2654435761u + (stream + 1) * 2246822519u;
    for (int round = 0; round < 2; round++) {
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
    }
    return (double)(h >> 8) * 0x1p-24;
}

static fgt_graph *build_for(const model_record *r, uint32_t most, int threads, uint32_t past_most) {
    fgt_model model = {
        .task = r->task, .layers = r->layers, .hidden = r->width, .heads = r->heads, .length = r->positions};
    snprintf(model.text, sizeof model.text, "%s", r->label);
    fgt_data_info info = {
        .name = "test", .task = r->task, .classes = r->classes, .vocab = r->vocab, .length = past_most ? 1 : r->length};
    fgt_graph *g = fgt_graph_create(most, threads);
    assert_non_null(g);
    g->past_most = past_most;
    fgt_model_builder *family = r->task == FGT_TASK_LANGUAGE ? fgt_build_gpt2 : fgt_build_bert;
    assert_int_equal(family(&model, &info, g), FGIO_EXIT_OK);
    return g;
}

static fgt_graph *build(const model_record *r, uint32_t most, int threads) {
    return build_for(r, most, threads, 0);
}

static void set_weights(fgt_graph *g) {
    uint32_t k = 0;
    for (fgt_param *p = g->params; p; p = p->next, k++)
        for (size_t i = 0; i < p->rows * p->cols; i++)
            p->w[i] = 0.3f * (float)(2.0 * uniform(k, i) - 1.0) + (p->init == FGT_INIT_ONE ? 1.0f : 0.0f);
}

static fgt_batch make_batch(const model_record *r) {
    const size_t rows = (size_t)r->samples * r->length;
    fgt_batch b = {.n = r->samples};
    b.tokens = calloc(rows, sizeof *b.tokens);
    b.segments = calloc(rows, sizeof *b.segments);
    b.targets = calloc(rows, sizeof *b.targets);
    b.lengths = calloc(r->samples, sizeof *b.lengths);
    b.numbers = calloc(r->samples, sizeof *b.numbers);
    assert_true(b.tokens && b.segments && b.targets && b.lengths && b.numbers);
    for (uint32_t i = 0; i < r->samples; i++) {
        b.lengths[i] = r->task == FGT_TASK_LANGUAGE ? (int32_t)r->length : 1 + (int32_t)(uniform(1003, i) * r->length);
        b.numbers[i] = (float)(5.0 * uniform(1006, i));
    }
    for (size_t i = 0; i < rows; i++) {
        bool there = (int32_t)(i % r->length) < b.lengths[i / r->length];
        b.tokens[i] = there ? (int32_t)(uniform(1000, i) * r->vocab) : 0;
        b.segments[i] = (int32_t)(uniform(1002, i) * 2);
        b.targets[i] = (int32_t)(uniform(1001, i) * r->vocab);
        if (r->task == FGT_TASK_MASKED && !(there && uniform(1004, i) < 0.3))
            b.targets[i] = -1;
    }
    for (uint32_t i = 0; r->task == FGT_TASK_SENTENCES && i < r->samples; i++)
        b.targets[i] = (int32_t)(uniform(1005, i) * r->classes);
    return b;
}

static void free_batch(fgt_batch *b) {
    free(b->tokens);
    free(b->segments);
    free(b->targets);
    free(b->lengths);
    free(b->numbers);
}

/* ---- one step ---- */

/* A sink that stores gradients, and updates the weights when a tile is closed. */
typedef struct stepper {
    fgt_sink sink;
    float *grads;
} stepper;

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    return ((stepper *)sink)->grads + p->tensor.offset + first * p->cols;
}

static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    const float *grad = open_tile(sink, p, first);
    for (size_t i = 0; i < fgt_tile_rows(p, first) * p->cols; i++)
        p->w[first * p->cols + i] -= RATE * grad[i];
}

static void near(const char *label, const char *name, const char *what, double is, double should, double tolerance) {
    if (!(fabs(is - should) <= tolerance))
        fail_msg("%s: %s: %s is %.9g and should be %.9g (tolerance %.2g)", label, name, what, is, should, tolerance);
}

/* Tolerance 2e-5 of the gradient's norm; where it is next to 0 (keys' biases), of a thousandth of the largest norm. */
static void compare(const model_record *r, const fgt_param *p, const float *grad, uint32_t k, double largest) {
    const tensor_record *t = &r->tensors[k];
    const size_t count = p->rows * p->cols;
    double sum = 0, squares = 0, product = 0, after = 0;
    for (size_t i = 0; i < count; i++) {
        double g = (double)grad[i], pattern = 2.0 * uniform(5000 + k, i) - 1.0;
        sum += g;
        squares += g * g;
        product += g * pattern;
        after += (double)p->w[i] * pattern;
    }
    const double tolerance = 2e-5 * fmax(t->norm, 1e-3 * largest);
    near(r->label, t->name, "the gradient's norm", sqrt(squares), t->norm, tolerance);
    near(r->label, t->name, "the gradient's sum", sum, t->sum, tolerance * sqrt((double)count));
    near(r->label, t->name, "the gradient's product", product, t->product, tolerance);
    near(r->label, t->name, "the new weights' product", after, t->after, tolerance + 1e-7 * sqrt((double)count));
}

static void check_step(const model_record *r, int threads, size_t tile) {
    fgt_graph *g = build(r, r->samples + 1, threads); /* a batch smaller than the largest */
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    set_weights(g);
    fgt_batch batch = make_batch(r);
    for (fgt_param *p = g->params; p; p = p->next)
        p->tile = p->tensor.ndim > 1 && tile < p->rows ? tile : p->rows;
    stepper s = {{open_tile, close_tile}, calloc((size_t)g->elements, sizeof(float))};
    assert_non_null(s.grads);
    fgt_graph_forward(g, &batch, true);
    near(r->label, "model", "loss", g->score.loss / g->score.count, r->loss, 1e-5 * r->loss);
    fgt_graph_backward(g, &s.sink);
    double largest = 0;
    for (size_t i = 0; i < r->count; i++)
        largest = fmax(largest, r->tensors[i].norm);
    uint32_t k = 0;
    for (const fgt_param *p = g->params; p; p = p->next, k++) {
        assert_true(k < r->count);
        assert_string_equal(p->tensor.name, r->tensors[k].name);
        compare(r, p, s.grads + p->tensor.offset, k, largest);
    }
    assert_int_equal(k, r->count);
    free(s.grads);
    free_batch(&batch);
    fgt_graph_destroy(g);
}

static void test_step_matches_pytorch(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        check_step(&model_records[i], 1, SIZE_MAX);
        check_step(&model_records[i], 2, 7);
    }
}

/* ---- who sees what ---- */

static void test_attention_is_causal(void **state) {
    (void)state;
    const model_record *r = &model_records[1];
    fgt_graph *g = build(r, r->samples, 1);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    set_weights(g);
    fgt_batch batch = make_batch(r);
    const fgt_value *scores = g->last->in[0];
    fgt_graph_forward(g, &batch, false);
    float *before = malloc(r->samples * scores->sample_size * sizeof *before);
    assert_non_null(before);
    memcpy(before, scores->data, r->samples * scores->sample_size * sizeof *before);
    for (uint32_t index = 0; index < r->length; index += 13) {
        int32_t *token = &batch.tokens[r->length + index]; /* of the second sample */
        *token = (*token + 1) % (int32_t)r->vocab;
        fgt_graph_forward(g, &batch, false);
        *token = (*token + (int32_t)r->vocab - 1) % (int32_t)r->vocab;
        size_t same = scores->sample_size + (size_t)index * r->vocab;
        assert_memory_equal(before, scores->data, same * sizeof *before);
        assert_memory_not_equal(before + same, scores->data + same, r->vocab * sizeof *before);
        same = 2 * scores->sample_size; /* other samples */
        assert_memory_equal(before + same, scores->data + same, scores->sample_size * sizeof *before);
    }
    free(before);
    free_batch(&batch);
    fgt_graph_destroy(g);
}

/* ---- roles of parameters ---- */

static void check_layout(const char *known, const model_record *r, size_t skip, size_t more) {
    frug_layout *layout = NULL;
    fgt_graph *g = build(r, 1, 1);
    assert_int_equal(fgp_model_layout(known, &layout), FRUG_OK);
    const fgt_param *p = g->params;
    for (size_t i = 0; i < frug_layout_count(layout); i++, p = p->next) {
        frug_tensor t = FRUG_TENSOR_INIT;
        assert_int_equal(frug_layout_get(layout, i, &t), FRUG_OK);
        assert_non_null(p);
        assert_string_equal(p->tensor.name + skip, t.name);
        assert_int_equal(p->tensor.role, t.role);
        assert_int_equal(p->tensor.ndim, t.ndim);
        for (uint32_t j = 0; j < t.ndim; j++)
            assert_int_equal(p->tensor.shape[j], t.shape[j]);
        assert_int_equal(p->tensor.heads, t.heads);
        assert_int_equal(p->tensor.module, t.module);
        assert_int_equal(p->tensor.input_first, t.input_first);
    }
    while (p && more--)
        p = p->next;
    assert_null(p);
    frug_layout_destroy(layout);
    fgt_graph_destroy(g);
}

static void test_parameters_have_the_roles_of_the_known_layouts(void **state) {
    (void)state;
    const model_record gpt2 = {"gpt2", FGT_TASK_LANGUAGE, 12, 768, 12, 1024, 50257, 1, 8, 0, 0, NULL, 0};
    const model_record bert = {"bert", FGT_TASK_SENTENCES, 12, 768, 12, 512, 30522, 1, 8, 2, 0, NULL, 0};
    check_layout("gpt2", &gpt2, 0, 0);
    check_layout("bert-base", &bert, strlen("bert."), 2); /* the classifier */
}

static void test_invalid_sizes_are_refused(void **state) {
    (void)state;
    fgt_model model = {.text = "gpt2", .layers = 1, .hidden = 12, .heads = 2, .length = 8, .task = FGT_TASK_LANGUAGE};
    fgt_data_info info = {.name = "test", .task = FGT_TASK_LANGUAGE, .vocab = 10, .length = 8};
    fgt_graph *g = fgt_graph_create(1, 1);
    info.length = 9;
    assert_int_not_equal(fgt_build_gpt2(&model, &info, g), FGIO_EXIT_OK);
    info.length = 8;
    model.heads = 5;
    assert_int_not_equal(fgt_build_gpt2(&model, &info, g), FGIO_EXIT_OK);
    model.heads = 2;
    model.vocab = 9;
    assert_int_not_equal(fgt_build_gpt2(&model, &info, g), FGIO_EXIT_OK);
    model.vocab = 0;
    model.hidden = 1u << 31;
    assert_int_not_equal(fgt_build_gpt2(&model, &info, g), FGIO_EXIT_OK);
    info.task = model.task = FGT_TASK_SENTENCES; /* no classes */
    assert_int_not_equal(fgt_build_bert(&model, &info, g), FGIO_EXIT_OK);
    fgt_graph_destroy(g);
}

/* ---- generation ---- */

typedef struct text {
    int32_t tokens[64];
    size_t count, room;
} text;

static bool take(void *ctx, int32_t token) {
    text *t = ctx;
    t->tokens[t->count++] = token;
    return t->count < t->room;
}

static text generate(fgt_graph *g, fgt_sampling how, size_t room) {
    const int32_t begin[3] = {5, 0, 22};
    text t = {.room = room};
    assert_int_equal(fgt_sample(g, &how, begin, 3, 40, take, &t), FGIO_EXIT_OK);
    return t;
}

static void test_generation_depends_on_the_seed_alone(void **state) {
    (void)state;
    const model_record *r = &model_records[0]; /* windows of 10 tokens: they slide */
    fgt_graph *g = build(r, 1, 1);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    set_weights(g);
    text a = generate(g, (fgt_sampling){1.0, 0, 7}, 64), b = generate(g, (fgt_sampling){1.0, 0, 7}, 64);
    text c = generate(g, (fgt_sampling){1.0, 0, 8}, 64);
    assert_int_equal(a.count, 40);
    assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
    assert_memory_not_equal(a.tokens, c.tokens, sizeof a.tokens);
    text greedy = generate(g, (fgt_sampling){0.0, 0, 7}, 64), one = generate(g, (fgt_sampling){1.0, 1, 9}, 64);
    text cold = generate(g, (fgt_sampling){1e-4, 5, 3}, 64);
    assert_memory_equal(greedy.tokens, one.tokens, sizeof one.tokens);
    assert_memory_equal(greedy.tokens, cold.tokens, sizeof one.tokens);
    assert_int_equal(generate(g, (fgt_sampling){1.0, 0, 7}, 4).count, 4); /* stopped */
    const int32_t unknown[2] = {1, 23};
    fgt_sampling how = {1.0, 0, 1};
    assert_int_not_equal(fgt_sample(g, &how, unknown, 2, 1, take, &a), FGIO_EXIT_OK);
    assert_int_not_equal(fgt_sample(g, &how, unknown, 0, 1, take, &a), FGIO_EXIT_OK);
    g->weights[0] = NAN;
    assert_int_not_equal(fgt_sample(g, &how, unknown, 1, 1, take, &a), FGIO_EXIT_OK);
    fgt_graph_destroy(g);
}

/* A graph that computes token by token gives the tokens of one that computes the whole window, and its scores. */
static void test_generation_token_by_token_is_the_same(void **state) {
    (void)state;
    const model_record *r = &model_records[0];
    const int32_t begin[3] = {5, 0, 22};
    const fgt_sampling how = {1.0, 0, 7};
    text a = {.room = 64}, b = {.room = 64};
    fgt_graph *whole = build(r, 1, 1), *step = build_for(r, 1, 1, 10);
    assert_int_equal(fgt_graph_finish(whole), FGIO_EXIT_OK);
    assert_int_equal(fgt_graph_finish(step), FGIO_EXIT_OK);
    set_weights(whole);
    set_weights(step);
    assert_int_equal(fgt_sample(whole, &how, begin, 3, 7, take, &a), FGIO_EXIT_OK);
    for (int again = 0; again < 2; again++, b.count = 0) {
        assert_int_equal(fgt_sample(step, &how, begin, 3, 7, take, &b), FGIO_EXIT_OK);
        assert_int_equal(b.count, 7);
        assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
    }
    const float *x = whole->last->in[0]->data, *y = step->last->in[0]->data;
    const size_t vocab = step->last->in[0]->dims[1];
    for (size_t i = 0; i < vocab; i++) /* sums of some dozen terms near 1, in another order */
        assert_true(fabsf(x[8 * vocab + i] - y[i]) < 1e-4f);
    assert_int_not_equal(fgt_sample(step, &how, begin, 3, 8, take, &b), FGIO_EXIT_OK); /* more than past_most */
    fgt_graph_destroy(whole);
    fgt_graph_destroy(step);
}

/* 4,000 draws at one position: the share of each token is its probability within five standard deviations. */
static void test_draws_follow_the_probabilities(void **state) {
    (void)state;
    const model_record *r = &model_records[0];
    fgt_graph *g = build(r, 1, 1);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    set_weights(g);
    double seen[23] = {0}, wanted[23], total = 0;
    for (uint64_t seed = 0; seed < 4000; seed++)
        seen[generate(g, (fgt_sampling){0.7, 0, seed}, 1).tokens[0]]++;
    const float *scores = g->last->in[0]->data + 2 * 23; /* behind the third token */
    for (int i = 0; i < 23; i++)
        total += wanted[i] = exp((double)scores[i] / 0.7);
    for (int i = 0; i < 23; i++) {
        double p = wanted[i] / total;
        assert_true(fabs(seen[i] - 4000 * p) <= 5 * sqrt(4000 * p * (1 - p)) + 1);
    }
    fgt_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_matches_pytorch),
        cmocka_unit_test(test_attention_is_causal),
        cmocka_unit_test(test_parameters_have_the_roles_of_the_known_layouts),
        cmocka_unit_test(test_invalid_sizes_are_refused),
        cmocka_unit_test(test_generation_depends_on_the_seed_alone),
        cmocka_unit_test(test_generation_token_by_token_is_the_same),
        cmocka_unit_test(test_draws_follow_the_probabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

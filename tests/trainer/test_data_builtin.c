/*
 * test_data_builtin.c - synthetic data: reproducible, of any size, and as hard as stated: a predictor that knows the
 * rule gets (nearly) all right, a linear model does not. Models here are small and deterministic.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data_helpers.h"

static fgt_data *open_builtin(fgt_data_options want) {
    fgt_data *data = NULL;
    want.path = "builtin";
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    return data;
}

/* A split as one batch. */
static fgt_batch whole(const fgt_data *data, fgt_split split) {
    const fgt_data_info *info = fgt_data_get_info(data);
    fgt_batch batch;
    assert_int_equal(fgt_batch_create(info, (uint32_t)info->count[split], &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, split, 0, 0, (uint32_t)info->count[split], &batch);
    return batch;
}

enum { SIDE = 16, PIXELS = SIDE * SIDE, CLASSES = 10, EPOCHS = 30 };

/* Softmax regression of `classes` classes over n features, by plain gradient descent. */
static void step(float *w, const float *x, int n, int classes, int target, float rate) {
    float logits[CLASSES], most = -1e30f, sum = 0;
    for (int c = 0; c < classes; c++) {
        logits[c] = w[c * (n + 1) + n];
        for (int i = 0; i < n; i++)
            logits[c] += w[c * (n + 1) + i] * x[i];
        most = logits[c] > most ? logits[c] : most;
    }
    for (int c = 0; c < classes; c++)
        sum += logits[c] = expf(logits[c] - most);
    for (int c = 0; c < classes; c++) {
        float g = rate * (logits[c] / sum - (c == target ? 1.0f : 0.0f));
        for (int i = 0; i < n; i++)
            w[c * (n + 1) + i] -= g * x[i];
        w[c * (n + 1) + n] -= g;
    }
}

static int best(const float *w, const float *x, int n, int classes) {
    int found = 0;
    float most = -1e30f;
    for (int c = 0; c < classes; c++) {
        float logit = w[c * (n + 1) + n];
        for (int i = 0; i < n; i++)
            logit += w[c * (n + 1) + i] * x[i];
        if (logit > most) {
            most = logit;
            found = c;
        }
    }
    return found;
}

static double linear_accuracy(const float *train, const int32_t *labels, uint32_t samples, const float *test,
                              const int32_t *expected, uint32_t tests, int n, int classes, float rate) {
    float *w = calloc((size_t)classes * (size_t)(n + 1), sizeof *w);
    int right = 0;
    assert_non_null(w);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (uint32_t i = 0; i < samples; i++)
            step(w, train + i * (size_t)n, n, classes, labels[i], rate / (1 + (float)epoch));
    for (uint32_t i = 0; i < tests; i++)
        right += best(w, test + i * (size_t)n, n, classes) == expected[i];
    free(w);
    return right / (double)tests;
}

/* The energy of a wave of this class in an image, leaning one way. */
static double energy(const float *image, int label, double side) {
    double angle = 0.5 * 3.14159265 * (label / 2) / (CLASSES / 2 - 1), step_of = label % 2 == 0 ? 0.55 : 1.1;
    double re = 0, im = 0;
    for (int i = 0; i < PIXELS; i++) {
        double phase = side * step_of * sin(angle) * (i % SIDE) + step_of * cos(angle) * (i / SIDE);
        re += (double)image[i] * cos(phase);
        im += (double)image[i] * sin(phase);
    }
    return re * re + im * im;
}

static int rule_of_image(const float *image) {
    int found = 0;
    double most = -1;
    for (int c = 0; c < CLASSES; c++)
        for (int side = -1; side <= 1; side += 2)
            if (energy(image, c, side) > most) {
                most = energy(image, c, side);
                found = c;
            }
    return found;
}

static void images_need_more_than_a_linear_model(void **state) {
    int right = 0, classes[CLASSES] = {0};
    (void)state;
    fgt_data *data = open_builtin((fgt_data_options){
        .task = FGT_TASK_IMAGES, .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .samples = 1600});
    fgt_batch train = whole(data, FGT_TRAIN), test = whole(data, FGT_TEST);
    assert_int_equal(test.n, 200);
    for (uint32_t i = 0; i < test.n; i++) {
        float mean = 0, *image = test.pixels + i * PIXELS;
        classes[test.targets[i]]++;
        for (int k = 0; k < PIXELS; k++)
            mean += image[k] / PIXELS;
        for (int k = 0; k < PIXELS; k++)
            image[k] -= mean;
        right += rule_of_image(image) == test.targets[i];
    }
    double linear = linear_accuracy(train.pixels, train.targets, train.n, test.pixels, test.targets, test.n, PIXELS,
                                    CLASSES, 0.003f);
    print_message("images: the rule gets %.3f, a linear model %.3f\n", right / 200.0, linear);
    assert_true(right >= 180);
    assert_true(linear < 0.4);
    for (int c = 0; c < CLASSES; c++)
        assert_int_equal(classes[c], 20);
    fgt_batch_destroy(&train);
    fgt_batch_destroy(&test);
    fgt_data_close(data);
}

/* Mirrored and shifted images keep their class: the same test with augmentation. */
static void augmented_images_keep_their_class(void **state) {
    int right = 0;
    (void)state;
    fgt_data *data = open_builtin((fgt_data_options){.task = FGT_TASK_IMAGES,
                                                     .height = SIDE,
                                                     .width = SIDE,
                                                     .samples = 200,
                                                     .augment = FGT_AUGMENT_AUTO,
                                                     .seed = 8});
    fgt_batch train = whole(data, FGT_TRAIN);
    for (uint32_t i = 0; i < train.n; i++) {
        float mean = 0, *image = train.pixels + i * PIXELS;
        for (int k = 0; k < PIXELS; k++)
            mean += image[k] / PIXELS;
        for (int k = 0; k < PIXELS; k++)
            image[k] -= mean;
        right += rule_of_image(image) == train.targets[i];
    }
    assert_true(right >= 180);
    fgt_batch_destroy(&train);
    fgt_data_close(data);
}

enum { VOCAB = 64, TOPICS = 4, LENGTH = 64 };

/* Nats per token on the test split of a model that counts successors by token, and by topic if requested. */
static double count_model(const fgt_batch *train, const fgt_batch *test, int topics) {
    double(*counts)[VOCAB][VOCAB] = calloc(TOPICS, sizeof *counts), loss = 0;
    assert_non_null(counts);
    for (uint32_t i = 0; i < train->n * LENGTH; i++)
        if (i % LENGTH > 0)
            counts[topics ? train->tokens[i / LENGTH * LENGTH] : 0][train->tokens[i]][train->targets[i]]++;
    for (uint32_t i = 0; i < test->n * LENGTH; i++) {
        const double *row = counts[topics ? test->tokens[i / LENGTH * LENGTH] : 0][test->tokens[i]];
        double sum = 0;
        for (int k = 0; k < VOCAB; k++)
            sum += row[k] + 0.01;
        if (i % LENGTH > 0)
            loss -= log((row[test->targets[i]] + 0.01) / sum);
    }
    free(counts);
    return loss / (test->n * (LENGTH - 1.0));
}

static void tokens_depend_on_the_first_one(void **state) {
    (void)state;
    fgt_data *data = open_builtin((fgt_data_options){.task = FGT_TASK_LANGUAGE, .vocab = VOCAB, .length = LENGTH});
    fgt_batch train = whole(data, FGT_TRAIN), test = whole(data, FGT_TEST);
    for (uint32_t i = 0; i < test.n * LENGTH; i++)
        if (i % LENGTH < LENGTH - 1)
            assert_int_equal(test.targets[i], test.tokens[i + 1]);
    double blind = count_model(&train, &test, 0), seeing = count_model(&train, &test, 1);
    print_message("tokens: %.3f nats without the topic, %.3f with it\n", blind, seeing);
    assert_true(seeing > 1.1 && seeing < 1.25); /* 1.213, less where two successors are one */
    assert_true(blind > 2.2 && blind < 2.7);
    fgt_batch_destroy(&train);
    fgt_batch_destroy(&test);
    fgt_data_close(data);
}

enum { WORDS = 64, NOT = 4, CUE = 5, CUES = 4, WIDTH = 32 };

static void count_words(const fgt_batch *batch, float *counts) {
    memset(counts, 0, batch->n * sizeof(float[WORDS]));
    for (uint32_t i = 0; i < batch->n; i++)
        for (int t = 0; t < batch->lengths[i]; t++)
            counts[i * WORDS + (uint32_t)batch->tokens[i * WIDTH + (uint32_t)t]]++;
}

static int rule_of_counts(const float *counts) {
    float group[2] = {0, 0};
    for (int k = 0; k < 2 * CUES; k++)
        group[k / CUES] += counts[CUE + k];
    return (group[1] > group[0]) ^ (counts[NOT] > 0);
}

static void sentences_need_more_than_a_linear_model(void **state) {
    int right = 0;
    (void)state;
    fgt_data *data =
        open_builtin((fgt_data_options){.task = FGT_TASK_SENTENCES, .vocab = WORDS, .length = WIDTH, .classes = 2});
    fgt_batch train = whole(data, FGT_TRAIN), test = whole(data, FGT_TEST);
    float *x = malloc(train.n * sizeof(float[WORDS])), *y = malloc(test.n * sizeof(float[WORDS]));
    assert_non_null(x);
    assert_non_null(y);
    count_words(&train, x);
    count_words(&test, y);
    for (uint32_t i = 0; i < test.n; i++) {
        right += rule_of_counts(y + i * WORDS) == test.targets[i];
        assert_int_equal(test.tokens[i * WIDTH], 1);
        assert_int_equal(test.tokens[i * WIDTH + (uint32_t)test.lengths[i] - 1], 2);
    }
    double linear = linear_accuracy(x, train.targets, train.n, y, test.targets, test.n, WORDS, 2, 0.05f);
    print_message("sentences: the rule gets %.3f, a linear model %.3f\n", right / (double)test.n, linear);
    assert_int_equal(right, test.n);
    assert_true(linear > 0.6 && linear < 0.92);
    free(x);
    free(y);
    fgt_batch_destroy(&train);
    fgt_batch_destroy(&test);
    fgt_data_close(data);
}

/* Every task, opened twice with different seeds: tests are the same, training is the same in another order. */
static void data_do_not_depend_on_the_seed(void **state) {
    (void)state;
    for (fgt_task task = FGT_TASK_IMAGES; task <= FGT_TASK_MASKED; task++) {
        fgt_data_options want = {.task = task, .length = 16, .samples = 64};
        fgt_data *a = open_builtin(want), *b;
        want.seed = 9;
        b = open_builtin(want);
        fgt_batch x = whole(a, FGT_VALID), y = whole(b, FGT_VALID);
        if (task == FGT_TASK_IMAGES)
            assert_memory_equal(x.pixels, y.pixels, sizeof(float[8 * 28 * 28]));
        else if (task != FGT_TASK_MASKED) /* what is hidden may differ */
            assert_memory_equal(x.tokens, y.tokens, sizeof(int32_t[8 * 16]));
        fgt_batch_destroy(&x);
        fgt_batch_destroy(&y);
        x = whole(a, FGT_TRAIN);
        y = whole(b, FGT_TRAIN);
        if (task == FGT_TASK_IMAGES)
            assert_memory_not_equal(x.pixels, y.pixels, sizeof(float[64 * 28 * 28]));
        else
            assert_memory_not_equal(x.tokens, y.tokens, sizeof(int32_t[64 * 16]));
        fgt_batch_destroy(&x);
        fgt_batch_destroy(&y);
        fgt_data_close(a);
        fgt_data_close(b);
    }
}

static void odd_sizes_work_or_are_refused(void **state) {
    static const fgt_data_options good[] = {
        {.task = FGT_TASK_IMAGES, .channels = 3, .height = 1, .width = 1, .classes = 1, .samples = 1},
        {.task = FGT_TASK_IMAGES, .channels = 3, .height = 7, .width = 300, .classes = 1000, .samples = 9},
        {.task = FGT_TASK_LANGUAGE, .vocab = 12, .length = 8, .samples = 9},
        {.task = FGT_TASK_LANGUAGE, .vocab = 50257, .length = 9, .samples = 9},
        {.task = FGT_TASK_MASKED, .vocab = 12, .length = 8, .samples = 9},
        {.task = FGT_TASK_SENTENCES, .vocab = 14, .length = 8, .classes = 2, .samples = 9},
        {.task = FGT_TASK_SENTENCES, .vocab = 30522, .length = 33, .classes = 1, .samples = 9},
        {.task = FGT_TASK_SENTENCES, .vocab = 30522, .length = 33, .classes = 400, .samples = 9}};
    static const fgt_data_options bad[] = {{.task = FGT_TASK_IMAGES, .height = 1 << 20},
                                           {.task = FGT_TASK_LANGUAGE, .vocab = 11, .length = 8},
                                           {.task = FGT_TASK_SENTENCES, .vocab = 13, .length = 8},
                                           {.task = FGT_TASK_SENTENCES, .classes = UINT32_MAX, .length = 8}};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        fgt_data *data = open_builtin(good[i]);
        fgt_batch batch = whole(data, FGT_TRAIN);
        const fgt_data_info *info = fgt_data_get_info(data);
        for (uint32_t k = 0; info->task != FGT_TASK_IMAGES && k < batch.n * info->length; k++)
            assert_in_range(batch.tokens[k], 0, info->vocab - 1);
        fgt_batch_destroy(&batch);
        fgt_data_close(data);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fgt_data_options want = bad[i];
        want.path = "builtin";
        assert_data_refused(&want, "expected at");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_need_more_than_a_linear_model),
        cmocka_unit_test(augmented_images_keep_their_class),
        cmocka_unit_test(tokens_depend_on_the_first_one),
        cmocka_unit_test(sentences_need_more_than_a_linear_model),
        cmocka_unit_test(data_do_not_depend_on_the_seed),
        cmocka_unit_test(odd_sizes_work_or_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_absent_tensors.c - a layout with absent tensors, as that of a pipeline stage: the bits of the whole model,
 * states of the other tensors only, and no range of an absent one.
 */
#include "support/assertions.h"

#include "frugrad.h"

#include <math.h>
#include <stdbool.h>

enum { TENSORS = 8, STEPS = 5 };

/* 0 to 2 and 6 are absent; the last one is small, and is stored alone unless vectors are compressed. */
static const struct {
    const char *name;
    frug_role role;
    uint32_t ndim;
    uint64_t rows, cols;
    uint32_t absent, heads;
} tensors[TENSORS] = {{"embedding", FRUG_ROLE_EMBEDDING, 2, 250, 128, 1, 0},
                      {"first", FRUG_ROLE_LINEAR, 2, 100, 70, 1, 0},
                      {"first.bias", FRUG_ROLE_BIAS, 1, 300, 1, 1, 0},
                      {"q", FRUG_ROLE_ATTN_Q, 2, 64, 100, 0, 4},
                      {"k", FRUG_ROLE_ATTN_K, 2, 64, 100, 0, 4},
                      {"q.bias", FRUG_ROLE_BIAS, 1, 64, 1, 0, 0},
                      {"last", FRUG_ROLE_LINEAR, 2, 200, 96, 1, 0},
                      {"last.bias", FRUG_ROLE_BIAS, 1, 200, 1, 0, 0}};

static frug_layout *make_layout(bool stage) {
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    for (size_t i = 0; i < TENSORS; i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        t.name = tensors[i].name;
        t.role = tensors[i].role;
        t.ndim = tensors[i].ndim;
        t.shape[0] = tensors[i].rows;
        t.shape[1] = tensors[i].cols;
        t.heads = tensors[i].heads;
        t.module = tensors[i].heads > 0;
        t.absent = stage && tensors[i].absent;
        OK(frug_layout_add(layout, &t));
    }
    return layout;
}

static frug_range range_of(const frug_layout *layout, size_t first, size_t last) {
    frug_tensor a = FRUG_TENSOR_INIT, b = FRUG_TENSOR_INIT;
    OK(frug_layout_get(layout, first, &a));
    OK(frug_layout_get(layout, last, &b));
    return (frug_range){a.offset, b.offset + tensors[last].rows * tensors[last].cols - a.offset};
}

/** A compressor and an optimizer of the whole model, or of a stage of it. */
typedef struct trainee {
    frug_layout *layout;
    frug_compressor *compressor;
    frug_optimizer *optimizer;
    float *weights;
} trainee;

static trainee create(const char *method, const char *optimizer, bool stage) {
    trainee t = {.layout = make_layout(stage)};
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_config *config = NULL;
    options.threads = 1;
    options.total_steps = STEPS;
    OK(frug_config_create(method, &config));
    OK(frug_compressor_create(config, t.layout, &options, &t.compressor));
    OK(frug_optimizer_create(optimizer, t.layout, t.compressor, &t.optimizer));
    t.weights = test_calloc(frug_layout_elements(t.layout), sizeof *t.weights);
    frug_config_destroy(config);
    return t;
}

static void destroy(trainee *t) {
    frug_optimizer_destroy(t->optimizer);
    frug_compressor_destroy(t->compressor);
    frug_layout_destroy(t->layout);
    test_free(t->weights);
}

/* One step of a range: compress, decode, update. */
static void step(trainee *t, uint64_t number, frug_range range) {
    size_t cap = 0, len = 0;
    OK(frug_compressor_bound(t->compressor, range, &cap));
    unsigned char *frame = test_malloc(cap);
    float *grad = test_malloc(range.count * sizeof *grad);
    for (uint64_t i = 0; i < range.count; i++)
        grad[i] = sinf((float)(range.begin + i) * (1.7f + (float)number));
    OK(frug_compress(t->compressor, number, range, grad, frame, cap, &len));
    memset(grad, 0, range.count * sizeof *grad);
    OK(frug_decode_add(frug_compressor_decoder(t->compressor), range, (const void *[]){frame}, &len, 1, 1.0, grad));
    OK(frug_optimizer_step(t->optimizer, number, range, grad, 0.01, t->weights + range.begin));
    test_free(grad);
    test_free(frame);
}

static void save_and_restore(trainee *t, const char *method, const char *optimizer) {
    trainee fresh = create(method, optimizer, true);
    size_t residual = frug_compressor_state_size(t->compressor), states = frug_optimizer_state_size(t->optimizer), len;
    unsigned char *a = test_malloc(residual), *b = test_malloc(states);
    OK(frug_compressor_save(t->compressor, a, residual, &len));
    OK(frug_optimizer_save(t->optimizer, b, states, &len));
    OK(frug_compressor_restore(fresh.compressor, a, residual));
    OK(frug_optimizer_restore(fresh.optimizer, b, states));
    memcpy(fresh.weights, t->weights, frug_layout_elements(t->layout) * sizeof *t->weights);
    test_free(a);
    test_free(b);
    destroy(t);
    *t = fresh;
}

static void assert_same_state(trainee *whole, trainee *stage, frug_range range) {
    float *a = test_malloc(range.count * sizeof *a), *b = test_malloc(range.count * sizeof *b);
    assert_memory_equal(whole->weights + range.begin, stage->weights + range.begin, range.count * sizeof *a);
    OK(frug_compressor_get_residual(whole->compressor, range, a));
    OK(frug_compressor_get_residual(stage->compressor, range, b));
    assert_memory_equal(a, b, range.count * sizeof *a);
    OK(frug_compressor_set_residual(whole->compressor, range, whole->weights + range.begin));
    OK(frug_compressor_set_residual(stage->compressor, range, whole->weights + range.begin));
    OK(frug_compressor_get_residual(whole->compressor, range, a));
    OK(frug_compressor_get_residual(stage->compressor, range, b));
    assert_memory_equal(a, b, range.count * sizeof *a);
    test_free(a);
    test_free(b);
}

/* Rounding by block, tensor and selection group; states by block, by tensor, by unit; warm-up. */
static void a_stage_has_the_bits_of_the_whole_model(void **state) {
    (void)state;
    static const char *const methods[] = {"frugrad",
                                          "residual=int4,density=0.03",
                                          "residual=bf16,vectors=sparse,min_size=0",
                                          "feedback=dgc,residual=int8,segment=tensor,density=0.02",
                                          "segment=tensor,residual=int8,density=0.1,warmup=2",
                                          "qsgd",
                                          "randomk",
                                          "hybrid,frequency=on",
                                          "learned,unit=run:64",
                                          "threshold",
                                          "heads",
                                          "rule=probabilistic,segment=tensor,density=0.05,feedback=none"};
    static const char *const optimizers[] = {
        "sgd:momentum=0.9",       "adamw",     "adam-merged:state=int8",
        "adam-merged:state=bf16", "microadam", "muon-merged:state=int8,momentum=0.5"};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
        for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
            trainee whole = create(methods[m], optimizers[o], false), stage = create(methods[m], optimizers[o], true);
            const frug_range first = range_of(whole.layout, 3, 5), last = range_of(whole.layout, 7, 7);
            for (uint64_t i = 0; i < STEPS; i++) {
                step(&whole, i, first);
                step(&whole, i, last);
                step(&stage, i, first);
                step(&stage, i, last);
                if (i == 2)
                    save_and_restore(&stage, methods[m], optimizers[o]);
            }
            assert_same_state(&whole, &stage, first);
            assert_same_state(&whole, &stage, last);
            destroy(&whole);
            destroy(&stage);
        }
}

/* 13,064 of 71,564 elements are there: less than a fifth. */
static void states_are_those_of_the_stage(void **state) {
    (void)state;
    static const char *const methods[] = {"frugrad", "topk", "dgc", "segment=tensor,residual=int8", "learned"};
    static const char *const optimizers[] = {"adamw", "adam-merged:state=int8", "muon:momentum=0.9", "microadam"};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
        for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
            trainee whole = create(methods[m], optimizers[o], false), stage = create(methods[m], optimizers[o], true);
            assert_true(4 * frug_compressor_state_size(stage.compressor) <
                        frug_compressor_state_size(whole.compressor));
            assert_true(4 * frug_optimizer_state_size(stage.optimizer) < frug_optimizer_state_size(whole.optimizer));
            destroy(&whole);
            destroy(&stage);
        }
}

static void absent_tensors_are_in_no_range(void **state) {
    (void)state;
    trainee stage = create("frugrad", "adamw", true);
    float *x = stage.weights;
    unsigned char frame[64];
    size_t len;
    for (size_t i = 0; i < TENSORS; i++) {
        const frug_range own = range_of(stage.layout, i, i);
        const int wanted = tensors[i].absent ? FRUG_ERR_ARG : FRUG_OK;
        assert_int_equal(frug_optimizer_step(stage.optimizer, 0, own, x, 0, x), wanted);
        assert_int_equal(frug_compressor_get_residual(stage.compressor, own, x), wanted);
        assert_int_equal(frug_compressor_bound(stage.compressor, own, &len), wanted);
        assert_int_equal(frug_compress(stage.compressor, 0, own, x, frame, sizeof frame, &len),
                         wanted ? wanted : FRUG_ERR_SHORT_BUFFER);
    }
    assert_int_equal(frug_compressor_bound(stage.compressor, range_of(stage.layout, 5, 7), &len), FRUG_ERR_ARG);
    assert_non_null(strstr(frug_last_error(), "absent"));
    OK(frug_compressor_bound(stage.compressor, (frug_range){0, 0}, &len));
    destroy(&stage);
}

static void states_of_other_stages_are_refused(void **state) {
    (void)state;
    trainee whole = create("frugrad", "adamw", false), stage = create("frugrad", "adamw", true);
    const size_t residual = frug_compressor_state_size(whole.compressor),
                 states = frug_optimizer_state_size(whole.optimizer);
    unsigned char *saved = test_malloc(residual > states ? residual : states);
    size_t len;
    assert_true(frug_layout_hash(whole.layout) != frug_layout_hash(stage.layout));
    OK(frug_compressor_save(whole.compressor, saved, residual, &len));
    assert_int_not_equal(frug_compressor_restore(stage.compressor, saved, residual), FRUG_OK);
    OK(frug_optimizer_save(whole.optimizer, saved, states, &len));
    assert_int_not_equal(frug_optimizer_restore(stage.optimizer, saved, states), FRUG_OK);
    test_free(saved);
    destroy(&whole);
    destroy(&stage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_has_the_bits_of_the_whole_model),
        cmocka_unit_test(states_are_those_of_the_stage),
        cmocka_unit_test(absent_tensors_are_in_no_range),
        cmocka_unit_test(states_of_other_stages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

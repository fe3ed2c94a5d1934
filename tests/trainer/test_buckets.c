/*
 * test_buckets.c - buckets of gradients: every entry is sent exactly once, tiles end on blocks, memory is bounded, and
 * the optimizer gets the gradient with every option. The model is one fake operation per parameter, whose gradient is a
 * formula.
 */
#include "support/assertions.h"

#include "trainer/exchange/buckets.h"
#include "trainer/base/counted_alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float formula(uint64_t i) {
    return (float)((double)(i * 2654435761u % 1000u) / 500.0 - 1.0);
}

static void fake_backward(fgt_graph *g, fgt_node *node) {
    for (int k = 0; k < 3; k++)
        for (size_t row = 0; node->param[k] && row < node->param[k]->rows; row += node->param[k]->tile) {
            const fgt_param *p = node->param[k];
            float *dw = g->sink->open(g->sink, p, row);
            for (size_t i = 0; i < fgt_tile_rows(p, row) * p->cols; i++)
                dw[i] = formula(p->tensor.offset + row * p->cols + i);
            g->sink->close(g->sink, p, row);
        }
}

static const fgt_op fake = {.name = "fake", .backward = fake_backward};

static fgt_param *add(fgt_graph *g, uint64_t rows, uint64_t cols) {
    char name[32];
    uint32_t one = 1;
    snprintf(name, sizeof name, "p%u", g->nodes);
    fgt_node *node = fgt_node_add(g, &fake, NULL, 1, &one, 0);
    uint64_t shape[2] = {rows, cols};
    return node->param[0] = fgt_param_add(g, name, FRUG_ROLE_LINEAR, cols > 1 ? 2 : 1, shape, FGT_INIT_NORMAL, 1.0f);
}

/* Small parameters, one that is split, one whose rows end on a block only every 256. */
static fgt_graph *make_graph(void) {
    fgt_graph *g = fgt_graph_create(1, 1);
    add(g, 10, 7);
    add(g, 33, 1);
    add(g, 600, 257);
    add(g, 64, 64);
    add(g, 64, 1);
    add(g, 300, 768);
    add(g, 5, 5);
    assert_int_equal(fgt_graph_finish(g), 0);
    fgt_graph_init(g, 7);
    return g;
}

typedef struct bucket_fixture {
    fgt_graph *g;
    frug_layout *layout;
    frug_config *config;
    frug_comm *comm;
    frug_reducer *reducer;
    frug_optimizer *optimizer;
    fgt_buckets *buckets;
    float *before;
} bucket_fixture;

static bucket_fixture fixture_create_for(fgt_graph *g, const char *method, const char *optimizer,
                                         fgt_buckets_options options) {
    bucket_fixture r = {.g = g};
    assert_int_equal(fgt_graph_layout(r.g, &r.layout), 0);
    assert_int_equal(frug_comm_self(&r.comm), FRUG_OK);
    if (method) {
        assert_int_equal(frug_config_create(method, &r.config), FRUG_OK);
        assert_int_equal(frug_reducer_create(r.config, r.layout, NULL, r.comm, &r.reducer), FRUG_OK);
    }
    frug_compressor *c = r.reducer ? frug_reducer_compressor(r.reducer) : NULL;
    assert_int_equal(frug_optimizer_create(optimizer, r.layout, c, &r.optimizer), FRUG_OK);
    options.graph = r.g;
    options.reducer = r.reducer;
    options.optimizer = r.optimizer;
    options.workers = 1;
    assert_int_equal(fgt_buckets_create(&options, &r.buckets), 0);
    r.before = malloc(r.g->elements * sizeof(float));
    memcpy(r.before, r.g->weights, r.g->elements * sizeof(float));
    return r;
}

static bucket_fixture fixture_create(const char *method, const char *optimizer, fgt_buckets_options options) {
    return fixture_create_for(make_graph(), method, optimizer, options);
}

static void fixture_destroy(bucket_fixture *r) {
    fgt_buckets_destroy(r->buckets);
    frug_optimizer_destroy(r->optimizer);
    frug_reducer_destroy(r->reducer);
    frug_config_destroy(r->config);
    frug_comm_destroy(r->comm);
    frug_layout_destroy(r->layout);
    fgt_graph_destroy(r->g);
    free(r->before);
}

static void step(bucket_fixture *r, float factor, double late_clip) {
    fgt_buckets_begin(r->buckets, 0, 0.5, factor, false);
    fgt_graph_backward(r->g, fgt_buckets_sink(r->buckets));
    assert_int_equal(fgt_buckets_end(r->buckets, late_clip), FRUG_OK);
}

static double true_norm2(const bucket_fixture *r) {
    double sum = 0;
    for (const fgt_param *p = r->g->params; p; p = p->next)
        for (size_t i = 0; i < p->rows * p->cols; i++)
            sum += (double)formula(p->tensor.offset + i) * (double)formula(p->tensor.offset + i);
    return sum;
}

/* w - rate * factor * g, for every weight; padding is zero and stays zero. */
static void check_weights(const bucket_fixture *r, float factor) {
    uint64_t at = 0;
    for (const fgt_param *p = r->g->params; p; p = p->next) {
        for (; at < p->tensor.offset; at++)
            assert_true(r->g->weights[at] == 0);
        for (size_t i = 0; i < p->rows * p->cols; i++, at++) {
            float options = r->before[at] - 0.5f * (factor * formula(at));
            assert_true(fabsf(r->g->weights[at] - options) <= 1e-6f);
        }
    }
}

/* The full gradient has 389,000 entries; method, memory and overlap must not change the result. */
static void every_option_gives_the_same_gradient(void **state) {
    (void)state;
    const struct {
        const char *method;
        fgt_buckets_options options;
    } variants[] = {
        {NULL, {.bytes = 64 << 10}},
        {"dense", {.bytes = 64 << 10, .full_gradient = true, .overlap = true}},
        {"dense", {.bytes = 64 << 10, .full_gradient = true}},
        {"dense", {.bytes = 64 << 10, .full_gradient = true, .deferred_update = true, .overlap = true}},
        {"schedule=constant:0,value=f32,residual=f32", {.bytes = 64 << 10, .overlap = true}},
        {"schedule=constant:0,value=f32,residual=f32", {.bytes = 1 << 20}},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        bucket_fixture r = fixture_create(variants[i].method, "sgd:momentum=0", variants[i].options);
        step(&r, 0.25f, 0);
        check_weights(&r, 0.25f);
        if (!variants[i].options.deferred_update)
            assert_true(fabs(fgt_buckets_norm2(r.buckets) - true_norm2(&r)) < 1e-6 * true_norm2(&r));
        fixture_destroy(&r);
    }
}

static void tiles_end_on_blocks_and_memory_is_bounded(void **state) {
    (void)state;
    uint64_t held = fgt_counted_bytes(FGT_USE_GRADIENTS);
    bucket_fixture r = fixture_create("frugrad", "merged", (fgt_buckets_options){.bytes = 64 << 10, .overlap = true});
    uint64_t longest = 0;
    for (const fgt_param *p = r.g->params; p; p = p->next) {
        if (p->tile < p->rows)
            assert_int_equal(p->tile * p->cols % 256, 0);
        uint64_t size = (uint64_t)(p->tile < p->rows ? p->tile : p->rows) * p->cols;
        longest = longest > size ? longest : size;
    }
    /* 256 rows of 257 cannot be split further; two such buckets exist at a time. */
    assert_int_equal(longest, 256 * 257);
    assert_true(fgt_counted_bytes(FGT_USE_GRADIENTS) - held <= 2 * (4 * longest + 64) + 128);
    assert_true(fgt_buckets_count(r.buckets) > 15);
    step(&r, 1, 0);
    fixture_destroy(&r);
    assert_int_equal(fgt_counted_bytes(FGT_USE_GRADIENTS), held);
}

/* The bucket of both vectors opens before that of the second matrix and closes after it. */
static void an_open_bucket_of_vectors_needs_no_slot_of_a_matrix(void **state) {
    (void)state;
    const uint64_t side = 256, matrix = side * side;
    fgt_graph *g = fgt_graph_create(1, 1);
    add(g, side, side);
    fgt_param *second = add(g, side, side), *bias = add(g, side, 1);
    add(g, side, 1);
    for (fgt_node *node = g->last; node; node = node->previous) {
        node->param[1] = node->param[0] == second ? bias : NULL;
        node->param[0] = node->param[0] == bias ? NULL : node->param[0];
    }
    assert_int_equal(fgt_graph_finish(g), 0);
    fgt_graph_init(g, 7);
    uint64_t held = fgt_counted_bytes(FGT_USE_GRADIENTS);
    bucket_fixture r = fixture_create_for(g, "topk:density=1", "sgd:momentum=0",
                                          (fgt_buckets_options){.bytes = 64 << 10, .overlap = true});
    assert_int_equal(fgt_buckets_count(r.buckets), 3);
    uint64_t slots = fgt_counted_bytes(FGT_USE_GRADIENTS) - held;
    assert_true(slots >= 4 * (2 * matrix + 2 * side) && slots <= 4 * (2 * matrix + 2 * side) + 256);
    for (int i = 0; i < 3; i++)
        step(&r, 0.25f, 0);
    fixture_destroy(&r);
}

static void methods_that_need_whole_tensors_get_no_tiles(void **state) {
    (void)state;
    bucket_fixture r =
        fixture_create("topk:density=1", "sgd:momentum=0", (fgt_buckets_options){.bytes = 64 << 10, .overlap = true});
    for (const fgt_param *p = r.g->params; p; p = p->next)
        assert_int_equal(p->tile, p->rows);
    step(&r, 1, 0);
    check_weights(&r, 1);
    fixture_destroy(&r);
}

/* Its target is not split, another tensor still is. */
static void optimizers_that_need_whole_tensors_get_no_tiles(void **state) {
    (void)state;
    bucket_fixture r =
        fixture_create(NULL, "table:s=64,c=8,targets=p5,others=adamw", (fgt_buckets_options){.bytes = 64 << 10});
    size_t number = 0, cut = 0;
    for (const fgt_param *p = r.g->params; p; p = p->next, number++) {
        cut += p->tile < p->rows;
        assert_int_equal(frug_optimizer_can_split(r.optimizer, number), strcmp(p->tensor.name, "p5") != 0);
        if (strcmp(p->tensor.name, "p5") == 0)
            assert_int_equal(p->tile, p->rows);
    }
    assert_int_equal(cut, 1);
    step(&r, 1, 0);
    fixture_destroy(&r);
}

static void deferred_clip_is_exact(void **state) {
    (void)state;
    bucket_fixture r =
        fixture_create("dense", "sgd:momentum=0",
                       (fgt_buckets_options){.full_gradient = true, .deferred_update = true, .overlap = true});
    double norm = sqrt(true_norm2(&r));
    step(&r, 1, norm / 4);
    assert_true(fabs(fgt_buckets_clip_factor(r.buckets) - 0.25) < 1e-9);
    check_weights(&r, 0.25f);
    fixture_destroy(&r);
}

static void measuring_does_not_change_weights(void **state) {
    (void)state;
    bucket_fixture r = fixture_create("frugrad", "merged", (fgt_buckets_options){.bytes = 64 << 10, .overlap = true});
    fgt_buckets_begin(r.buckets, 0, 0.5, 1, true);
    fgt_graph_backward(r.g, fgt_buckets_sink(r.buckets));
    assert_int_equal(fgt_buckets_end(r.buckets, 0), FRUG_OK);
    assert_true(fabs(fgt_buckets_norm2(r.buckets) - true_norm2(&r)) < 1e-6 * true_norm2(&r));
    assert_memory_equal(r.before, r.g->weights, r.g->elements * sizeof(float));
    fixture_destroy(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_gives_the_same_gradient),
        cmocka_unit_test(tiles_end_on_blocks_and_memory_is_bounded),
        cmocka_unit_test(an_open_bucket_of_vectors_needs_no_slot_of_a_matrix),
        cmocka_unit_test(methods_that_need_whole_tensors_get_no_tiles),
        cmocka_unit_test(optimizers_that_need_whole_tensors_get_no_tiles),
        cmocka_unit_test(deferred_clip_is_exact),
        cmocka_unit_test(measuring_does_not_change_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_activations.c - graphs that keep fewer values, and micro-batches: recomputing in backward gives the same bits
 * with less memory, accumulated micro-batches give the same gradient up to rounding, and sizes are known before
 * building.
 */
#include "trainer/data/data_set.h"
#include "trainer/checkpoint_helpers.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/model/model.h"
#include "trainer/nn/graph.h"
#include "io/error.h"

#include <math.h>

enum { BATCH = 4 };

static const char *const models[] = {
    "gpt2:layers=3,width=16,heads=2,length=12,dropout=0.2,vocab=50",
    "bert-mini:layers=3,width=16,heads=2,length=9,dropout=0.2,vocab=50",
    "bert-mlm-mini:layers=2,width=16,heads=2,length=9,dropout=0.2,vocab=50",
    "resnet20",
    "resnet18",
    "resnet50",
};
enum { MODELS = sizeof models / sizeof *models, SMALL = 4 }; /* the last ones take long */

/** A model with a batch of builtin data. */
typedef struct model_fixture {
    fgt_model about;
    fgt_data *data;
    fgt_batch batch;
    fgt_graph *graph;
} model_fixture;

static model_fixture fixture_create(const char *text, fgt_keep keep) {
    model_fixture r = {0};
    assert_int_equal(fgt_model_parse(text, &r.about), FGIO_EXIT_OK);
    fgt_data_options want = {.task = r.about.task,
                             .path = "builtin",
                             .length = r.about.length,
                             .channels = 3,
                             .height = 32, /* the minimum for all of them */
                             .width = 32,
                             .classes = 10,
                             .vocab = r.about.vocab,
                             .samples = 60,
                             .seed = 1};
    assert_int_equal(fgt_data_open(&want, &r.data), FGIO_EXIT_OK);
    const fgt_data_info *info = fgt_data_get_info(r.data);
    assert_int_equal(fgt_batch_create(info, BATCH, &r.batch), FGIO_EXIT_OK);
    fgt_build_options how = {.batch = BATCH, .threads = 1, .keep = keep};
    assert_int_equal(fgt_model_build_with(&r.about, info, &how, &r.graph), FGIO_EXIT_OK);
    r.graph->seed = 1;
    fgt_data_batch(r.data, FGT_TRAIN, 0, 0, BATCH, &r.batch);
    return r;
}

static model_fixture create_initialized(const char *text, fgt_keep keep) {
    model_fixture r = fixture_create(text, keep);
    fgt_graph_init(r.graph, 1);
    return r;
}

static void fixture_destroy(model_fixture *r) {
    fgt_graph_destroy(r->graph);
    fgt_batch_destroy(&r->batch);
    fgt_data_close(r->data);
}

/** A sink that accumulates gradients. */
typedef struct gradient_sink {
    fgt_sink sink;
    float *grad, *tile;
} gradient_sink;

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    return ((gradient_sink *)sink)->tile + p->tensor.offset + first * p->cols;
}

static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    gradient_sink *b = (gradient_sink *)sink;
    for (size_t i = 0, at = p->tensor.offset + first * p->cols; i < fgt_tile_rows(p, first) * p->cols; i++)
        b->grad[at + i] += b->tile[at + i];
}

static gradient_sink sink_create(const fgt_graph *g) {
    gradient_sink b = {{open_tile, close_tile}, calloc(g->elements, sizeof(float)), calloc(g->elements, sizeof(float))};
    assert_true(b.grad && b.tile);
    return b;
}

static void sink_destroy(gradient_sink *b) {
    free(b->grad);
    free(b->tile);
}

static void same_buffers(const fgt_graph *a, const fgt_graph *b) {
    const fgt_buffer *y = b->buffers;
    for (const fgt_buffer *x = a->buffers; x; x = x->next, y = y->next)
        assert_memory_equal(x->data, y->data, x->count * sizeof *x->data);
}

/* Two passes each: the second begins with the memory contents of the first. */
static void recomputed_forward_gives_the_same_bits(void **state) {
    (void)state;
    for (size_t m = 0; m < SMALL; m++) {
        model_fixture all = create_initialized(models[m], FGT_KEEP_ALL),
                      few = create_initialized(models[m], FGT_KEEP_BLOCKS);
        gradient_sink a = sink_create(all.graph), b = sink_create(few.graph);
        for (uint64_t step = 0; step < 2; step++) {
            all.graph->step = few.graph->step = step;
            fgt_graph_forward(all.graph, &all.batch, true);
            fgt_graph_backward(all.graph, &a.sink);
            fgt_graph_forward(few.graph, &few.batch, true);
            fgt_graph_backward(few.graph, &b.sink);
        }
        assert_true(all.graph->blocks > 1);
        assert_true(all.graph->score.loss == few.graph->score.loss);
        assert_memory_equal(a.grad, b.grad, all.graph->elements * sizeof *a.grad);
        same_buffers(all.graph, few.graph); /* running statistics are updated once per pass */
        sink_destroy(&a);
        sink_destroy(&b);
        fixture_destroy(&all);
        fixture_destroy(&few);
    }
}

static void forward_only_gives_the_same_scores(void **state) {
    (void)state;
    for (size_t m = 0; m < SMALL; m++) {
        model_fixture all = create_initialized(models[m], FGT_KEEP_ALL),
                      none = create_initialized(models[m], FGT_KEEP_NONE);
        const fgt_value *x = all.graph->last->in[0], *y = none.graph->last->in[0];
        fgt_graph_forward(all.graph, &all.batch, false);
        fgt_graph_forward(none.graph, &none.batch, false);
        assert_memory_equal(x->data, y->data, BATCH * x->sample_size * sizeof *x->data);
        fixture_destroy(&all);
        fixture_destroy(&none);
    }
}

/* An operation in place would be applied twice to a value that is not recomputed with the block. */
static void blocks_change_only_what_they_make(const fgt_graph *g) {
    for (const fgt_node *node = g->first; node; node = node->next)
        for (const fgt_value *v = node->out->alias; v; v = v->alias)
            assert_int_equal(v->block, node->block);
}

static void sizes_are_known_before_building(void **state) {
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        uint64_t before[3];
        for (int keep = FGT_KEEP_ALL; keep <= FGT_KEEP_NONE; keep++) {
            uint64_t none = fgt_counted_bytes(FGT_USE_ACTIVATIONS), none_too = fgt_counted_bytes(FGT_USE_WEIGHTS);
            model_fixture r = fixture_create(models[m], (fgt_keep)keep);
            uint64_t held = fgt_counted_bytes(FGT_USE_ACTIVATIONS) - none,
                     weights = fgt_counted_bytes(FGT_USE_WEIGHTS) - none_too;
            fgt_model_size size;
            fgt_build_options how = {.batch = BATCH, .threads = 1, .keep = (fgt_keep)keep};
            assert_int_equal(fgt_model_measure(&r.about, fgt_data_get_info(r.data), &how, &size), FGIO_EXIT_OK);
            assert_int_equal(size.blocks, r.graph->blocks);
            assert_int_equal(size.elements, r.graph->elements);
            assert_true(size.activations <= held && size.activations + 1024 >= held); /* lines in front of blocks */
            assert_true(size.weights <= weights && size.weights + 1024 >= weights);
            assert_int_equal(fgt_counted_bytes(FGT_USE_ACTIVATIONS) - none, held); /* measuring keeps nothing */
            before[keep] = size.activations;
            blocks_change_only_what_they_make(r.graph);
            fixture_destroy(&r);
        }
        assert_true(before[FGT_KEEP_BLOCKS] < before[FGT_KEEP_ALL]);
        assert_true(before[FGT_KEEP_NONE] < before[FGT_KEEP_BLOCKS]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed_forward_gives_the_same_bits),
        cmocka_unit_test(forward_only_gives_the_same_scores),
        cmocka_unit_test(sizes_are_known_before_building),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

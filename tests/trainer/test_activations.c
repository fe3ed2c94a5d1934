/*
 * test_activations.c - graphs that keep fewer values than all, and batches that come in pieces: the same bits from less
 * memory where forward runs again, the same gradient up to rounding where micro-batches are added up, and sizes that
 * are known before anything is built.
 */
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
typedef struct rig {
    frugi_model about;
    frugi_data *data;
    frugi_batch batch;
    frugi_graph *graph;
} rig;

static rig make_rig(const char *text, frugi_keep keep) {
    rig r = {0};
    assert_int_equal(frugi_model_parse(text, &r.about), FRUGI_EXIT_OK);
    frugi_data_want want = {.task = r.about.task,
                            .path = "builtin",
                            .length = r.about.length,
                            .channels = 3,
                            .height = 32, /* the least that all of them take */
                            .width = 32,
                            .classes = 10,
                            .vocab = r.about.vocab,
                            .samples = 60,
                            .seed = 1};
    assert_int_equal(frugi_data_open(&want, &r.data), FRUGI_EXIT_OK);
    const frugi_data_info *info = frugi_data_about(r.data);
    assert_int_equal(frugi_batch_create(info, BATCH, &r.batch), FRUGI_EXIT_OK);
    frugi_build how = {BATCH, 1, keep};
    assert_int_equal(frugi_model_build_as(&r.about, info, &how, &r.graph), FRUGI_EXIT_OK);
    r.graph->seed = 1;
    frugi_data_batch(r.data, FRUGI_TRAIN, 0, 0, BATCH, &r.batch);
    return r;
}

static rig make_started(const char *text, frugi_keep keep) {
    rig r = make_rig(text, keep);
    frugi_graph_init(r.graph, 1);
    return r;
}

static void end_rig(rig *r) {
    frugi_graph_destroy(r->graph);
    frugi_batch_destroy(&r->batch);
    frugi_data_close(r->data);
}

/** A sink that adds to what it has. */
typedef struct basket {
    frugi_sink sink;
    float *grad, *tile;
} basket;

static float *open_tile(frugi_sink *sink, const frugi_param *p, size_t first) {
    return ((basket *)sink)->tile + p->tensor.offset + first * p->cols;
}

static void close_tile(frugi_sink *sink, const frugi_param *p, size_t first) {
    basket *b = (basket *)sink;
    for (size_t i = 0, at = p->tensor.offset + first * p->cols; i < frugi_tile_rows(p, first) * p->cols; i++)
        b->grad[at + i] += b->tile[at + i];
}

static basket make_basket(const frugi_graph *g) {
    basket b = {{open_tile, close_tile}, calloc(g->elements, sizeof(float)), calloc(g->elements, sizeof(float))};
    assert_true(b.grad && b.tile);
    return b;
}

static void end_basket(basket *b) {
    free(b->grad);
    free(b->tile);
}

static void same_buffers(const frugi_graph *a, const frugi_graph *b) {
    const frugi_buffer *y = b->buffers;
    for (const frugi_buffer *x = a->buffers; x; x = x->next, y = y->next)
        assert_memory_equal(x->data, y->data, x->count * sizeof *x->data);
}

/* Two passes each: the second begins with memory that the first has left behind. */
static void forward_again_gives_the_same_bits(void **state) {
    (void)state;
    for (size_t m = 0; m < SMALL; m++) {
        rig all = make_started(models[m], FRUGI_KEEP_ALL), few = make_started(models[m], FRUGI_KEEP_BLOCKS);
        basket a = make_basket(all.graph), b = make_basket(few.graph);
        for (uint64_t step = 0; step < 2; step++) {
            all.graph->step = few.graph->step = step;
            frugi_graph_forward(all.graph, &all.batch, true);
            frugi_graph_backward(all.graph, &a.sink);
            frugi_graph_forward(few.graph, &few.batch, true);
            frugi_graph_backward(few.graph, &b.sink);
        }
        assert_true(all.graph->blocks > 1);
        assert_true(all.graph->score.loss == few.graph->score.loss);
        assert_memory_equal(a.grad, b.grad, all.graph->elements * sizeof *a.grad);
        same_buffers(all.graph, few.graph); /* running statistics moved once a pass */
        end_basket(&a);
        end_basket(&b);
        end_rig(&all);
        end_rig(&few);
    }
}

static void forward_alone_gives_the_same_scores(void **state) {
    (void)state;
    for (size_t m = 0; m < SMALL; m++) {
        rig all = make_started(models[m], FRUGI_KEEP_ALL), none = make_started(models[m], FRUGI_KEEP_NONE);
        const frugi_value *x = all.graph->last->in[0], *y = none.graph->last->in[0];
        frugi_graph_forward(all.graph, &all.batch, false);
        frugi_graph_forward(none.graph, &none.batch, false);
        assert_memory_equal(x->data, y->data, BATCH * x->each * sizeof *x->data);
        end_rig(&all);
        end_rig(&none);
    }
}

/* An operation in place would be applied twice to a value that its block does not make again. */
static void blocks_change_only_what_they_make(const frugi_graph *g) {
    for (const frugi_node *node = g->first; node; node = node->next)
        for (const frugi_value *v = node->out->alias; v; v = v->alias)
            assert_int_equal(v->block, node->block);
}

static void sizes_are_known_before(void **state) {
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        uint64_t before[3];
        for (int keep = FRUGI_KEEP_ALL; keep <= FRUGI_KEEP_NONE; keep++) {
            uint64_t none = frugi_held(FRUGI_USE_ACTIVATIONS), none_too = frugi_held(FRUGI_USE_WEIGHTS);
            rig r = make_rig(models[m], (frugi_keep)keep);
            uint64_t held = frugi_held(FRUGI_USE_ACTIVATIONS) - none,
                     weights = frugi_held(FRUGI_USE_WEIGHTS) - none_too;
            frugi_model_size size;
            frugi_build how = {BATCH, 1, (frugi_keep)keep};
            assert_int_equal(frugi_model_measure(&r.about, frugi_data_about(r.data), &how, &size), FRUGI_EXIT_OK);
            assert_int_equal(size.blocks, r.graph->blocks);
            assert_int_equal(size.elements, r.graph->elements);
            assert_true(size.activations <= held && size.activations + 1024 >= held); /* lines in front of blocks */
            assert_true(size.weights <= weights && size.weights + 1024 >= weights);
            assert_int_equal(frugi_held(FRUGI_USE_ACTIVATIONS) - none, held); /* measuring keeps nothing */
            before[keep] = size.activations;
            blocks_change_only_what_they_make(r.graph);
            end_rig(&r);
        }
        assert_true(before[FRUGI_KEEP_BLOCKS] < before[FRUGI_KEEP_ALL]);
        assert_true(before[FRUGI_KEEP_NONE] < before[FRUGI_KEEP_BLOCKS]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_again_gives_the_same_bits),
        cmocka_unit_test(forward_alone_gives_the_same_scores),
        cmocka_unit_test(sizes_are_known_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

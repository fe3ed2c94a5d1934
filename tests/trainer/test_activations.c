/*
 * test_activations.c - graphs that keep fewer values than all, and batches that come in pieces: the same bits from less
 * memory where forward runs again, the same gradient up to rounding where micro-batches are added up, and sizes that
 * are known before anything is built.
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
typedef struct rig {
    fgt_model about;
    fgt_data *data;
    fgt_batch batch;
    fgt_graph *graph;
} rig;

static rig make_rig(const char *text, fgt_keep keep) {
    rig r = {0};
    assert_int_equal(fgt_model_parse(text, &r.about), FGIO_EXIT_OK);
    fgt_data_want want = {.task = r.about.task,
                          .path = "builtin",
                          .length = r.about.length,
                          .channels = 3,
                          .height = 32, /* the least that all of them take */
                          .width = 32,
                          .classes = 10,
                          .vocab = r.about.vocab,
                          .samples = 60,
                          .seed = 1};
    assert_int_equal(fgt_data_open(&want, &r.data), FGIO_EXIT_OK);
    const fgt_data_info *info = fgt_data_about(r.data);
    assert_int_equal(fgt_batch_create(info, BATCH, &r.batch), FGIO_EXIT_OK);
    fgt_build how = {BATCH, 1, keep};
    assert_int_equal(fgt_model_build_as(&r.about, info, &how, &r.graph), FGIO_EXIT_OK);
    r.graph->seed = 1;
    fgt_data_batch(r.data, FGT_TRAIN, 0, 0, BATCH, &r.batch);
    return r;
}

static rig make_started(const char *text, fgt_keep keep) {
    rig r = make_rig(text, keep);
    fgt_graph_init(r.graph, 1);
    return r;
}

static void end_rig(rig *r) {
    fgt_graph_destroy(r->graph);
    fgt_batch_destroy(&r->batch);
    fgt_data_close(r->data);
}

/** A sink that adds to what it has. */
typedef struct basket {
    fgt_sink sink;
    float *grad, *tile;
} basket;

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    return ((basket *)sink)->tile + p->tensor.offset + first * p->cols;
}

static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    basket *b = (basket *)sink;
    for (size_t i = 0, at = p->tensor.offset + first * p->cols; i < fgt_tile_rows(p, first) * p->cols; i++)
        b->grad[at + i] += b->tile[at + i];
}

static basket make_basket(const fgt_graph *g) {
    basket b = {{open_tile, close_tile}, calloc(g->elements, sizeof(float)), calloc(g->elements, sizeof(float))};
    assert_true(b.grad && b.tile);
    return b;
}

static void end_basket(basket *b) {
    free(b->grad);
    free(b->tile);
}

static void same_buffers(const fgt_graph *a, const fgt_graph *b) {
    const fgt_buffer *y = b->buffers;
    for (const fgt_buffer *x = a->buffers; x; x = x->next, y = y->next)
        assert_memory_equal(x->data, y->data, x->count * sizeof *x->data);
}

/* Two passes each: the second begins with memory that the first has left behind. */
static void forward_again_gives_the_same_bits(void **state) {
    (void)state;
    for (size_t m = 0; m < SMALL; m++) {
        rig all = make_started(models[m], FGT_KEEP_ALL), few = make_started(models[m], FGT_KEEP_BLOCKS);
        basket a = make_basket(all.graph), b = make_basket(few.graph);
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
        rig all = make_started(models[m], FGT_KEEP_ALL), none = make_started(models[m], FGT_KEEP_NONE);
        const fgt_value *x = all.graph->last->in[0], *y = none.graph->last->in[0];
        fgt_graph_forward(all.graph, &all.batch, false);
        fgt_graph_forward(none.graph, &none.batch, false);
        assert_memory_equal(x->data, y->data, BATCH * x->sample_size * sizeof *x->data);
        end_rig(&all);
        end_rig(&none);
    }
}

/* An operation in place would be applied twice to a value that its block does not make again. */
static void blocks_change_only_what_they_make(const fgt_graph *g) {
    for (const fgt_node *node = g->first; node; node = node->next)
        for (const fgt_value *v = node->out->alias; v; v = v->alias)
            assert_int_equal(v->block, node->block);
}

static void sizes_are_known_before(void **state) {
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        uint64_t before[3];
        for (int keep = FGT_KEEP_ALL; keep <= FGT_KEEP_NONE; keep++) {
            uint64_t none = fgt_counted_bytes(FGT_USE_ACTIVATIONS), none_too = fgt_counted_bytes(FGT_USE_WEIGHTS);
            rig r = make_rig(models[m], (fgt_keep)keep);
            uint64_t held = fgt_counted_bytes(FGT_USE_ACTIVATIONS) - none,
                     weights = fgt_counted_bytes(FGT_USE_WEIGHTS) - none_too;
            fgt_model_size size;
            fgt_build how = {BATCH, 1, (fgt_keep)keep};
            assert_int_equal(fgt_model_measure(&r.about, fgt_data_about(r.data), &how, &size), FGIO_EXIT_OK);
            assert_int_equal(size.blocks, r.graph->blocks);
            assert_int_equal(size.elements, r.graph->elements);
            assert_true(size.activations <= held && size.activations + 1024 >= held); /* lines in front of blocks */
            assert_true(size.weights <= weights && size.weights + 1024 >= weights);
            assert_int_equal(fgt_counted_bytes(FGT_USE_ACTIVATIONS) - none, held); /* measuring keeps nothing */
            before[keep] = size.activations;
            blocks_change_only_what_they_make(r.graph);
            end_rig(&r);
        }
        assert_true(before[FGT_KEEP_BLOCKS] < before[FGT_KEEP_ALL]);
        assert_true(before[FGT_KEEP_NONE] < before[FGT_KEEP_BLOCKS]);
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

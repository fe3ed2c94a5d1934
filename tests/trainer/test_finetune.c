/*
 * test_finetune.c - fine-tuning: frozen tensors do not change and affect no other gradient; workers that exchange
 * measurements step as the library does with their mean; resuming gives the same bits; recorded gradients are the
 * gradients.
 *
 * All jobs have seed 1 and builtin data. Everything is compared bit for bit.
 */
#include "trainer/job_helpers.h"
#include "support/thread_group.h"
#include "io/tensor_file.h"
#include "trainer/run/worker.h"

#include <math.h>

#define BERT "bert-mini:layers=2,width=32,heads=2,length=16"
#define GPT2 "gpt2-nano:layers=2,width=32,heads=2,length=16"

/* ---- a model and its gradient, without a job ---------------------------------------------------- */

typedef struct model {
    fgt_model about;
    fgt_data *data;
    fgt_batch batch;
    fgt_graph *graph;
} model;

static model open_model(const char *text) {
    model m = {0};
    assert_int_equal(fgt_model_parse(text, &m.about), FGIO_EXIT_OK);
    fgt_data_options want = {.task = m.about.task,
                             .path = "builtin",
                             .length = m.about.length,
                             .channels = m.about.channels,
                             .height = m.about.height,
                             .width = m.about.width,
                             .classes = m.about.classes,
                             .vocab = m.about.vocab,
                             .samples = 60,
                             .seed = 1};
    assert_int_equal(fgt_data_open(&want, &m.data), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(m.data), 4, &m.batch), FGIO_EXIT_OK);
    assert_int_equal(fgt_model_build(&m.about, fgt_data_get_info(m.data), 4, 1, &m.graph), FGIO_EXIT_OK);
    m.graph->seed = 1;
    fgt_graph_init(m.graph, 1);
    fgt_data_batch(m.data, FGT_TRAIN, 0, 0, 4, &m.batch);
    return m;
}

static void close_model(model *m) {
    fgt_graph_destroy(m->graph);
    fgt_batch_destroy(&m->batch);
    fgt_data_close(m->data);
}

/** A sink that stores all gradients, and counts those of frozen tensors. */
typedef struct basket {
    fgt_sink sink;
    float *grad;
    size_t tiles, frozen;
} basket;

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    basket *b = (basket *)sink;
    b->tiles++;
    b->frozen += p->frozen;
    return b->grad + p->tensor.offset + first * p->cols;
}

static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    (void)sink;
    (void)p;
    (void)first;
}

static basket gradients(model *m) {
    basket b = {.sink = {open_tile, close_tile}, .grad = calloc((size_t)m->graph->elements, sizeof(float))};
    assert_non_null(b.grad);
    fgt_graph_forward(m->graph, &m->batch, true);
    fgt_graph_backward(m->graph, &b.sink);
    return b;
}

static fgt_finetune_options tune_of(const char *kind, const char *targets, const char *head) {
    return (fgt_finetune_options){.kind = kind, .targets = targets, .head = head};
}

/* ---- freezing --------------------------------------------------------------------------------- */

/* Trainable tensors, from the last layer only up to all; all kinds of layers have frozen ones. */
static void other_gradients_are_unchanged(void **state) {
    (void)state;
    const struct {
        const char *model, *targets, *head;
        size_t moving; /* tensors */
        bool stops;    /* backward skips the first node that has a backward */
    } row[] = {
        {BERT, "qv", "auto", 8, true},
        {BERT, "qv", "none", 4, true},
        {BERT, "bert.encoder.layer.1.attention.self.key.weight", "none", 1, true},
        {BERT, "bert.embeddings.position*", "*LayerNorm.bias", 6, false},
        {BERT, "linear", "auto", 16, true},
        {GPT2, "qv", "auto", 2, true},
        {GPT2, "wte.weight", "none", 1, false},
        {GPT2, "all", "none", 10, false},
        {"resnet20", "layer2*", "*bn1.bias", 16, true},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        model all = open_model(row[i].model), some = open_model(row[i].model);
        fgt_finetune_options tune = tune_of("table", row[i].targets, row[i].head);
        char text[FGT_FINETUNE_TEXT];
        fgt_finetune_result tuning;
        assert_int_equal(fgt_finetune_plan(&tune, some.about.task, 1, some.graph, text, &tuning), FGIO_EXIT_OK);
        basket want = gradients(&all), got = gradients(&some);
        size_t moving = 0;
        for (const fgt_param *p = some.graph->params; p; p = p->next) {
            size_t bytes = p->rows * p->cols * sizeof(float);
            moving += !p->frozen;
            if (!p->frozen && memcmp(want.grad + p->tensor.offset, got.grad + p->tensor.offset, bytes) != 0)
                fail_msg("row %zu: the gradient of %s differs", i, p->tensor.name);
        }
        if (moving != row[i].moving)
            fail_msg("row %zu: %zu tensors move", i, moving);
        assert_int_equal(tuning.targets + tuning.heads, moving);
        assert_int_equal(got.tiles, moving);
        assert_int_equal(got.frozen, 0);
        assert_int_equal(some.graph->first->skip_backward, row[i].stops);
        free(want.grad);
        free(got.grad);
        close_model(&all);
        close_model(&some);
    }
}

/* ---- jobs ----------------------------------------------------------------------------------------- */

static fgt_job job_of(const char *text, uint32_t workers, const fgt_finetune_options *tune) {
    fgt_job job = small_job(text, "dense", workers);
    job.eval_batches = 1;
    job.tune = tune;
    return job;
}

/* A model trained for two steps, to start from. */
static const char *learned(const char *text) {
    fgt_job job = job_of(text, 1, NULL);
    job.steps = 2;
    job.save = path_under("learned");
    job.eval = false;
    train_job(&job, NULL);
    return checkpoint_under("learned", 2);
}

static void only_targets_and_head_are_trained(void **state) {
    (void)state;
    const char *kinds[] = {"full", "lora", "galore", "apollo", "sgc", "mesgc", "cesgc", "table"};
    char start[512];
    snprintf(start, sizeof start, "%s", learned(BERT));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        fgt_finetune_options tune = tune_of(kinds[k], "qv", "auto");
        tune.states = k == 0 ? 0 : 2000;
        fgt_job job = job_of(BERT, 2, &tune);
        job.weights = start;
        job.save = path_under(kinds[k]);
        fgt_report report = train_job(&job, NULL);
        model before = open_model(BERT), after = open_model(BERT);
        assert_int_equal(fgt_weights_load(start, before.graph, NULL), FGIO_EXIT_OK);
        assert_int_equal(fgt_weights_load(checkpoint_under(kinds[k], 6), after.graph, NULL), FGIO_EXIT_OK);
        char text[FGT_FINETUNE_TEXT];
        fgt_finetune_result tuning;
        assert_int_equal(fgt_finetune_plan(&tune, after.about.task, 1, after.graph, text, &tuning), FGIO_EXIT_OK);
        const fgt_param *old = before.graph->params;
        for (const fgt_param *p = after.graph->params; p; p = p->next, old = old->next)
            if ((memcmp(p->w, old->w, p->rows * p->cols * sizeof(float)) == 0) != p->frozen)
                fail_msg("%s: %s %s", kinds[k], p->tensor.name, p->frozen ? "moved" : "stands still");
        assert_int_equal(report.tuning.targets, 4);
        assert_int_equal(report.tuning.head_states, 2 * report.tuning.head_params);
        if (k == 0)
            assert_int_equal(report.tuning.states, 2 * report.tuning.target_params);
        else
            assert_in_range(report.tuning.states, 1000, 2000);
        bool measures = strstr(kinds[k], "sgc") != NULL;
        if (measures != (report.bytes_sent < report.bytes_dense))
            fail_msg("%s sends %" PRIu64 " of %" PRIu64, kinds[k], report.bytes_sent, report.bytes_dense);
        assert_true(isfinite(report.before.loss) && isfinite(report.quality.loss));
        close_model(&before);
        close_model(&after);
    }
}

/* A basis is renewed at steps 0, 4 and 8; the interruption is between two. Clipping uses earlier norms, so it has a
 * state too. */
static void resume_gives_the_same_bits(void **state) {
    (void)state;
    const char *kinds[] = {"cesgc", "table", "lora"};
    char start[512];
    snprintf(start, sizeof start, "%s", learned(BERT));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        fgt_finetune_options tune = tune_of(kinds[k], "qv", "auto");
        tune.states = 2000;
        tune.refresh = k == 0 ? 4 : 0;
        char name[64];
        fgt_job job = job_of(BERT, 2, &tune);
        job.steps = 10;
        job.clip = 0.5;
        job.weights = start;
        job.save_every = 6;
        snprintf(name, sizeof name, "whole-%s", kinds[k]);
        job.save = path_under(name);
        train_job(&job, NULL);
        char from[512], end[512];
        snprintf(from, sizeof from, "%s", checkpoint_under(name, 6));
        snprintf(end, sizeof end, "%s", checkpoint_under(name, 10));
        job.weights = NULL;
        job.resume = from;
        job.threads = 2; /* which may change */
        snprintf(name, sizeof name, "broken-%s", kinds[k]);
        job.save = path_under(name);
        train_job(&job, NULL);
        same_files(end, checkpoint_under(name, 10), "resumed");
    }
}

/* ---- measured exchange ------------------------------------------------------------------------------ */

#define STEPS  5
#define OPTION "cesgc:s=16,c=2,rank=4,refresh=3,targets=w*,others=adamw"

/** Two targets with a frozen tensor between, and a head; gradients are formulas of worker and step. */
typedef struct scene {
    fgt_graph *graph[2];
    uint64_t handed[2];
} scene;

static float formula_value(int worker, uint64_t step, uint64_t i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ (step + 1) * 0xbf58476d1ce4e5b9u ^ (uint64_t)(worker + 1) << 40;
    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return (float)((double)(x >> 40) / (double)(1 << 23) - 1.0);
}

static fgt_graph *scene_graph(void) {
    fgt_graph *g = fgt_graph_create(1, 1);
    if (!g)
        return NULL;
    fgt_param_add(g, "w0", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){32, 48}, FGT_INIT_NORMAL, 1);
    fgt_param_add(g, "still", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){10, 20}, FGT_INIT_NORMAL, 1)->frozen = true;
    fgt_param_add(g, "w1", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){64, 20}, FGT_INIT_NORMAL, 1);
    fgt_param_add(g, "head", FRUG_ROLE_BIAS, 1, (const uint64_t[]){33}, FGT_INIT_NORMAL, 1)->head = true;
    static const uint32_t one = 1;
    static const fgt_op nothing = {.name = "nothing"};
    for (fgt_param *p = g->params; p; p = p->next)
        fgt_node_add(g, &nothing, NULL, 1, &one, 0)->param[0] = p;
    if (fgt_graph_finish(g) != FGIO_EXIT_OK)
        return NULL;
    fgt_graph_init(g, 3);
    return g;
}

static void fill(fgt_buckets *b, const fgt_graph *g, int worker, uint64_t step) {
    fgt_sink *sink = fgt_buckets_sink(b);
    for (const fgt_node *node = g->last; node; node = node->previous) {
        const fgt_param *p = node->param[0];
        for (size_t first = 0; !p->frozen && first < p->rows; first += p->tile) {
            float *tile = sink->open(sink, p, first);
            for (size_t i = 0; i < fgt_tile_rows(p, first) * p->cols; i++)
                tile[i] = formula_value(worker, step, p->tensor.offset + first * p->cols + i);
            sink->close(sink, p, first);
        }
    }
}

static frug_status run_steps(fgt_buckets *b, const fgt_graph *g, int worker) {
    frug_status status = FRUG_OK;
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        fgt_buckets_begin(b, step, 0.01, 1, false);
        fill(b, g, worker, step);
        status = fgt_buckets_end(b, 0);
    }
    return status;
}

static frug_status one_of_two(frug_comm *comm, void *shared) {
    scene *s = shared;
    int rank = frug_comm_rank(comm);
    fgt_graph *g = s->graph[rank];
    frug_layout *layout = NULL, *wide = NULL;
    frug_optimizer *optimizer = NULL;
    frug_config *config = NULL;
    frug_reducer *reducer = NULL;
    fgt_buckets *buckets = NULL;
    fgt_buckets_options want = {.graph = g, .workers = 2, .bytes = 1024, .overlap = true, .count_sent = true};
    want.measured_each = 2 * 7 * 16;
    want.measured = fgt_finetune_measured(g, want.measured_each);
    if (fgt_finetune_layout(g, 0, NULL, &layout) != 0 ||
        fgt_finetune_layout(g, want.measured, &want.measured_at, &wide) != 0)
        return FRUG_ERR_MEMORY;
    frug_status status = frug_optimizer_create(OPTION, layout, NULL, &optimizer);
    if (status == FRUG_OK)
        status = frug_config_create("dense", &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, wide, NULL, comm, &reducer);
    want.optimizer = optimizer;
    want.reducer = reducer;
    if (status == FRUG_OK && fgt_buckets_create(&want, &buckets) != 0)
        status = FRUG_ERR_MEMORY;
    if (status == FRUG_OK)
        status = run_steps(buckets, g, rank);
    s->handed[rank] = buckets ? fgt_buckets_floats_sent(buckets) : 0;
    fgt_buckets_destroy(buckets);
    frug_optimizer_destroy(optimizer);
    frug_reducer_destroy(reducer);
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    frug_layout_destroy(wide);
    return status;
}

/* The library's step for the mean of both workers' measurements of a whole tensor. */
static uint64_t move_by_hand(frug_optimizer *o, const fgt_param *p, uint64_t step) {
    uint64_t n = (uint64_t)p->rows * p->cols, at = p->tensor.offset,
             wants = frug_optimizer_measure_count(o, step, (frug_range){at, n});
    float grad[64 * 48], part[2][64 * 48];
    for (int worker = 0; worker < 2; worker++) {
        for (uint64_t i = 0; i < n; i++)
            grad[i] = formula_value(worker, step, at + i);
        OK(frug_optimizer_measure(o, step, (frug_range){at, n}, grad, part[worker]));
    }
    for (uint64_t i = 0; i < wants; i++)
        part[0][i] = 0.0f + 0.5f * (part[0][i] + part[1][i]);
    OK(frug_optimizer_step_measured(o, step, (frug_range){at, n}, part[0], 0.01, p->w));
    return wants;
}

static void workers_step_by_the_mean_of_measurements(void **state) {
    (void)state;
    scene s = {.graph = {scene_graph(), scene_graph()}};
    fgt_graph *alone = scene_graph(), *start = scene_graph();
    assert_true(s.graph[0] && s.graph[1] && alone && start);
    thread_worker member[2];
    run_workers(2, one_of_two, &s, 20, member);
    assert_workers_ok("workers", member, 2);
    frug_layout *layout = NULL;
    frug_optimizer *o = NULL;
    uint64_t handed = 0, all = 0;
    assert_int_equal(fgt_finetune_layout(alone, 0, NULL, &layout), 0);
    OK(frug_optimizer_create(OPTION, layout, NULL, &o));
    for (uint64_t step = 0; step < STEPS; step++)
        for (const fgt_param *p = alone->params; p; p = p->next)
            if (!p->frozen) {
                handed += move_by_hand(o, p, step);
                all += (uint64_t)p->rows * p->cols;
            }
    size_t bytes = (size_t)alone->elements * sizeof(float);
    assert_memory_equal(s.graph[0]->weights, s.graph[1]->weights, bytes);
    assert_memory_equal(s.graph[0]->weights, alone->weights, bytes);
    const fgt_param *still = fgt_param_find(start, "still");
    assert_memory_equal(fgt_param_find(alone, "still")->w, still->w, still->rows * still->cols * sizeof(float));
    assert_memory_not_equal(alone->params->w, start->params->w, start->params->rows * sizeof(float));
    assert_int_equal(s.handed[0], handed);
    assert_int_equal(handed, all - 3 * (32 * 48 + 64 * 20 - 2 * 224)); /* steps 0 and 3 renew */
    frug_optimizer_destroy(o);
    frug_layout_destroy(layout);
    fgt_graph_destroy(s.graph[0]);
    fgt_graph_destroy(s.graph[1]);
    fgt_graph_destroy(alone);
    fgt_graph_destroy(start);
}

/* ---- recorded gradients ----------------------------------------------------------------------------- */

static void record_contains_the_gradient(void **state) {
    (void)state;
    fgt_finetune_options tune = tune_of("table", "qv", "auto");
    char start[512];
    snprintf(start, sizeof start, "%s", learned(BERT));
    tune.states = 2000;
    tune.record = path_under("gradients.safetensors");
    tune.record_tensor = "*.query.weight";
    tune.record_steps = 3;
    fgt_job job = job_of(BERT, 1, &tune);
    job.weights = start;
    job.clip = 1e-3; /* recorded gradients are not clipped */
    train_job(&job, NULL);
    fgio_tensor_file file;
    assert_int_equal(fgio_tensor_file_open(tune.record, &file), FGIO_EXIT_OK);
    assert_int_equal(file.head.count, 2 * 3);
    model m = open_model(BERT);
    assert_int_equal(fgt_weights_load(start, m.graph, NULL), FGIO_EXIT_OK);
    basket b = gradients(&m);
    const char *name = "bert.encoder.layer.1.attention.self.query.weight";
    const fgt_param *p = fgt_param_find(m.graph, name);
    char full[128];
    snprintf(full, sizeof full, "0/%s", name);
    const fgio_tensor *item = fgio_safetensors_find(&file.head, full);
    float got[32 * 32];
    assert_non_null(item);
    assert_int_equal(item->count, 32 * 32);
    assert_int_equal(fgio_tensor_file_read_f32(&file, item, got), FGIO_EXIT_OK);
    assert_memory_equal(got, b.grad + p->tensor.offset, sizeof got);
    free(b.grad);
    close_model(&m);
    fgio_tensor_file_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_gradients_are_unchanged),
        cmocka_unit_test(workers_step_by_the_mean_of_measurements),
        cmocka_unit_test_setup_teardown(only_targets_and_head_are_trained, make_job_folder, remove_job_folder),
        cmocka_unit_test_setup_teardown(resume_gives_the_same_bits, make_job_folder, remove_job_folder),
        cmocka_unit_test_setup_teardown(record_contains_the_gradient, make_job_folder, remove_job_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

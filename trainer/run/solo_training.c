/* solo_training.c - some steps of training by one process, without an exchange. */
#include "trainer/run/solo_training.h"

#include "io/error.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "trainer/base/blas.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/exchange/buckets.h"
#include "trainer/run/defaults.h"
#include "trainer/run/rate_schedule.h"
#include "trainer/run/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_RATE 0.1

struct fgt_solo {
    fgt_solo_options options;
    fgt_model model;
    fgt_data *data;
    fgt_subset subset;
    fgt_graph *graph;
    frug_layout *layout;
    uint64_t trained; /* elements of the parameters in the flat buffer */
    frug_optimizer *optimizer;
    void *new_optimizer; /* its state at the beginning of a round */
    size_t new_optimizer_len;
    fgt_buckets *buckets;
    fgt_batch batch;
    fgt_rate schedule;
    double rate;
    char optimizer_text[FGT_FINETUNE_TEXT];
};

static int open_data(fgt_solo *s) {
    const fgt_model *m = &s->model;
    fgt_data_options want = {.task = m->task,
                             .path = s->options.data,
                             .tokens = s->options.tokens,
                             .length = m->length,
                             .channels = m->channels,
                             .height = m->height,
                             .width = m->width,
                             .classes = s->options.classes ? s->options.classes : m->classes,
                             .run_classes = s->options.classes,
                             .vocab = m->vocab,
                             .samples = s->options.samples,
                             .augment = FGT_AUGMENT_AUTO,
                             .seed = s->options.seed};
    s->data = s->options.opened;
    int status = s->data ? FGIO_EXIT_OK : fgt_data_open(&want, &s->data);
    if (status != FGIO_EXIT_OK)
        return status;
    uint64_t part = s->options.part, parts = s->options.parts ? s->options.parts : 1;
    return s->options.alpha > 0
               ? fgt_subset_dirichlet(s->data, s->options.alpha, s->options.seed, part, parts, &s->subset)
               : fgt_subset_share(s->data, part, parts, &s->subset);
}

/* Running statistics follow the parameters, as vectors. */
static int open_layout(fgt_solo *s) {
    int status = fgt_graph_layout(s->graph, &s->layout);
    s->trained = status == FGIO_EXIT_OK ? frug_layout_elements(s->layout) : 0;
    for (const fgt_buffer *b = s->graph->buffers; b && status == FGIO_EXIT_OK; b = b->next) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        tensor.name = b->name;
        tensor.ndim = 1;
        tensor.shape[0] = b->count;
        if (frug_layout_add(s->layout, &tensor) != FRUG_OK)
            status = fgio_library_error("layout");
    }
    return status;
}

static int open_model(fgt_solo *s) {
    const fgt_data_info *info = fgt_data_get_info(s->data);
    fgt_build_options build = {.batch = s->options.batch,
                               .threads = (int)s->options.threads,
                               .keep = s->options.evaluates ? FGT_KEEP_NONE : FGT_KEEP_ALL};
    int status = fgt_model_build_with(&s->model, info, &build, &s->graph);
    if (status == FGIO_EXIT_OK)
        status = open_layout(s);
    if (status == FGIO_EXIT_OK)
        status = fgt_batch_create(info, s->options.batch, &s->batch);
    if (status != FGIO_EXIT_OK)
        return status;
    s->batch.threads = (int)s->options.threads;
    s->graph->seed = s->options.seed;
    s->graph->worker = s->options.worker;
    fgt_graph_init(s->graph, s->options.seed);
    return FGIO_EXIT_OK;
}

/* A round begins with a new optimizer: momentum would first have to build up, and Adam's first steps are as long as the
 * rate. So images have plain SGD, and others half the rate of dense training; docs/federated.md has the runs. */
static int choose_optimizer(fgt_solo *s) {
    frug_config *config = NULL;
    bool given = s->options.optimizer && *s->options.optimizer, images = s->model.task == FGT_TASK_IMAGES;
    fgt_job job = {.method = "dense",
                   .optimizer = given    ? s->options.optimizer
                                : images ? "sgd:momentum=0"
                                         : NULL,
                   .threads = s->options.threads};
    int status = fgt_default_optimizer(&job, &s->model, false, s->optimizer_text, sizeof s->optimizer_text, &config);
    frug_config_destroy(config);
    if (status == FGIO_EXIT_OK)
        s->rate = s->options.rate > 0 ? s->options.rate
                  : !given && images  ? IMAGE_RATE
                                      : fgt_default_rate(&job, &s->model, false, s->optimizer_text) / 2;
    return status == FGIO_EXIT_OK ? fgt_rate_parse(s->options.schedule, &s->schedule) : status;
}

static int open_optimizer(fgt_solo *s) {
    frug_layout *trained = NULL;
    int status = fgt_graph_layout(s->graph, &trained);
    if (status == FGIO_EXIT_OK && frug_optimizer_create(s->optimizer_text, trained, NULL, &s->optimizer) != FRUG_OK)
        status = fgio_library_error("--optimizer");
    frug_layout_destroy(trained);
    if (status != FGIO_EXIT_OK)
        return status;
    size_t cap = frug_optimizer_state_size(s->optimizer);
    s->new_optimizer = malloc(cap + 1);
    if (!s->new_optimizer)
        return fgio_error("not enough memory for the optimizer");
    if (frug_optimizer_save(s->optimizer, s->new_optimizer, cap, &s->new_optimizer_len) != FRUG_OK)
        return fgio_library_error("--optimizer");
    fgt_buckets_options want = {.graph = s->graph, .optimizer = s->optimizer, .workers = 1};
    return fgt_buckets_create(&want, &s->buckets);
}

int fgt_solo_open(const fgt_solo_options *options, fgt_solo **out) {
    fgt_solo *s = calloc(1, sizeof *s);
    if (!s)
        return fgio_error("not enough memory");
    s->options = *options;
    int status = fgt_blas_init(options->threads);
    if (status == FGIO_EXIT_OK)
        status = fgt_model_parse(options->model, &s->model);
    if (status == FGIO_EXIT_OK && s->options.batch == 0)
        s->options.batch = fgt_default_batch(s->model.task);
    if (status == FGIO_EXIT_OK)
        status = choose_optimizer(s);
    if (status == FGIO_EXIT_OK)
        status = open_data(s);
    if (status == FGIO_EXIT_OK)
        status = open_model(s);
    if (status == FGIO_EXIT_OK && !options->evaluates)
        status = open_optimizer(s);
    if (status == FGIO_EXIT_OK)
        *out = s;
    else
        fgt_solo_close(s);
    return status;
}

void fgt_solo_close(fgt_solo *s) {
    if (!s)
        return;
    fgt_buckets_destroy(s->buckets);
    frug_optimizer_destroy(s->optimizer);
    free(s->new_optimizer);
    frug_layout_destroy(s->layout);
    fgt_batch_destroy(&s->batch);
    fgt_graph_destroy(s->graph);
    fgt_subset_free(&s->subset);
    if (!s->options.opened)
        fgt_data_close(s->data);
    free(s);
}

const frug_layout *fgt_solo_layout(const fgt_solo *s) {
    return s->layout;
}

bool fgt_solo_has_statistics(const fgt_solo *s) {
    return s->graph->buffers != NULL;
}

fgt_data *fgt_solo_data(const fgt_solo *s) {
    return s->data;
}

uint64_t fgt_solo_examples(const fgt_solo *s) {
    return s->subset.count;
}

uint32_t fgt_solo_classes(const fgt_solo *s) {
    return fgt_data_get_info(s->data)->classes;
}

const char *fgt_solo_data_name(const fgt_solo *s) {
    return fgt_data_get_info(s->data)->name;
}

const char *fgt_solo_optimizer(const fgt_solo *s) {
    return s->optimizer_text;
}

double fgt_solo_rate(const fgt_solo *s) {
    return s->rate;
}

uint32_t fgt_solo_batch(const fgt_solo *s) {
    return s->options.batch;
}

void fgt_solo_get(const fgt_solo *s, float *weights) {
    memcpy(weights, s->graph->weights, s->trained * sizeof *weights);
    weights += s->trained;
    for (const fgt_buffer *b = s->graph->buffers; b; weights += b->count, b = b->next)
        memcpy(weights, b->data, b->count * sizeof *weights);
}

void fgt_solo_set(fgt_solo *s, const float *weights) {
    memcpy(s->graph->weights, weights, s->trained * sizeof *weights);
    weights += s->trained;
    for (fgt_buffer *b = s->graph->buffers; b; weights += b->count, b = b->next)
        memcpy(b->data, weights, b->count * sizeof *weights);
}

int fgt_solo_load(fgt_solo *s, const char *path) {
    uint32_t fresh = 0;
    return fgt_weights_load(path, s->graph, &fresh);
}

/* Parameters, then running statistics, as the flat buffer has them. */
static size_t list_tensors(const fgt_solo *s, fgio_tensor *items) {
    size_t count = 0;
    for (const fgt_param *p = s->graph->params; p; p = p->next) {
        fgio_tensor *item = &items[count++];
        *item = (fgio_tensor){.name = (char *)p->tensor.name, .dtype = FGIO_F32, .ndim = p->tensor.ndim};
        memcpy(item->shape, p->tensor.shape, p->tensor.ndim * sizeof *item->shape);
        item->count = (uint64_t)p->rows * p->cols;
    }
    for (const fgt_buffer *b = s->graph->buffers; b; b = b->next)
        items[count++] =
            (fgio_tensor){.name = b->name, .dtype = FGIO_F32, .ndim = 1, .shape = {b->count}, .count = b->count};
    return count;
}

static int write_tensors(const fgt_solo *s, const char *path, const fgio_bytes *header) {
    fgio_writer writer = FGIO_WRITER_CLOSED;
    int status = fgio_writer_open(path, &writer);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, header->data, header->len);
    for (const fgt_param *p = s->graph->params; p && status == FGIO_EXIT_OK; p = p->next)
        status = fgio_writer_put_f32(&writer, p->w, p->rows * p->cols);
    for (const fgt_buffer *b = s->graph->buffers; b && status == FGIO_EXIT_OK; b = b->next)
        status = fgio_writer_put_f32(&writer, b->data, b->count);
    if (status == FGIO_EXIT_OK)
        return fgio_writer_commit(&writer);
    fgio_writer_abort(&writer);
    return status;
}

int fgt_solo_save(const fgt_solo *s, const char *path) {
    fgio_tensor *items = calloc(frug_layout_count(s->layout), sizeof *items);
    fgio_bytes header = {NULL, 0};
    fgio_reason why = {0};
    int status = FGIO_EXIT_OK;
    if (!items)
        status = fgio_error("%s: not enough memory", path);
    else if (fgio_safetensors_header(items, list_tensors(s, items), NULL, &header, &why) != 0)
        status = fgio_error("%s: %s", path, why.text);
    if (status == FGIO_EXIT_OK)
        status = write_tensors(s, path, &header);
    free(items);
    fgio_bytes_free(&header);
    return status;
}

static int train_step(fgt_solo *s, uint64_t step, double *loss) {
    uint32_t n = s->options.batch;
    uint64_t per_epoch = s->subset.count / n ? s->subset.count / n : 1;
    double rate = s->rate * fgt_rate_at(&s->schedule, step, s->options.rounds * s->options.steps);
    if (fgt_subset_batch(s->data, &s->subset, step / per_epoch, step % per_epoch * n, n, &s->batch) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    s->graph->step = step;
    fgt_buckets_begin(s->buckets, step % s->options.steps, rate, 1, false);
    fgt_graph_forward(s->graph, &s->batch, true);
    double count = s->graph->score.count > 0 ? s->graph->score.count : 1;
    *loss += s->graph->score.loss / count;
    fgt_graph_backward(s->graph, fgt_buckets_sink(s->buckets));
    if (fgt_buckets_end(s->buckets, 0) != FRUG_OK)
        return fgio_library_error("optimizer");
    return isfinite(*loss) ? FGIO_EXIT_OK
                           : fgio_error("the loss is not finite after step %llu; a lower --rate may help",
                                        (unsigned long long)step);
}

int fgt_solo_train(fgt_solo *s, uint64_t round, double *loss, bool *stopped) {
    double sum = 0;
    *stopped = false;
    if (frug_optimizer_restore(s->optimizer, s->new_optimizer, s->new_optimizer_len) != FRUG_OK)
        return fgio_library_error("optimizer");
    for (uint64_t i = 0; i < s->options.steps && !*stopped; i++) {
        if (train_step(s, round * s->options.steps + i, &sum) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        *stopped = fgt_worker_interrupt_requested();
    }
    *loss = sum / (double)s->options.steps;
    return FGIO_EXIT_OK;
}

int fgt_solo_evaluate(fgt_solo *s, double *loss, double *accuracy, double *asked) {
    const uint64_t *count = fgt_data_get_info(s->data)->count;
    fgt_split split = count[FGT_TEST] ? FGT_TEST : FGT_VALID;
    fgt_score sum = {0};
    for (uint64_t at = 0; at < count[split]; at += s->options.batch) {
        uint32_t n = count[split] - at < s->options.batch ? (uint32_t)(count[split] - at) : s->options.batch;
        if (fgt_data_batch(s->data, split, 0, at, n, &s->batch) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        fgt_graph_forward(s->graph, &s->batch, false);
        fgt_score_add(&sum, &s->graph->score);
    }
    *asked = sum.count;
    *loss = sum.count > 0 ? sum.loss / sum.count : (double)NAN;
    *accuracy = sum.count > 0 ? sum.correct / sum.count : (double)NAN;
    return FGIO_EXIT_OK;
}

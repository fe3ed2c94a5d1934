/*
 * memory_need.c - what a worker will take. The graph measures itself without being built. Of the library a compressor
 * and an optimiser are made for a small and a larger matrix, and the difference is what a parameter takes.
 */
#include "trainer/run/memory_fit.h"

#include "io/error.h"

#include <string.h>

#define TRIAL_LEAST   (1u << 20) /* parameters: a trial for less would be what the library holds at most */
#define SMALL_ROWS    64u        /* of the trial's matrices */
#define LARGE_ROWS    256u
#define COLUMNS       256u
#define NO_TRIAL_EACH 16.0 /* bytes a parameter: more than most methods take */
#define OPEN_BUCKETS  3u   /* that hold a part of the gradient at once */
#define BUCKET_LEAST  (1u << 20)
#define BUCKET_MOST   (25u << 20)
#define GOSSIP_FLOATS 3u          /* a parameter */
#define PROCESS       (16u << 20) /* code, stacks, work space of BLAS */

uint64_t fgt_need_sum(const fgt_need *n) {
    return n->weights + n->gradients + n->library + n->activations + n->batch;
}

/** What a method holds. */
typedef struct trial {
    double each; /* bytes a parameter */
    bool cuts;   /* takes parts of a tensor */
} trial;

static uint64_t library_now(void) {
    uint64_t now = 0;
    frug_memory(&now, NULL);
    return now;
}

/* Bytes that the library holds for one matrix; 0 where the method refuses it. */
static uint64_t try_matrix(const fgt_crew *crew, uint64_t rows, bool *cuts) {
    frug_tensor t = FRUG_TENSOR_INIT;
    frug_options options = FRUG_OPTIONS_INIT;
    frug_layout *layout = NULL;
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    frug_optimizer *o = NULL;
    uint64_t before = library_now(), held = 0;
    size_t bytes;
    t.name = "trial.weight";
    t.role = FRUG_ROLE_LINEAR;
    t.ndim = 2;
    t.shape[0] = rows;
    t.shape[1] = COLUMNS;
    options.threads = 1;
    if (frug_layout_create(&layout) == FRUG_OK && frug_layout_add(layout, &t) == FRUG_OK &&
        frug_config_create_for(crew->job->method, crew->optimizer, &config) == FRUG_OK &&
        frug_compressor_create(config, layout, &options, &c) == FRUG_OK &&
        frug_optimizer_create(crew->optimizer, layout, crew->job->alone ? NULL : c, &o) == FRUG_OK) {
        held = library_now() - before;
        *cuts = frug_compressor_bound(c, 0, rows / 2 * COLUMNS, &bytes) == FRUG_OK;
    }
    frug_optimizer_destroy(o);
    frug_compressor_destroy(c);
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    return held;
}

static trial try_method(const fgt_crew *crew, uint64_t elements) {
    trial t = {.each = NO_TRIAL_EACH, .cuts = true};
    if (elements < TRIAL_LEAST)
        return t;
    uint64_t large = try_matrix(crew, LARGE_ROWS, &t.cuts), small = try_matrix(crew, SMALL_ROWS, &t.cuts);
    if (large > small)
        t.each = (double)(large - small) / ((double)(LARGE_ROWS - SMALL_ROWS) * COLUMNS);
    if (strstr(crew->report->config, "reduce=gossip"))
        t.each += GOSSIP_FLOATS * sizeof(float);
    return t;
}

/* Buckets in which the gradient streams, and all of it where it has to be whole. */
static uint64_t gradient_bytes(const fgt_crew *crew, const fgt_model_size *size, uint64_t moving, bool cuts, bool dense,
                               bool passes) {
    uint64_t bucket = crew->job->bucket_bytes, largest = size->largest * sizeof(float), all = moving * sizeof(float);
    if (bucket == 0) {
        bucket = size->elements * sizeof(float) / 64;
        bucket = dense || bucket > BUCKET_MOST ? BUCKET_MOST : bucket < BUCKET_LEAST ? BUCKET_LEAST : bucket;
    }
    uint64_t each = !cuts && largest > bucket ? largest : bucket, open = OPEN_BUCKETS * (each < all ? each : all);
    open = open < 2 * all ? open : 2 * all;
    return dense && !passes ? all : passes ? all + open : open;
}

/* What a dense exchange has under way: at most the longest bucket. */
static uint64_t ring_bytes(const fgt_model_size *size) {
    uint64_t largest = size->largest * sizeof(float), longest = largest > BUCKET_MOST ? largest : BUCKET_MOST;
    return longest < size->weights ? longest : size->weights;
}

/* Fine-tuning: how many parameters move, and what the optimiser keeps of them at most. */
static int tuned(const fgt_crew *crew, const fgt_build *how, uint64_t *moving, uint64_t *library) {
    const fgt_job *job = crew->job;
    char text[FGT_TUNE_TEXT];
    fgt_tuning tuning;
    fgt_graph *g = NULL;
    fgt_build small = {.batch = 1, .threads = how->threads, .keep = how->keep};
    int status = fgt_model_nodes(&crew->model, fgt_data_about(crew->data), &small, &g);
    if (status == FGIO_EXIT_OK)
        status = fgt_tune_plan(job->tune, crew->model.task, job->threads, g, text, &tuning);
    if (status == FGIO_EXIT_OK) {
        uint64_t dense = tuning.head_params + (strcmp(job->tune->kind, "full") == 0 ? tuning.target_params : 0);
        *moving = tuning.head_params + tuning.target_params;
        *library = (2 * dense + *moving) * sizeof(float); /* moments, and what the exchange or a basis takes */
    }
    fgt_graph_destroy(g);
    return status;
}

static uint64_t batch_bytes(const fgt_data_info *info, uint64_t n) {
    uint64_t each = info->task == FGT_TASK_IMAGES ? (uint64_t)info->channels * info->height * info->width + 1
                                                  : 3 * (uint64_t)info->length + 2;
    return n * each * sizeof(float);
}

int fgt_fit_need(const fgt_crew *crew, uint32_t accumulate, fgt_keep keep, fgt_need *need) {
    const fgt_data_info *info = fgt_data_about(crew->data);
    fgt_build how = {(crew->batch + accumulate - 1) / accumulate, (int)crew->job->threads, keep};
    fgt_model_size size;
    uint64_t library = 0;
    int status = fgt_model_measure(&crew->model, info, &how, &size);
    if (status != FGIO_EXIT_OK)
        return status;
    *need = (fgt_need){.weights = size.weights,
                       .activations = size.activations,
                       .batch = batch_bytes(info, crew->batch) + PROCESS,
                       .blocks = size.blocks};
    if (keep == FGT_KEEP_NONE)
        return FGIO_EXIT_OK;
    uint64_t moving = size.elements;
    trial t = {.cuts = true};
    if (crew->job->tune) {
        status = tuned(crew, &how, &moving, &library);
    } else {
        t = try_method(crew, moving);
        library = (uint64_t)(t.each * (double)moving);
    }
    bool dense = !crew->job->tune && !crew->job->alone && strstr(crew->report->config, "reduce=dense");
    need->library = library + (dense ? ring_bytes(&size) : 0);
    need->gradients = gradient_bytes(crew, &size, moving, t.cuts, dense, accumulate > 1);
    return status;
}

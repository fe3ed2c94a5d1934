/*
 * memory_need.c - estimate of the memory of a worker, or of the stages of this machine. The graph computes its size
 * without being built. For the library a compressor and an optimizer are created for a small and a larger matrix; the
 * difference is the memory per parameter.
 */
#include "trainer/run/memory_fit.h"

#include "io/error.h"
#include "trainer/nn/graph_stages.h"
#include "trainer/run/defaults.h"
#include "trainer/run/worker_group.h"

#include <stdlib.h>
#include <string.h>

#define TRIAL_PARAMS_MIN        (1u << 20) /* parameters: for less, the trial itself would be the library's peak */
#define SMALL_ROWS              64u        /* of the matrices that are measured */
#define LARGE_ROWS              256u
#define COLUMNS                 256u
#define DEFAULT_BYTES_PER_PARAM 16.0 /* more than most methods need */
#define OPEN_BUCKETS            3u   /* open at once */
#define BUCKET_MIN              (1u << 20)
#define BUCKET_MAX              (25u << 20)
#define GOSSIP_FLOATS           3u          /* a parameter */
#define LOCAL_FLOATS            2u          /* a parameter: shared weights and the difference */
#define PROCESS_BYTES           (16u << 20) /* code, stacks, work space of BLAS */

uint64_t fgt_memory_need_sum(const fgt_memory_need *n) {
    return n->weights + n->gradients + n->library + n->activations + n->batch;
}

/** Memory of a method. */
typedef struct method_cost {
    double bytes_per_param;
    uint64_t fixed; /* bytes, whatever the number of parameters */
    bool can_split; /* accepts a range of a tensor */
} method_cost;

static uint64_t library_bytes(void) {
    uint64_t now = 0;
    frug_memory(&now, NULL);
    return now;
}

/* Bytes that the library allocates for one matrix; 0 where the method refuses it. optimizer: NULL: none. */
static uint64_t measure_matrix(const frug_config *config, const char *optimizer, bool alone, uint64_t rows,
                               bool *can_split) {
    frug_tensor t = FRUG_TENSOR_INIT;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_layout *layout = NULL;
    frug_compressor *c = NULL;
    frug_optimizer *o = NULL;
    uint64_t before = library_bytes(), used = 0;
    size_t bytes;
    t.name = "trial.weight";
    t.role = FRUG_ROLE_LINEAR;
    t.ndim = 2;
    t.shape[0] = rows;
    t.shape[1] = COLUMNS;
    options.threads = 1;
    if (frug_layout_create(&layout) == FRUG_OK && frug_layout_add(layout, &t) == FRUG_OK &&
        frug_compressor_create(config, layout, &options, &c) == FRUG_OK &&
        (!optimizer || frug_optimizer_create(optimizer, layout, alone ? NULL : c, &o) == FRUG_OK)) {
        used = library_bytes() - before;
        *can_split = frug_compressor_bound(c, (frug_range){0, rows / 2 * COLUMNS}, &bytes) == FRUG_OK;
    }
    frug_optimizer_destroy(o);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    return used;
}

/* Unchanged where the method refuses the matrices. */
static void measure_cost(const frug_config *config, const char *optimizer, bool alone, method_cost *cost) {
    uint64_t large = measure_matrix(config, optimizer, alone, LARGE_ROWS, &cost->can_split),
             small = measure_matrix(config, optimizer, alone, SMALL_ROWS, &cost->can_split);
    if (large <= small)
        return;
    cost->bytes_per_param = (double)(large - small) / ((double)(LARGE_ROWS - SMALL_ROWS) * COLUMNS);
    const double small_params = cost->bytes_per_param * SMALL_ROWS * COLUMNS;
    cost->fixed = (double)small > small_params ? (uint64_t)((double)small - small_params) : 0;
}

static method_cost measure_method(const fgt_run *run, uint64_t elements) {
    method_cost t = {.bytes_per_param = DEFAULT_BYTES_PER_PARAM, .can_split = true};
    if (elements < TRIAL_PARAMS_MIN)
        return t;
    measure_cost(run->config, run->optimizer, run->job->alone, &t);
    if (fgt_option_is(run->config, "reduce", "gossip"))
        t.bytes_per_param += GOSSIP_FLOATS * sizeof(float);
    if (!fgt_option_is(run->config, "local", "0"))
        t.bytes_per_param += LOCAL_FLOATS * sizeof(float);
    if (!fgt_option_is(run->config, "outer_momentum", "0"))
        t.bytes_per_param += sizeof(float);
    return t;
}

/* Memory of the open buckets, and the full gradient where it is needed. */
static uint64_t gradient_bytes(const fgt_run *run, const fgt_model_size *size, uint64_t trainable, bool can_split,
                               bool dense, bool passes) {
    uint64_t bucket = run->job->bucket_bytes, largest = size->largest * sizeof(float), all = trainable * sizeof(float);
    if (bucket == 0) {
        bucket = size->elements * sizeof(float) / 64;
        bucket = dense || bucket > BUCKET_MAX ? BUCKET_MAX : bucket < BUCKET_MIN ? BUCKET_MIN : bucket;
    }
    uint64_t bucket_max = !can_split && largest > bucket ? largest : bucket,
             open = OPEN_BUCKETS * (bucket_max < all ? bucket_max : all);
    open = open < 2 * all ? open : 2 * all;
    return dense && !passes ? all : passes ? all + open : open;
}

/* Buffer of a dense exchange: at most the longest bucket. */
static uint64_t ring_bytes(const fgt_model_size *size) {
    uint64_t largest = size->largest * sizeof(float), longest = largest > BUCKET_MAX ? largest : BUCKET_MAX;
    return longest < size->weights ? longest : size->weights;
}

/* Fine-tuning: the number of trainable parameters, and the maximum of the optimizer's memory. */
static int estimate_finetuning(const fgt_run *run, const fgt_build_options *options, uint64_t *trainable,
                               uint64_t *library) {
    const fgt_job *job = run->job;
    char text[FGT_FINETUNE_TEXT];
    fgt_finetune_result tuning;
    fgt_graph *g = NULL;
    fgt_build_options small = {.batch = 1, .threads = options->threads, .keep = options->keep};
    int status = fgt_model_build_nodes(&run->model, fgt_data_get_info(run->data), &small, &g);
    if (status == FGIO_EXIT_OK)
        status = fgt_finetune_plan(job->tune, run->model.task, job->threads, g, text, &tuning);
    if (status == FGIO_EXIT_OK) {
        uint64_t dense = tuning.head_params + (strcmp(job->tune->kind, "full") == 0 ? tuning.target_params : 0);
        *trainable = tuning.head_params + tuning.target_params;
        *library = (2 * dense + *trainable) * sizeof(float); /* moments, and buffers of the exchange or a basis */
    }
    fgt_graph_destroy(g);
    return status;
}

/* The memory of samples of one stage: as long on all stages as the longest. */
static int estimate_samples(const fgt_run *run, uint64_t *bytes) {
    const fgt_data_info *info = fgt_data_get_info(run->data);
    fgt_build_options small = {.batch = 1, .threads = 1, .keep = FGT_KEEP_ALL};
    fgt_stage_plan plan;
    fgt_graph *g = NULL;
    int status = fgt_model_build_nodes(&run->model, info, &small, &g);
    if (status == FGIO_EXIT_OK)
        status = fgt_stages_plan(g, run->model.text, run->job->stages, &plan);
    if (status == FGIO_EXIT_OK)
        *bytes = info->count[FGT_TRAIN] * fgt_stages_link_floats(g, &plan) * sizeof(float);
    fgt_graph_destroy(g);
    return status;
}

static uint64_t batch_bytes(const fgt_data_info *info, uint64_t n) {
    uint64_t sample_floats = info->task == FGT_TASK_IMAGES ? (uint64_t)info->channels * info->height * info->width + 1
                                                           : 3 * (uint64_t)info->length + 2;
    return n * sample_floats * sizeof(float);
}

/* Messages of a stage, and the compressors of both directions of its links. */
static uint64_t link_bytes(const fgt_run *run, const fgt_model_size *size, uint32_t batch) {
    const frug_config *const both[2] = {run->stage_config.activations, run->stage_config.gradients};
    const double floats = (double)size->crossing * batch;
    uint64_t sum = fgt_pipeline_messages(size->copies) * size->crossing * batch * sizeof(float);
    for (int i = 0; i < 2 && size->elements >= TRIAL_PARAMS_MIN; i++) {
        method_cost cost = {0};
        if (both[i])
            measure_cost(both[i], NULL, false, &cost);
        sum += FGT_CHANNEL_SIZES * (size->borders * cost.fixed + (uint64_t)(cost.bytes_per_param * floats));
    }
    return sum;
}

/* Of a worker or a stage with a graph of that size. */
static int estimate_worker(const fgt_run *run, const fgt_build_options *options, bool passes,
                           const fgt_model_size *size, fgt_memory_need *need) {
    uint64_t trainable = size->present, library = 0;
    int status = FGIO_EXIT_OK;
    *need = (fgt_memory_need){.weights = size->weights,
                              .activations = size->activations,
                              .batch = batch_bytes(fgt_data_get_info(run->data), run->batch) + PROCESS_BYTES,
                              .blocks = size->blocks};
    if (options->keep == FGT_KEEP_NONE)
        return FGIO_EXIT_OK;
    if (run->job->sparse || run->job->quantize)
        need->weights += size->weights; /* a master, or sums of gradients */
    method_cost t = {.can_split = true};
    if (run->job->tune) {
        status = estimate_finetuning(run, options, &trainable, &library);
    } else {
        t = measure_method(run, size->elements);
        library = t.fixed + (uint64_t)(t.bytes_per_param * (double)trainable);
    }
    bool dense = !run->job->tune && !run->job->alone && fgt_option_is(run->config, "reduce", "dense");
    need->library = library + (dense ? ring_bytes(size) : 0);
    if (size->borders)
        need->library += link_bytes(run, size, options->batch);
    need->gradients = gradient_bytes(run, size, trainable, t.can_split, dense, passes);
    return status;
}

static int compare_needs(const void *a, const void *b) {
    const uint64_t x = fgt_memory_need_sum(a), y = fgt_memory_need_sum(b);
    return x < y ? 1 : x > y ? -1 : 0;
}

static void add_need(fgt_memory_need *sum, const fgt_memory_need *need) {
    sum->weights += need->weights;
    sum->gradients += need->gradients;
    sum->library += need->library;
    sum->activations += need->activations;
    sum->batch += need->batch;
    sum->blocks = need->blocks;
}

/* It is not known which stages are on this machine if not all are: the largest are assumed. */
static int estimate_stages(const fgt_run *run, const fgt_build_options *options, uint32_t accumulate,
                           fgt_memory_need *need) {
    const uint32_t stages = run->job->stages, here = (uint32_t)fgt_group_local_size((int)stages);
    fgt_memory_need each[FGT_STAGES_MAX];
    fgt_model_size size;
    int status = FGIO_EXIT_OK;
    for (uint32_t s = 0; s < stages && status == FGIO_EXIT_OK; s++) {
        status =
            fgt_model_measure_stage(&run->model, fgt_data_get_info(run->data), options, stages, s, accumulate, &size);
        if (status == FGIO_EXIT_OK)
            status = estimate_worker(run, options, accumulate > 1, &size, &each[s]);
    }
    if (status != FGIO_EXIT_OK)
        return status;
    qsort(each, stages, sizeof *each, compare_needs);
    *need = (fgt_memory_need){0};
    for (uint32_t s = 0; s < stages && s < here; s++)
        add_need(need, &each[s]);
    return run->job->stage_feedback ? estimate_samples(run, &need->samples) : FGIO_EXIT_OK;
}

int fgt_memory_estimate(const fgt_run *run, uint32_t accumulate, fgt_keep keep, fgt_memory_need *need) {
    fgt_build_options options = {
        .batch = (run->batch + accumulate - 1) / accumulate, .threads = (int)run->job->threads, .keep = keep};
    fgt_model_size size;
    if (run->job->stages)
        return estimate_stages(run, &options, accumulate, need);
    int status = fgt_model_measure(&run->model, fgt_data_get_info(run->data), &options, &size);
    return status == FGIO_EXIT_OK ? estimate_worker(run, &options, accumulate > 1, &size, need) : status;
}

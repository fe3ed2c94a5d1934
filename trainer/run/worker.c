/* worker.c - creating a worker from a job, checking that all workers have the same settings, and freeing everything. */
#include "frugrad/experimental.h"
#include "trainer/run/worker.h"
#include "trainer/nn/fake_quantize.h"

#include "trainer/checkpoint/checkpoint.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "trainer/run/defaults.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fgt_worker_error(const fgt_worker *w, const char *what, frug_status status) {
    if (status == FRUG_ERR_REMOTE && w->rank != 0)
        return FGIO_EXIT_FAIL;
    int code = fgio_library_error(what);
    if (status == FRUG_ERR_COMM && strstr(frug_last_error(), "timeout"))
        fgio_hint("if a worker is only slow, increase --timeout SECONDS");
    return code;
}

int fgt_worker_collective(fgt_worker *w, int (*part)(fgt_worker *w)) {
    fgio_errors_defer();
    return fgt_group_agree(w->comm, part(w));
}

/** A setting that must be the same on all workers, and its command-line option. */
typedef struct setting {
    const char *option;
    uint64_t value;
} setting;

#define SETTINGS 24

/* All splits: stages evaluate the same batches together. */
static uint64_t hash_data(const fgt_data_info *info) {
    uint64_t hash = frugi_hash_text(FRUGI_HASH_INIT, info->name);
    for (int i = 0; i < FGT_SPLITS; i++)
        hash = (hash ^ info->count[i]) * FRUGI_HASH_PRIME;
    return hash;
}

static void list_settings(const fgt_worker *w, setting *a) {
    const fgt_run *run = w->run;
    const fgt_job *job = run->job;
    const fgt_data_info *info = fgt_data_get_info(run->data);
    uint64_t rate_bits, clip_bits;
    memcpy(&rate_bits, &run->base_rate, sizeof rate_bits);
    memcpy(&clip_bits, &job->clip, sizeof clip_bits);
    clip_bits = job->clip_auto ? UINT64_MAX : clip_bits;
    const setting all[SETTINGS] = {
        {"--model", frugi_hash_text(FRUGI_HASH_INIT, run->model.text)},
        {"--data", hash_data(info)},
        {"--method", frugi_hash_text(FRUGI_HASH_INIT, job->method)},
        {"--optimizer", frugi_hash_text(FRUGI_HASH_INIT, run->optimizer)},
        {"--schedule", frugi_hash_text(FRUGI_HASH_INIT, run->schedule)},
        {"--rate", rate_bits},
        {"--clip", clip_bits},
        {"--batch", run->batch},
        {"--accumulate", w->accumulate},
        {"--seed", job->seed},
        {"--steps or --epochs", w->steps},
        {"--eval-every", job->eval ? job->eval_every : UINT64_MAX},
        {"--save or --save-every", job->save ? job->save_every : UINT64_MAX},
        {"--eval-batches", job->eval_batches},
        {"--bucket", job->bucket_bytes},
        {"--resume", job->resume != NULL},
        {"--augment", (uint64_t)job->augment},
        {"--alone", job->alone},
        {"--quantize", job->quantize ? frugi_hash_text(FRUGI_HASH_INIT, job->quantize) : 0},
        {"--sparse", job->sparse ? frugi_hash_text(FRUGI_HASH_INIT, job->sparse) : 0},
        {"--stages", job->stages},
        {"--stage-config", job->stage_config ? frugi_hash_text(FRUGI_HASH_INIT, job->stage_config) : 0},
        {"--stage-feedback", job->stage_feedback ? frugi_hash_text(FRUGI_HASH_INIT, job->stage_feedback) : 0},
        {"an option of fine-tuning", job->tune ? fgt_finetune_hash(job->tune) : 0},
    };
    memcpy(a, all, sizeof all);
}

/* Workers of an MPI job may have been started with different options. */
static int check_same_settings(fgt_worker *w) {
    setting mine[SETTINGS];
    uint64_t value[SETTINGS], *all = calloc((size_t)w->size * SETTINGS, sizeof *all);
    list_settings(w, mine);
    for (int i = 0; i < SETTINGS; i++)
        value[i] = mine[i].value;
    frug_status gathered = all ? frug_comm_allgather(w->comm, value, sizeof value, all) : FRUG_ERR_MEMORY;
    int status = gathered == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "workers", gathered);
    for (int i = 0; status == FGIO_EXIT_OK && i < SETTINGS; i++)
        for (int r = 1; status == FGIO_EXIT_OK && r < w->size; r++)
            if (all[r * SETTINGS + i] != all[i])
                status = fgio_error("workers 0 and %d were started with different values of %s", r, mine[i].option);
    free(all);
    return status;
}

/* Not a CRC: that of a checkpoint, which ends with its own CRC, is the same for all. */
static int hash_file(const char *path, uint64_t *hash) {
    unsigned char chunk[16384];
    size_t bytes;
    FILE *file = fopen(path, "rb");
    if (!file)
        return fgio_error("%s: cannot be opened", path);
    *hash = FRUGI_HASH_INIT;
    while ((bytes = fread(chunk, 1, sizeof chunk, file)) > 0)
        *hash = frugi_hash_bytes(*hash, chunk, bytes);
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? fgio_error("%s: cannot be read", path) : FGIO_EXIT_OK;
}

/* Of the weights. A stage has only its own, so stages compare the files that they have loaded. */
static int hash_weights(const fgt_worker *w, uint64_t *hash) {
    const fgt_job *job = w->run->job;
    if (w->pipeline)
        return job->weights && !w->resuming ? hash_file(job->weights, hash) : FGIO_EXIT_OK;
    for (const fgt_param *p = w->graph->params; p; p = p->next)
        *hash = frugi_crc32c((uint32_t)*hash, p->w, p->rows * p->cols * sizeof *p->w);
    return FGIO_EXIT_OK;
}

/* Weight files may differ between machines, and so may arithmetic; nothing else would detect it. */
int fgt_worker_check_weights(fgt_worker *w) {
    uint64_t mine = 0, *all = calloc((size_t)w->size, sizeof *all);
    int status = hash_weights(w, &mine);
    frug_status gathered = all ? frug_comm_allgather(w->comm, &mine, sizeof mine, all) : FRUG_ERR_MEMORY;
    if (status == FGIO_EXIT_OK && gathered != FRUG_OK)
        status = fgt_worker_error(w, "workers", gathered);
    for (int r = 1; status == FGIO_EXIT_OK && r < w->size; r++)
        if (all[r] != all[0])
            status = fgio_error("workers 0 and %d have different weights %s", r,
                                w->steps_here ? "after training" : "before training");
    free(all);
    return status;
}

static void count_steps(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    uint64_t samples = fgt_data_get_info(w->run->data)->count[FGT_TRAIN];
    w->per_epoch = samples / ((uint64_t)w->run->batch * (uint64_t)w->replicas);
    w->per_epoch = w->per_epoch ? w->per_epoch : 1;
    w->steps = job->steps ? job->steps : (uint64_t)(job->epochs * (double)w->per_epoch + 0.5);
    w->steps = w->steps ? w->steps : 1;
}

static size_t buffer_floats(const fgt_worker *w) {
    size_t count = 0;
    for (const fgt_buffer *b = w->graph->buffers; b; b = b->next)
        count += b->count;
    return count;
}

void fgt_worker_save_buffers(fgt_worker *w) {
    float *to = w->saved_buffers;
    for (const fgt_buffer *b = w->graph->buffers; b; to += b->count, b = b->next)
        memcpy(to, b->data, b->count * sizeof *to);
}

void fgt_worker_restore_buffers(fgt_worker *w) {
    const float *from = w->saved_buffers;
    for (fgt_buffer *b = w->graph->buffers; b; from += b->count, b = b->next)
        memcpy(b->data, from, b->count * sizeof *from);
}

static int load_weights(fgt_worker *w) {
    const char *path = w->run->job->weights;
    uint32_t fresh = 0;
    int status = fgt_weights_load(path, w->graph, &fresh);
    if (status == FGIO_EXIT_OK && fresh > 0)
        fgio_hint("%s has no values for %u tensors of the model's head: they are initialized randomly", path, fresh);
    return status;
}

fgt_keep fgt_run_keep(const fgt_run *run) {
    return run->quality ? FGT_KEEP_NONE : run->job->recompute ? FGT_KEEP_BLOCKS : FGT_KEEP_ALL;
}

/* Whether the tensors of a bucket are compressed as one: where all are compressed alike, and no density or selection
 * depends on where a tensor ends. */
static bool joins_tensors(const fgt_worker *w) {
    static const char *const wanted[][2] = {{"segment", "block"}, {"vectors", "sparse"}, {"min_size", "0"},
                                            {"layers", "even"},   {"strict", "off"},     {"frequency", "off"}};
    bool joins = w->sparse && !w->run->job->alone && !fgt_option_is(w->run->config, "reduce", "dense");
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        joins = joins && fgt_option_is(w->run->config, wanted[i][0], wanted[i][1]);
    return joins;
}

/* The first masks, of the first weights; those of a resumed run are in its checkpoint. */
static int open_sparse(fgt_worker *w) {
    int status = fgt_sparse_create(&w->run->sparse, w->graph, w->steps, w->run->job->weights == NULL,
                                   fgt_model_head_length(&w->run->model), &w->sparse);
    if (status == FGIO_EXIT_OK)
        status = fgt_buckets_assign_packed(w->graph, w->run->job->bucket_bytes);
    if (status == FGIO_EXIT_OK && !w->resuming && fgt_sparse_is_due(&w->run->sparse, 0, w->steps))
        status = fgt_sparse_update(w->sparse, w->comm, 0);
    frug_layout_destroy(w->layout);
    w->layout = NULL;
    return status == FGIO_EXIT_OK ? fgt_mask_layout(w->graph, &w->layout) : status;
}

int fgt_worker_begin_master(fgt_worker *w) {
    w->master.nm = w->sparse && fgt_sparse_is_straight_through(w->sparse, w->step) ? &w->run->sparse : NULL;
    int status = fgt_master_begin(&w->master);
    if (status == FGIO_EXIT_OK && w->sparse)
        w->sparse->weights = w->master.weights ? w->master.weights : w->graph->weights;
    return status;
}

/* The memory of samples is for activations that change little from one epoch to the next. */
static int check_samples_repeat(const fgt_worker *w) {
    const fgt_data_info *info = fgt_data_get_info(w->run->data);
    if (!w->run->job->stage_feedback)
        return FGIO_EXIT_OK;
    if (w->steps <= w->per_epoch)
        return fgio_error("--stage-feedback sample sends how the activations of a sample have changed, but the %llu "
                          "steps of this run are within one epoch of %llu: no sample is seen twice",
                          (unsigned long long)w->steps, (unsigned long long)w->per_epoch);
    if (w->run->batch > info->count[FGT_TRAIN])
        return fgio_error("--stage-feedback sample has one memory for each sample, and a batch of %zu has some of the "
                          "%zu samples twice",
                          (size_t)w->run->batch, (size_t)info->count[FGT_TRAIN]);
    if (info->tokens && (info->task == FGT_TASK_LANGUAGE || info->task == FGT_TASK_MASKED))
        return fgio_error("--stage-feedback sample sends how the activations of a sample have changed, but windows of "
                          "a text begin elsewhere in every epoch; it is for sentences and images");
    if (info->augment && strcmp(info->augment, "none") != 0)
        return fgio_error("--stage-feedback sample sends how the activations of a sample have changed, but with "
                          "--augment %s every epoch has other images; use --augment none",
                          info->augment);
    return FGIO_EXIT_OK;
}

/* This worker's stage of the model. The layout is that of all parameters, because random numbers of residuals and
 * states depend on positions in it; those of other stages are absent. */
static int open_stage(fgt_worker *w, const fgt_build_options *build) {
    const fgt_run *run = w->run;
    const fgt_data_info *info = fgt_data_get_info(run->data);
    const bool keyed = run->job->stage_feedback != NULL;
    fgt_pipeline_options options = {.comm = w->comm,
                                    .model = &run->model,
                                    .info = info,
                                    .build = *build,
                                    .config = &run->stage_config,
                                    .accumulate = w->accumulate,
                                    .steps = w->steps,
                                    .keyed_samples = keyed ? info->count[FGT_TRAIN] : 0};
    int status = check_samples_repeat(w);
    if (status != FGIO_EXIT_OK)
        return status;
    w->ids = calloc(run->batch, sizeof *w->ids);
    if (!w->ids || frug_comm_self(&w->exchange_comm) != FRUG_OK)
        return fgio_error("not enough memory");
    return fgt_pipeline_create(&options, &w->pipeline, &w->graph, &w->layout);
}

static int open_stage_memory(fgt_worker *w) {
    return fgt_pipeline_open_memory(w->pipeline);
}

static int open_model(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    const fgt_data_info *info = fgt_data_get_info(w->run->data);
    fgt_build_options options = {.batch = (w->run->batch + w->accumulate - 1) / w->accumulate,
                                 .threads = (int)job->threads,
                                 .keep = fgt_run_keep(w->run)};
    int status =
        job->stages ? open_stage(w, &options) : fgt_model_build_with(&w->run->model, info, &options, &w->graph);
    if (status == FGIO_EXIT_OK && job->tune)
        status =
            fgt_finetune_plan(job->tune, w->run->model.task, job->threads, w->graph, w->optimizer_text, &w->tuning);
    if (status == FGIO_EXIT_OK && !job->stages)
        status =
            job->tune ? fgt_finetune_layout(w->graph, 0, NULL, &w->layout) : fgt_graph_layout(w->graph, &w->layout);
    if (status == FGIO_EXIT_OK)
        status = fgt_batch_create(info, w->run->batch, &w->batch);
    if (status != FGIO_EXIT_OK)
        return status;
    w->batch.threads = (int)job->threads;
    w->saved_buffers = calloc(buffer_floats(w) + 1, sizeof *w->saved_buffers);
    if (!w->saved_buffers)
        return fgio_error("not enough memory");
    w->dense_elements = frug_layout_elements(w->layout);
    w->graph->seed = job->seed;
    w->graph->worker = (uint64_t)w->replica;
    fgt_graph_init(w->graph, job->seed);
    if (job->weights && !w->resuming)
        status = load_weights(w);
    if (job->sparse && w->run->sparse.kind == FGT_SPARSE_ZEROS && !job->weights && !w->resuming)
        status = fgio_usage_error("--sparse zeros needs --weights with a pruned model: random weights have no zeros");
    if (status == FGIO_EXIT_OK && job->sparse)
        status = open_sparse(w);
    fgt_graph_quantize_activations(w->graph, w->run->quantize.activations);
    w->master = (fgt_master){.graph = w->graph, .bits = w->run->quantize.weights};
    return status == FGIO_EXIT_OK ? fgt_worker_begin_master(w) : status;
}

/* Fine-tuning: workers sum dense gradients, followed by the measurements. */
static int open_tuning(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_layout *layout = NULL;
    options.threads = 1;
    options.total_steps = w->steps;
    if (frug_optimizer_create(w->optimizer_text, w->layout, NULL, &w->optimizer) != FRUG_OK)
        return fgio_library_error("--method");
    w->tuning.head_states = 2 * w->tuning.head_params;
    w->tuning.states = frug_optimizer_state_count(w->optimizer) - w->tuning.head_states;
    w->tuning.optimizer_bytes = frug_optimizer_state_size(w->optimizer);
    if (job->alone || w->size == 1)
        return FGIO_EXIT_OK;
    w->measured_each = fgt_finetune_measured_each(job->tune, &w->tuning);
    w->measured = fgt_finetune_measured(w->graph, w->measured_each);
    int status = fgt_finetune_layout(w->graph, w->measured, &w->measured_at, &layout);
    if (status == FGIO_EXIT_OK) {
        frug_status made = frug_reducer_create(w->run->config, layout, &options, w->comm, &w->reducer);
        status = made == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "exchange", made);
    }
    frug_layout_destroy(layout);
    return status;
}

static int open_record(fgt_worker *w) {
    const fgt_finetune_options *tune = w->run->job->tune;
    if (!tune || !tune->record || w->rank != 0)
        return FGIO_EXIT_OK;
    return fgt_record_create(w->graph, tune->record_tensor ? tune->record_tensor : w->tuning.first, tune->record_steps,
                             &w->record);
}

static frug_compressor_options exchange_options(const fgt_worker *w) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    fgt_local_options local = fgt_local_options_of(w->run->config);
    options.threads = 1;
    options.total_steps = local.every ? fgt_local_rounds(local.every, w->steps) : w->steps;
    return options;
}

static int join_layout(fgt_worker *w) {
    frug_layout_destroy(w->joined);
    w->joined = NULL;
    return joins_tensors(w) ? fgt_mask_layout_joined(w->graph, &w->joined) : FGIO_EXIT_OK;
}

/* For joined tensors: the optimizer has them as they are, because only matrices decay, and takes its options from a
 * compressor that has them so. */
static frug_status create_unjoined_optimizer(const fgt_worker *w, frug_optimizer **optimizer) {
    frug_compressor_options options = exchange_options(w);
    frug_compressor *unjoined = NULL;
    frug_status status = frug_compressor_create(w->run->config, w->layout, &options, &unjoined);
    if (status == FRUG_OK)
        status = frug_optimizer_create(w->run->optimizer, w->layout, unjoined, optimizer);
    frug_compressor_destroy(unjoined);
    return status;
}

static int create_reducer(fgt_worker *w, frug_reducer **reducer) {
    frug_compressor_options options = exchange_options(w);
    const frug_layout *layout = w->joined ? w->joined : w->layout;
    if (w->run->job->alone || fgt_option_is(w->run->config, "reduce", "gossip"))
        return FGIO_EXIT_OK;
    frug_status status = frug_reducer_create(w->run->config, layout, &options, w->exchange_comm, reducer);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "exchange", status);
}

int fgt_worker_create_exchange(fgt_worker *w, frug_reducer **reducer, frug_optimizer **optimizer) {
    frug_reducer *made = NULL;
    frug_optimizer *steps = NULL;
    int status = join_layout(w);
    if (status == FGIO_EXIT_OK && w->joined && create_unjoined_optimizer(w, &steps) != FRUG_OK)
        status = fgio_library_error("--optimizer");
    if (status == FGIO_EXIT_OK)
        status = create_reducer(w, &made);
    if (status == FGIO_EXIT_OK && !w->joined &&
        frug_optimizer_create(w->run->optimizer, w->layout, made ? frug_reducer_compressor(made) : NULL, &steps) !=
            FRUG_OK)
        status = fgio_library_error("--optimizer");
    if (status != FGIO_EXIT_OK) {
        frug_reducer_destroy(made);
        frug_optimizer_destroy(steps);
        return status;
    }
    *optimizer = steps;
    *reducer = made;
    return FGIO_EXIT_OK;
}

static int open_gossip(fgt_worker *w) {
    frug_compressor_options options = exchange_options(w);
    if (w->run->job->alone || !fgt_option_is(w->run->config, "reduce", "gossip"))
        return FGIO_EXIT_OK;
    frug_status status =
        frug_gossip_create(w->run->config, w->layout, &options, w->comm, w->graph->weights, &w->gossip);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "exchange", status);
}

static int open_exchange(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    fgt_local_options local = fgt_local_options_of(w->run->config);
    if (job->tune)
        return open_tuning(w);
    int status = open_gossip(w);
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_create_exchange(w, &w->reducer, &w->optimizer);
    if (status != FGIO_EXIT_OK)
        return status;
    if (w->rank == 0)
        fgt_warn_optimizer(job, &w->run->model, w->run->config, frug_optimizer_text(w->optimizer));
    if (w->reducer && fgt_transform_create(w->run->config, w->layout, &w->transform) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    return local.every > 0 && w->reducer ? fgt_local_create(w->reducer, &local, w->size, w->graph->weights,
                                                            frug_layout_elements(w->layout), &w->local)
                                         : FGIO_EXIT_OK;
}

/* Bytes of weights, and of residual and optimizer states, of all stages. */
static int gather_stage_bytes(fgt_worker *w) {
    const frug_compressor *c = w->reducer ? frug_reducer_compressor(w->reducer) : NULL;
    const fgt_stage_bytes mine = {fgt_graph_weight_index(w->graph, w->graph->elements) * sizeof(float),
                                  frug_compressor_state_size(c) + frug_optimizer_state_size(w->optimizer)};
    frug_status status = frug_comm_allgather(w->comm, &mine, sizeof mine, w->stage_bytes);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "stages", status);
}

static int open_messages(fgt_worker *w) {
    bool shared = w->run->job->clip_auto && !w->pipeline; /* stages have limits of their own */
    w->message_count = FGT_STEP_DOUBLES + (shared ? fgt_buckets_norm_limits(w->buckets)->count : 0);
    w->message = calloc(w->message_count, sizeof *w->message);
    w->messages = calloc(w->message_count * (size_t)w->size, sizeof *w->messages);
    return w->message && w->messages ? FGIO_EXIT_OK : fgio_error("not enough memory");
}

/* The squared norm of the gradients of all stages, from the last to the first as in the backward pass. */
static double sum_norms(void *ctx, double norm2) {
    const fgt_worker *w = ctx;
    double sum = 0, all[FGT_STAGES_MAX];
    if (frug_comm_allgather(w->comm, &norm2, sizeof norm2, all) != FRUG_OK)
        return norm2; /* the exchange after the step fails too */
    for (int r = w->size - 1; r >= 0; r--)
        sum += all[r];
    return sum;
}

static int open_buckets(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    frug_reducer *reducer = w->local ? NULL : w->reducer; /* of gradients */
    bool dense = !job->tune && reducer && strcmp(frug_reducer_algorithm(reducer), "dense") == 0;
    fgt_buckets_options want = {.graph = w->graph,
                                .reducer = reducer,
                                .optimizer = w->optimizer,
                                .transform = w->transform,
                                .workers = reducer ? w->replicas : 1,
                                .bytes = job->bucket_bytes,
                                .full_gradient = dense,
                                .deferred_update = dense && (job->clip > 0 || job->clip_auto),
                                .auto_clip = job->clip_auto,
                                .all_numbered = w->pipeline != NULL,
                                .sum_norms = w->pipeline ? sum_norms : NULL,
                                .sum_norms_ctx = w,
                                .overlap = job->overlap,
                                .passes = w->accumulate,
                                .measured_at = w->measured_at,
                                .measured = w->measured,
                                .measured_each = w->measured_each,
                                .count_sent = job->tune != NULL,
                                .weights = w->master.weights,
                                .packed = w->sparse != NULL,
                                .growth = w->sparse ? w->sparse->growth : NULL};
    if (open_record(w) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    want.record = w->record;
    if (dense && want.bytes == 0 && !w->joined) /* joined: the layout has the buckets of fgt_buckets_assign_packed() */
        want.bytes = 25u << 20;                 /* as in other systems */
    w->clip = fgt_clip_init(job->clip, FGT_CLIP_SMOOTH);
    w->step_seconds = calloc(FGT_STEP_TIMES_MAX, sizeof *w->step_seconds);
    int status = w->step_seconds ? fgt_buckets_create(&want, &w->buckets) : fgio_error("not enough memory");
    if (status == FGIO_EXIT_OK && w->pipeline)
        fgt_pipeline_set_tiles(w->pipeline);
    return status == FGIO_EXIT_OK ? open_messages(w) : status;
}

/* Each step is complete on all workers before the next begins, so that no worker waits for one that has failed. */
int fgt_worker_open(fgt_worker *w, fgt_run *run, frug_comm *comm, bool training) {
    *w = (fgt_worker){.run = run,
                      .comm = comm,
                      .rank = frug_comm_rank(comm),
                      .size = frug_comm_size(comm),
                      .accumulate = run->accumulate ? run->accumulate : 1,
                      .norm = -1,
                      .save_lock = -1};
    w->replica = run->job->stages ? 0 : w->rank;
    w->replicas = run->job->stages ? 1 : w->size;
    w->exchange_comm = run->job->stages ? NULL : comm;
    count_steps(w);
    int status = fgt_worker_collective(w, check_same_settings);
    if (status == FGIO_EXIT_OK && training)
        status = fgt_worker_collective(w, fgt_worker_lock_save);
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_collective(w, fgt_worker_find_checkpoint);
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_collective(w, open_model);
    if (status == FGIO_EXIT_OK && w->pipeline)
        status = fgt_worker_collective(w, open_stage_memory);
    if (status == FGIO_EXIT_OK && w->size > 1)
        status = fgt_worker_collective(w, fgt_worker_check_weights);
    if (status == FGIO_EXIT_OK && training)
        status = fgt_worker_collective(w, open_exchange);
    if (status == FGIO_EXIT_OK && training && w->pipeline)
        status = fgt_worker_collective(w, gather_stage_bytes);
    if (status == FGIO_EXIT_OK && training)
        status = fgt_worker_collective(w, open_buckets);
    return status;
}

void fgt_worker_close(fgt_worker *w) {
    frug_reducer_destroy(w->reducer); /* after an error buckets may be in flight: its thread uses those below */
    fgt_buckets_destroy(w->buckets);
    fgt_record_destroy(w->record);
    frug_optimizer_destroy(w->optimizer);
    if (w->exchange_comm != w->comm)
        frug_comm_destroy(w->exchange_comm);
    fgt_transform_destroy(w->transform);
    fgt_local_destroy(w->local);
    frug_gossip_destroy(w->gossip);
    frug_layout_destroy(w->layout);
    frug_layout_destroy(w->joined);
    fgt_batch_destroy(&w->batch);
    fgt_sparse_destroy(w->sparse);
    fgt_master_free(&w->master);
    fgt_pipeline_destroy(w->pipeline);
    fgt_graph_destroy(w->graph);
    free(w->ids);
    free(w->saved_buffers);
    free(w->step_seconds);
    free(w->message);
    free(w->messages);
    if (w->save_lock >= 0)
        close(w->save_lock);
}

uint64_t fgt_worker_trainable(const fgt_worker *w) {
    uint64_t sum = 0;
    for (const fgt_param *p = w->graph->params; p; p = p->next)
        sum += p->frozen ? 0 : (uint64_t)p->rows * p->cols;
    return sum;
}

/* For fine-tuning, dense is the size of the gradients of the trainable tensors. */
static fgt_traffic tuning_traffic(const fgt_worker *w, fgt_traffic t) {
    frug_reduce_stats exchange = {.struct_size = sizeof exchange};
    uint64_t trainable = fgt_worker_trainable(w), sent = fgt_buckets_floats_sent(w->buckets), P = (uint64_t)w->size;
    if (w->reducer) {
        frug_reducer_stats(w->reducer, &exchange);
        t.bytes += exchange.bytes_sent;
        t.dense += w->steps_here * (2 * trainable * sizeof(float) * (P - 1) / P);
    } else {
        t.bytes += sent * sizeof(float);
        t.dense += w->steps_here * trainable * sizeof(float);
    }
    t.entries += (double)sent;
    t.seen += (double)(w->steps_here * trainable);
    return t;
}

void fgt_worker_exchange_stats(const fgt_worker *w, frug_reduce_stats *stats) {
    if (w->reducer)
        frug_reducer_stats(w->reducer, stats);
    else if (w->gossip)
        frug_gossip_stats(w->gossip, stats);
    stats->seconds_compress += w->times_before.seconds_compress;
    stats->seconds_wait += w->times_before.seconds_wait;
    stats->seconds_wire += w->times_before.seconds_wire;
    stats->seconds_decode += w->times_before.seconds_decode;
}

fgt_traffic fgt_worker_traffic(const fgt_worker *w) {
    fgt_traffic t = {w->bytes_before, w->dense_before, w->entries_before, w->seen_before};
    frug_reduce_stats exchange = {.struct_size = sizeof exchange};
    frug_stats stats = {.struct_size = sizeof stats};
    if (w->run->job->tune && !w->run->job->alone)
        return tuning_traffic(w, t);
    if (w->pipeline) { /* one model: its gradients are not sent, activations are */
        t.bytes += w->link_bytes;
        t.dense += w->link_dense;
    }
    if (!w->reducer && !w->gossip)
        return t;
    fgt_worker_exchange_stats(w, &exchange);
    frug_compressor_stats(w->reducer ? frug_reducer_compressor(w->reducer) : frug_gossip_compressor(w->gossip), &stats);
    bool counted = stats.calls > 0 || w->local; /* by the compressor; reduce=dense does not use it */
    uint64_t here = (w->steps_here - w->steps_before) * frug_layout_elements(w->layout), P = (uint64_t)w->size;
    if (w->size > 1 && !w->pipeline) { /* what a ring all-reduce would send; rounded per step, so that a resumed run has
                                          the same sum */
        t.bytes += exchange.bytes_sent;
        t.dense += w->steps_here * (2 * w->dense_elements * sizeof(float) * (P - 1) / P);
    } else if (!w->pipeline) { /* nothing is sent: the size of the frames */
        t.bytes += counted ? stats.bytes_sent : here * sizeof(float);
        t.dense += w->steps_here * w->dense_elements * sizeof(float);
    }
    t.entries += counted ? (double)stats.entries_sent : (double)here;
    t.seen += counted ? (double)stats.entries_seen : (double)here;
    return t;
}

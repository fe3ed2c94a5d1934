/* job.c - a job from beginning to end: parse the options, open the data once, run every worker, and report. */
#include "trainer/run/job.h"

#include "trainer/base/blas.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/nn/ops.h"
#include "trainer/run/defaults.h"
#include "base/clock.h"
#include "trainer/data/data_source.h"
#include "trainer/run/memory_fit.h"
#include "trainer/base/counted_alloc.h"
#include "io/progress.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"
#include "trainer/run/worker.h"

#include <math.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* With gossip every worker has its own weights, momenta and copies of its neighbors, which no checkpoint holds. */
static int check_gossip(const fgt_run *run) {
    const fgt_job *job = run->job;
    if (!fgt_option_is(run->config, "reduce", "gossip") || run->quality || job->alone)
        return FGIO_EXIT_OK;
    if (job->resume)
        return fgio_error(
            "--resume: a run with reduce=gossip cannot be resumed: its workers differ, and a checkpoint has "
            "only their mean; --weights starts a new run from one");
    if (job->save && job->save_every)
        return fgio_error("--save-every: with reduce=gossip workers differ until the end, so only one checkpoint is "
                          "written then, of their mean; omit this option");
    return FGIO_EXIT_OK;
}

/* Sparse weights: reducer and optimizer get single weights, without rows, heads or blocks of a whole tensor, and are
 * created again when masks change. */
static int check_sparse(fgt_run *run) {
    const fgt_job *job = run->job;
    static const struct {
        const char *option, *value;
    } wanted[] = {{"unit", "element"}, {"local", "0"}, {"transform", "off"}};
    static const char *const optimizers[] = {"sgd", "adamw", "merged", "adam-merged", "sign"};
    size_t name = strcspn(run->optimizer, ":");
    bool known = false;
    if (!job->sparse)
        return FGIO_EXIT_OK;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        known |= strlen(optimizers[i]) == name && strncmp(run->optimizer, optimizers[i], name) == 0;
    if (!known)
        return fgio_usage_error(
            "--sparse needs an optimizer whose states belong to single weights: sgd, adamw, merged, "
            "adam-merged or sign, not %.*s",
            (int)name, run->optimizer);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!fgt_option_is(run->config, wanted[i].option, wanted[i].value))
            return fgio_usage_error("--sparse needs a method with %s=%s", wanted[i].option, wanted[i].value);
    if (fgt_option_is(run->config, "reduce", "gossip") || fgt_option_is(run->config, "feedback", "dgc") ||
        fgt_option_is(run->config, "feedback", "ef21"))
        return fgio_usage_error("--sparse does not support reduce=gossip, feedback=dgc and feedback=ef21");
    return fgt_sparse_parse(job->sparse, &run->sparse);
}

/* Gossip and local steps change the weights of the model themselves. */
static int check_quantize(fgt_run *run) {
    const fgt_job *job = run->job;
    if (!job->quantize)
        return FGIO_EXIT_OK;
    if (fgt_option_is(run->config, "reduce", "gossip") || !fgt_option_is(run->config, "local", "0"))
        return fgio_usage_error("--quantize does not support reduce=gossip and local");
    return fgt_quantize_parse(job->quantize, &run->quantize);
}

/* Stages have parts of one model: methods that exchange weights, or compare weights of all layers, are not built for
 * that. */
static int check_stages(fgt_run *run) {
    const fgt_job *job = run->job;
    const char *config = job->stage_config ? job->stage_config : FGT_STAGE_CONFIG_DEFAULT;
    const int size = fgt_group_size((int)job->stages);
    if (!job->stages)
        return FGIO_EXIT_OK;
    if (run->quality)
        return fgio_usage_error("--stages is for training; an evaluation has the whole model");
    if (size != (int)job->stages)
        return fgio_usage_error("--stages %u: mpirun has started %d processes; each stage is one process", job->stages,
                                size);
    if (job->sparse || job->quantize || job->tune)
        return fgio_usage_error("--stages does not support %s", job->sparse     ? "--sparse"
                                                                : job->quantize ? "--quantize"
                                                                                : "fine-tuning");
    if (fgt_option_is(run->config, "reduce", "gossip") || !fgt_option_is(run->config, "local", "0"))
        return fgio_usage_error("--stages does not support reduce=gossip and local");
    if (job->alone)
        return fgio_usage_error("--stages and --alone: a stage needs the activations of the one before it");
    return fgt_stage_config_parse(config, &run->stage_config);
}

static int open_data(fgt_run *run) {
    const fgt_job *job = run->job;
    const fgt_model *m = &run->model;
    fgt_data_options want = {.task = m->task,
                             .path = job->data,
                             .tokens = job->tokens,
                             .subset = job->subset,
                             .length = m->length,
                             .channels = m->channels,
                             .height = m->height,
                             .width = m->width,
                             .classes = m->classes,
                             .vocab = m->vocab,
                             .samples = job->samples,
                             .hold_out = job->hold_out,
                             .augment =
                                 run->quality ? FGT_AUGMENT_NONE : job->augment, /* no augmentation in an evaluation */
                             .seed = job->seed};
    return fgt_data_open(&want, &run->data);
}

static bool read_units_of(const char *from, fgt_model *model) {
    char path[PATH_MAX];
    return from && fgt_checkpoint_newest(from, path, sizeof path) == FGIO_EXIT_OK &&
           fgt_model_read_units(path, model) == FGIO_EXIT_OK;
}

/* Sizes of layers of which units were removed; errors of the file are reported when it is opened for use. */
static void read_units(fgt_run *run) {
    fgio_errors_mute(1);
    if (!read_units_of(run->job->resume, &run->model))
        read_units_of(run->job->weights, &run->model);
    fgio_errors_mute(0);
}

static uint32_t worker_threads(const fgt_job *job) {
    return job->stages ? job->stages : job->workers;
}

static int open_model(fgt_run *run) {
    const fgt_job *job = run->job;
    int status = fgt_blas_init((uint64_t)job->threads * (fgt_group_is_joined() ? 1 : worker_threads(job)));
    if (status == FGIO_EXIT_OK)
        status = fgt_model_parse(job->model, &run->model);
    if (status != FGIO_EXIT_OK)
        return status;
    read_units(run);
    run->trained = job->weights != NULL || (job->resume && fgt_resume_began_trained(job->resume));
    return FGIO_EXIT_OK;
}

/* What the files say of the model, as process 0 has read them: only it needs the disk with the checkpoints. */
static int share_model(fgt_run *run) {
    struct {
        uint32_t units[2][FGT_LAYERS_MAX], trained;
    } mine = {.trained = run->trained}, *all = calloc((size_t)fgt_group_size(1), sizeof *all);
    memcpy(mine.units, run->model.units, sizeof mine.units);
    int status = all ? fgt_group_gather(&mine, sizeof mine, all) : fgio_error("not enough memory");
    if (status == FGIO_EXIT_OK) {
        memcpy(run->model.units, all[0].units, sizeof mine.units);
        run->trained = all[0].trained != 0;
    }
    free(all);
    return status;
}

static int open_run(fgt_run *run) {
    const fgt_job *job = run->job;
    run->batch = job->batch ? job->batch : fgt_default_batch(run->model.task);
    run->schedule = job->schedule ? job->schedule : fgt_default_schedule(run->model.task, run->trained);
    int status = fgt_rate_parse(run->schedule, &run->rate);
    if (status == FGIO_EXIT_OK)
        status =
            fgt_default_optimizer(job, &run->model, run->trained, run->optimizer, sizeof run->optimizer, &run->config);
    if (status == FGIO_EXIT_OK)
        snprintf(run->report->config, sizeof run->report->config, "%s", frug_config_text(run->config));
    run->base_rate = job->rate > 0 ? job->rate : fgt_default_rate(job, &run->model, run->trained, run->optimizer);
    if (status == FGIO_EXIT_OK)
        status = check_gossip(run);
    if (status == FGIO_EXIT_OK)
        status = check_sparse(run);
    if (status == FGIO_EXIT_OK)
        status = check_quantize(run);
    if (status == FGIO_EXIT_OK)
        status = check_stages(run);
    if (status == FGIO_EXIT_OK)
        status = open_data(run);
    if (status == FGIO_EXIT_OK && fgt_data_get_info(run->data)->count[FGT_TRAIN] == 0 && !run->quality)
        status = fgio_error("%s: no training samples", job->data);
    if (status == FGIO_EXIT_OK && job->judge_valid && fgt_data_get_info(run->data)->count[FGT_VALID] == 0)
        status = fgio_error("%s: has no validation split to evaluate on; --hold-out COUNT makes one", job->data);
    if (status == FGIO_EXIT_OK && job->judge_test && fgt_data_get_info(run->data)->count[FGT_TEST] == 0)
        status = fgio_error("%s: has no test split to evaluate on", job->data);
    return status;
}

/* ---- the report ---- */

static int compare_floats(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report_times(const fgt_worker *w, fgt_report *r) {
    double steps = w->steps_here ? (double)w->steps_here : 1, ms = 1000 / steps;
    frug_reduce_stats s = {.struct_size = sizeof s};
    fgt_worker_exchange_stats(w, &s);
    size_t known = w->steps_here < FGT_STEP_TIMES_MAX ? (size_t)w->steps_here : FGT_STEP_TIMES_MAX;
    qsort(w->step_seconds, known, sizeof *w->step_seconds, compare_floats);
    r->step_ms = known ? 1000.0 * (double)w->step_seconds[known / 2] : 0;
    r->seconds = w->times.total;
    r->ms_data = ms * w->times.data;
    r->ms_forward = ms * w->times.forward;
    r->ms_blocked = ms * fgt_buckets_wait_seconds(w->buckets);
    r->ms_backward = ms * w->times.backward - r->ms_blocked;
    r->ms_optimizer = ms * fgt_buckets_optimizer_seconds(w->buckets);
    r->ms_compress = ms * s.seconds_compress;
    r->ms_wait = ms * s.seconds_wait;
    r->ms_wire = ms * s.seconds_wire;
    r->ms_decode = ms * s.seconds_decode;
    if (w->pipeline) {
        fgt_channel_stats links = fgt_pipeline_stats(w->pipeline);
        r->ms_compress += ms * links.seconds_compress;
        r->ms_wait += ms * links.seconds_wait;
        r->ms_wire += ms * links.seconds_wire;
        r->ms_decode += ms * links.seconds_decode;
    }
}

/* Optimizer and exchange run within backward, unless they have a thread of their own. */
static void report_tuning(const fgt_worker *w, fgt_report *r) {
    double ms = 1000 / (w->steps_here ? (double)w->steps_here : 1);
    frug_optimizer_times times = {.struct_size = sizeof times};
    fgt_finetune_result *t = &r->tuning;
    *t = w->tuning;
    frug_optimizer_time(w->optimizer, &times);
    t->ms_backward = r->ms_backward - ms * fgt_buckets_inline_seconds(w->buckets);
    t->ms_project = ms * times.seconds_project;
    t->ms_recover = ms * times.seconds_recover;
    t->ms_apply = r->ms_optimizer - t->ms_project - t->ms_recover; /* including AdamW of the head */
    t->ms_exchange = r->ms_compress + r->ms_wait + r->ms_wire + r->ms_decode;
    double other =
        ms * r->seconds - r->ms_forward - t->ms_backward - t->ms_project - t->ms_recover - t->ms_apply - t->ms_exchange;
    t->ms_other = other > 0 ? other : 0;
}

static void report_memory(fgt_report *r) {
    uint64_t library = 0, here = fgt_group_is_joined() ? 1 : r->stages ? r->stages : r->workers;
    struct rusage usage;
    frug_memory(NULL, &library);
    r->weight_bytes = fgt_counted_peak(FGT_USE_WEIGHTS) / here;
    r->gradient_bytes = fgt_counted_peak(FGT_USE_GRADIENTS) / here;
    r->library_bytes = (library + fgt_counted_peak(FGT_USE_EXCHANGE)) / here;
    r->activation_bytes = fgt_counted_peak(FGT_USE_ACTIVATIONS) / here;
    r->model_state_bytes = r->weight_bytes + r->gradient_bytes + r->library_bytes;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        r->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
}

static void report_size(const fgt_worker *w, fgt_report *r) {
    r->workers = (uint32_t)w->replicas;
    r->stages = w->pipeline ? (uint32_t)w->size : 0;
    memcpy(r->stage_bytes, w->stage_bytes, sizeof r->stage_bytes);
    r->batch = w->run->batch;
    r->accumulate = w->accumulate;
    r->params = 0;
    for (const fgt_param *p = w->graph->params; p; p = p->next)
        r->params += (uint64_t)p->rows * p->cols;
}

/* Parameters of tensors that are sent dense: of one dimension, or too small to compress. */
static uint64_t count_params_sent_whole(const fgt_worker *w) {
    const frug_compressor *c = w->reducer ? frug_reducer_compressor(w->reducer) : NULL;
    const frug_layout *layout = w->joined ? w->joined : w->layout;
    uint64_t sum = 0;
    for (size_t i = 0; c && i < frug_layout_count(layout); i++) {
        frug_tensor_plan plan = {.struct_size = sizeof plan};
        frug_tensor tensor = FRUG_TENSOR_INIT;
        uint64_t count = 1;
        if (frug_compressor_plan(c, w->step, i, &plan) != FRUG_OK || frug_layout_get(layout, i, &tensor) != FRUG_OK)
            continue;
        for (uint32_t d = 0; d < tensor.ndim; d++)
            count *= tensor.shape[d];
        sum += plan.dense ? count : 0;
    }
    return sum;
}

/* The part of the report that is known before the first step. */
static void report_settings(const fgt_worker *w, fgt_report *r) {
    const fgt_data_info *info = fgt_data_get_info(w->run->data);
    report_size(w, r);
    r->params_whole = count_params_sent_whole(w);
    r->rate = w->run->base_rate;
    r->schedule = w->run->schedule;
    snprintf(r->tokens, sizeof r->tokens, "%s", info->tokens ? info->tokens : "");
    r->steps = w->steps;
    r->step = w->step;
    r->gain = frug_optimizer_gain(w->optimizer, r->rate);
    snprintf(r->algorithm, sizeof r->algorithm, "%s",
             w->reducer  ? frug_reducer_algorithm(w->reducer)
             : w->gossip ? "gossip"
                         : "none");
    snprintf(r->optimizer, sizeof r->optimizer, "%s", frug_optimizer_text(w->optimizer));
    r->augment = fgt_data_get_info(w->run->data)->augment;
    r->tuning = w->tuning;
}

static void report_end(const fgt_worker *w, fgt_report *r) {
    fgt_traffic t = fgt_worker_traffic(w);
    r->step = w->step;
    r->params_kept = w->sparse ? fgt_mask_packed(w->graph) : r->params;
    r->bytes_sent = t.bytes;
    r->bytes_dense = t.dense;
    r->density_mean = t.seen > 0 ? t.entries / t.seen : 1;
    r->train_loss = w->loss_tail_count > 0 ? w->loss_tail / w->loss_tail_count : (double)NAN;
    r->interrupted = w->interrupted;
    if (r->quality.step != w->step)
        r->quality.loss = (double)NAN; /* an evaluation of earlier weights */
    report_times(w, r);
    if (w->run->job->tune)
        report_tuning(w, r);
    report_memory(r);
}

/* ---- the workers ---- */

static int open_worker(fgt_worker *w, fgt_run *run, frug_comm *comm, bool training) {
    fgio_progress *meter = frug_comm_rank(comm) == 0 ? fgio_progress_begin(0, "preparing %s", run->job->model) : NULL;
    int status = fgt_worker_open(w, run, comm, training);
    fgio_progress_end(meter);
    return status;
}

static int train_worker(frug_comm *comm, void *shared) {
    fgt_run *run = shared;
    fgt_worker w;
    int status = open_worker(&w, run, comm, true);
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_collective(&w, fgt_worker_resume);
    if (status == FGIO_EXIT_OK) {
        if (w.rank == 0) {
            report_settings(&w, run->report);
            if (run->callbacks && run->callbacks->begin)
                run->callbacks->begin(run->callbacks->ctx, run->report, w.step);
        }
        status = fgt_worker_train(&w);
        if (w.rank == 0)
            report_end(&w, run->report);
    }
    fgt_worker_close(&w);
    return status;
}

static int empty_split(const fgt_run *run, fgt_split split) {
    const uint64_t *count = fgt_data_get_info(run->data)->count;
    return fgio_error("%s: the %s split is empty; there are %llu samples in train, %llu in valid and %llu in test",
                      run->job->data, fgt_split_names[split], (unsigned long long)count[FGT_TRAIN],
                      (unsigned long long)count[FGT_VALID], (unsigned long long)count[FGT_TEST]);
}

static int evaluate_worker(frug_comm *comm, void *shared) {
    fgt_run *run = shared;
    fgt_worker w;
    fgt_eval_result quality;
    int status = open_worker(&w, run, comm, false);
    if (status == FGIO_EXIT_OK && run->job->resume)
        status = fgt_worker_collective(&w, fgt_worker_load_weights);
    fgt_split split = run->split == FGT_SPLITS ? fgt_worker_eval_split(&w, true) : run->split;
    if (status == FGIO_EXIT_OK && fgt_data_get_info(run->data)->count[split] == 0)
        status = w.rank == 0 ? empty_split(run, split) : FGIO_EXIT_FAIL;
    if (status == FGIO_EXIT_OK && run->job->inspect && !fgt_linear_measure_inputs(w.graph))
        status = fgio_error("not enough memory for the norms of inputs");
    if (status == FGIO_EXIT_OK && run->job->activations > 0)
        status = fgt_worker_collective(&w, fgt_worker_calibrate);
    double start = frugi_clock();
    bool together;
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_evaluate(&w, split, &quality, &together);
    if (status == FGIO_EXIT_OK && w.rank == 0) {
        *run->quality = quality;
        run->report->seconds = frugi_clock() - start;
        report_size(&w, run->report);
        report_memory(run->report);
        if (run->job->inspect)
            run->job->inspect(run->job->inspect_ctx, w.graph);
    }
    fgt_worker_close(&w);
    return status;
}

static int fit_memory(fgt_run *run) {
    fgt_memory_recall_accumulate(run);
    fgio_errors_defer();
    int status = fgt_group_agree_joined(fgt_memory_choose_accumulate(run));
    if (status != FGIO_EXIT_OK)
        return status;
    fgio_errors_defer();
    return fgt_group_agree_joined(fgt_memory_agree_accumulate(run));
}

static int run_job(fgt_run *run, fgt_group_fn *work) {
    *run->report = (fgt_report){.quality.loss = (double)NAN, .before.loss = (double)NAN};
    fgt_group_set_timeout(run->job->timeout > 0 ? run->job->timeout : FGT_GROUP_TIMEOUT);
    fgio_errors_defer();
    int status = fgt_group_agree_joined(open_model(run));
    if (status == FGIO_EXIT_OK)
        status = share_model(run);
    if (status == FGIO_EXIT_OK) {
        fgio_errors_defer();
        status = fgt_group_agree_joined(open_run(run));
    }
    if (status == FGIO_EXIT_OK)
        status = fit_memory(run);
    if (status == FGIO_EXIT_OK)
        status = fgt_group_run((int)worker_threads(run->job), work, run);
    fgt_stage_config_destroy(&run->stage_config);
    fgt_data_close(run->data);
    frug_config_destroy(run->config);
    return status;
}

int fgt_job_train(const fgt_job *job, const fgt_job_callbacks *callbacks, fgt_report *report) {
    fgt_run run = {.job = job, .callbacks = callbacks, .report = report};
    int status = run_job(&run, train_worker);
    fgt_worker_clear_interrupt();
    return status;
}

int fgt_job_eval(const fgt_job *job, fgt_split split, fgt_eval_result *quality, fgt_report *report) {
    fgt_run run = {.job = job, .report = report, .split = split, .quality = quality};
    return run_job(&run, evaluate_worker);
}

/*
 * job.c - a job from beginning to end: read what is asked, open the data once, let every worker do its part, and
 * report.
 */
#include "trainer/run/job.h"

#include "trainer/base/blas.h"
#include "trainer/checkpoint/checkpoint.h"
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
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Workers that gossip have weights, momenta and knowledge of each other of their own, which no checkpoint holds. */
static int check_gossip(const fgt_crew *crew) {
    const fgt_job *job = crew->job;
    if (!strstr(crew->report->config, "reduce=gossip") || crew->quality || job->alone)
        return FGIO_EXIT_OK;
    if (job->resume)
        return fgio_error("--resume: a run with reduce=gossip cannot go on: its workers differ, and a checkpoint holds "
                          "their mean; --weights begins a new run from one");
    if (job->save && job->save_every)
        return fgio_error("--save-every: with reduce=gossip workers differ until the end, so there is one checkpoint, "
                          "of their mean, then; leave this option out");
    return FGIO_EXIT_OK;
}

static int open_data(fgt_crew *crew) {
    const fgt_job *job = crew->job;
    const fgt_model *m = &crew->model;
    fgt_data_want want = {.task = m->task,
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
                          .augment = crew->quality ? FGT_AUGMENT_NONE : job->augment, /* what is judged is not moved */
                          .seed = job->seed};
    return fgt_data_open(&want, &crew->data);
}

static int open_crew(fgt_crew *crew) {
    const fgt_job *job = crew->job;
    int status = fgt_blas_begin((uint64_t)job->threads * (fgt_team_joined() ? 1 : job->workers));
    if (status == FGIO_EXIT_OK)
        status = fgt_model_parse(job->model, &crew->model);
    if (status != FGIO_EXIT_OK)
        return status;
    crew->batch = job->batch ? job->batch : fgt_default_batch(crew->model.task);
    status = fgt_rate_parse(job->schedule, &crew->rate);
    if (status == FGIO_EXIT_OK)
        status = fgt_default_optimizer(job, &crew->model, crew->optimizer, sizeof crew->optimizer, crew->report->config,
                                       sizeof crew->report->config);
    crew->base_rate = job->rate > 0 ? job->rate : fgt_default_rate(job, &crew->model, crew->optimizer);
    if (status == FGIO_EXIT_OK)
        status = check_gossip(crew);
    if (status == FGIO_EXIT_OK)
        status = open_data(crew);
    if (status == FGIO_EXIT_OK && fgt_data_about(crew->data)->count[FGT_TRAIN] == 0 && !crew->quality)
        status = fgio_error("%s: no training samples", job->data);
    if (status == FGIO_EXIT_OK && job->judge_valid && fgt_data_about(crew->data)->count[FGT_VALID] == 0)
        status = fgio_error("%s: has no validation split to be judged by; --hold-out COUNT makes one", job->data);
    if (status == FGIO_EXIT_OK && job->judge_test && fgt_data_about(crew->data)->count[FGT_TEST] == 0)
        status = fgio_error("%s: has no test split to be judged by", job->data);
    return status;
}

/* ---- the report ---- */

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report_times(const fgt_worker *w, fgt_report *r) {
    double steps = w->steps_here ? (double)w->steps_here : 1, ms = 1000 / steps;
    frug_reduce_stats s = {.struct_size = sizeof s};
    fgt_worker_exchanged(w, &s);
    size_t known = w->steps_here < FGT_STEPS_KNOWN ? (size_t)w->steps_here : FGT_STEPS_KNOWN;
    qsort(w->step_seconds, known, sizeof *w->step_seconds, by_size);
    r->step_ms = known ? 1000.0 * (double)w->step_seconds[known / 2] : 0;
    r->seconds = w->times.total;
    r->ms_data = ms * w->times.data;
    r->ms_forward = ms * w->times.forward;
    r->ms_blocked = ms * fgt_buckets_blocked(w->buckets);
    r->ms_backward = ms * w->times.backward - r->ms_blocked;
    r->ms_optimizer = ms * fgt_buckets_optimizer_seconds(w->buckets);
    r->ms_compress = ms * s.seconds_compress;
    r->ms_wait = ms * s.seconds_wait;
    r->ms_wire = ms * s.seconds_wire;
    r->ms_decode = ms * s.seconds_decode;
}

/* Optimiser and exchange happen within backward, unless they have a thread of their own. */
static void report_tuning(const fgt_worker *w, fgt_report *r) {
    double ms = 1000 / (w->steps_here ? (double)w->steps_here : 1);
    frug_optimizer_times times = {.struct_size = sizeof times};
    fgt_tuning *t = &r->tuning;
    *t = w->tuning;
    frug_optimizer_time(w->optimizer, &times);
    t->ms_backward = r->ms_backward - ms * fgt_buckets_inline_seconds(w->buckets);
    t->ms_project = ms * times.seconds_project;
    t->ms_recover = ms * times.seconds_recover;
    t->ms_apply = r->ms_optimizer - t->ms_project - t->ms_recover; /* with the head's AdamW */
    t->ms_exchange = r->ms_compress + r->ms_wait + r->ms_wire + r->ms_decode;
    double rest =
        ms * r->seconds - r->ms_forward - t->ms_backward - t->ms_project - t->ms_recover - t->ms_apply - t->ms_exchange;
    t->ms_other = rest > 0 ? rest : 0;
}

static void report_memory(fgt_report *r) {
    uint64_t library = 0, here = fgt_team_joined() ? 1 : r->workers;
    struct rusage usage;
    frug_memory(NULL, &library);
    r->weight_bytes = fgt_held_most(FGT_USE_WEIGHTS) / here;
    r->gradient_bytes = fgt_held_most(FGT_USE_GRADIENTS) / here;
    r->library_bytes = (library + fgt_held_most(FGT_USE_EXCHANGE)) / here;
    r->activation_bytes = fgt_held_most(FGT_USE_ACTIVATIONS) / here;
    r->model_state_bytes = r->weight_bytes + r->gradient_bytes + r->library_bytes;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        r->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
}

static void report_size(const fgt_worker *w, fgt_report *r) {
    r->workers = (uint32_t)w->size;
    r->batch = w->crew->batch;
    r->accumulate = w->accumulate;
    r->params = 0;
    for (const fgt_param *p = w->graph->params; p; p = p->next)
        r->params += (uint64_t)p->rows * p->cols;
}

/* Parameters of tensors that are sent whole: of one dimension, or too small to compress. */
static uint64_t params_whole(const fgt_worker *w) {
    const frug_compressor *c = w->reducer ? frug_reducer_compressor(w->reducer) : NULL;
    uint64_t sum = 0;
    for (size_t i = 0; c && i < frug_layout_count(w->layout); i++) {
        frug_plan plan = {.struct_size = sizeof plan};
        frug_tensor tensor = FRUG_TENSOR_INIT;
        uint64_t count = 1;
        if (frug_compressor_plan(c, w->step, i, &plan) != FRUG_OK || frug_layout_get(w->layout, i, &tensor) != FRUG_OK)
            continue;
        for (uint32_t d = 0; d < tensor.ndim; d++)
            count *= tensor.shape[d];
        sum += plan.dense ? count : 0;
    }
    return sum;
}

/* What is known before the first step. */
static void report_terms(const fgt_worker *w, fgt_report *r) {
    const fgt_data_info *info = fgt_data_about(w->crew->data);
    report_size(w, r);
    r->params_whole = params_whole(w);
    r->rate = w->crew->base_rate;
    snprintf(r->tokens, sizeof r->tokens, "%s", info->tokens ? info->tokens : "");
    r->steps = w->steps;
    r->step = w->step;
    r->gain = frug_optimizer_gain(w->optimizer);
    snprintf(r->algorithm, sizeof r->algorithm, "%s",
             w->reducer  ? frug_reducer_algorithm(w->reducer)
             : w->gossip ? "gossip"
                         : "none");
    snprintf(r->optimizer, sizeof r->optimizer, "%s", frug_optimizer_text(w->optimizer));
    r->augment = fgt_data_about(w->crew->data)->augment;
    r->tuning = w->tuning;
}

static void report_end(const fgt_worker *w, fgt_report *r) {
    fgt_traffic t = fgt_worker_traffic(w);
    r->step = w->step;
    r->bytes_sent = t.bytes;
    r->bytes_dense = t.dense;
    r->density_mean = t.seen > 0 ? t.entries / t.seen : 1;
    r->train_loss = w->loss_tail_count > 0 ? w->loss_tail / w->loss_tail_count : (double)NAN;
    r->interrupted = w->interrupted;
    report_times(w, r);
    if (w->crew->job->tune)
        report_tuning(w, r);
    report_memory(r);
}

/* ---- what each worker does ---- */

static int begin(fgt_worker *w, fgt_crew *crew, frug_comm *comm, bool training) {
    fgio_meter *meter = frug_comm_rank(comm) == 0 ? fgio_meter_begin(0, "preparing %s", crew->job->model) : NULL;
    int status = fgt_worker_begin(w, crew, comm, training);
    fgio_meter_end(meter);
    return status;
}

static int train(frug_comm *comm, void *shared) {
    fgt_crew *crew = shared;
    fgt_worker w;
    int status = begin(&w, crew, comm, true);
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_together(&w, fgt_worker_resume);
    if (status == FGIO_EXIT_OK) {
        if (w.rank == 0) {
            report_terms(&w, crew->report);
            if (crew->watch && crew->watch->begin)
                crew->watch->begin(crew->watch->ctx, crew->report, w.step);
        }
        status = fgt_worker_train(&w);
        if (w.rank == 0)
            report_end(&w, crew->report);
    }
    fgt_worker_end(&w);
    return status;
}

static int refuse_split(const fgt_crew *crew, fgt_split split) {
    const uint64_t *count = fgt_data_about(crew->data)->count;
    return fgio_error("%s: the %s split is empty; there are %llu samples in train, %llu in valid and %llu in test",
                      crew->job->data, fgt_split_names[split], (unsigned long long)count[FGT_TRAIN],
                      (unsigned long long)count[FGT_VALID], (unsigned long long)count[FGT_TEST]);
}

static int evaluate(frug_comm *comm, void *shared) {
    fgt_crew *crew = shared;
    fgt_worker w;
    fgt_quality quality;
    int status = begin(&w, crew, comm, false);
    if (status == FGIO_EXIT_OK && crew->job->resume)
        status = fgt_worker_together(&w, fgt_worker_load);
    fgt_split split = crew->split == FGT_SPLITS ? fgt_worker_split(&w, true) : crew->split;
    if (status == FGIO_EXIT_OK && fgt_data_about(crew->data)->count[split] == 0)
        status = w.rank == 0 ? refuse_split(crew, split) : FGIO_EXIT_FAIL;
    double start = frugi_clock();
    if (status == FGIO_EXIT_OK)
        status = fgt_worker_evaluate(&w, split, &quality);
    if (status == FGIO_EXIT_OK && w.rank == 0) {
        *crew->quality = quality;
        crew->report->seconds = frugi_clock() - start;
        report_size(&w, crew->report);
        report_memory(crew->report);
    }
    fgt_worker_end(&w);
    return status;
}

static int fit_crew(fgt_crew *crew) {
    fgt_fit_recall(crew);
    fgio_say_hold();
    int status = fgt_team_agree_joined(fgt_fit_choose(crew));
    if (status != FGIO_EXIT_OK)
        return status;
    fgio_say_hold();
    return fgt_team_agree_joined(fgt_fit_settle(crew));
}

static int run(fgt_crew *crew, fgt_team_fn *work) {
    *crew->report = (fgt_report){.quality.loss = (double)NAN, .before.loss = (double)NAN};
    fgt_team_set_timeout(crew->job->timeout > 0 ? crew->job->timeout : FGT_TEAM_TIMEOUT);
    fgio_say_hold();
    int status = fgt_team_agree_joined(open_crew(crew));
    if (status == FGIO_EXIT_OK)
        status = fit_crew(crew);
    if (status == FGIO_EXIT_OK)
        status = fgt_team_run((int)crew->job->workers, work, crew);
    fgt_data_close(crew->data);
    return status;
}

int fgt_job_train(const fgt_job *job, const fgt_watch *watch, fgt_report *report) {
    fgt_crew crew = {.job = job, .watch = watch, .report = report};
    int status = run(&crew, train);
    fgt_worker_forget_interrupt();
    return status;
}

int fgt_job_eval(const fgt_job *job, fgt_split split, fgt_quality *quality, fgt_report *report) {
    fgt_crew crew = {.job = job, .report = report, .split = split, .quality = quality};
    return run(&crew, evaluate);
}

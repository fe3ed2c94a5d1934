/*
 * train_loop.c - the training steps: load a batch, forward, backward into the buckets, and the exchange of step
 * statistics.
 *
 * After each step the workers exchange a few numbers (loss, norm, whether one was interrupted), so that all clip, log
 * and stop alike. All random numbers are a function of the step, so no generator state has to be saved.
 */
#include "frugrad/experimental.h"
#include "trainer/run/worker.h"

#include "base/clock.h"
#include "trainer/run/defaults.h"
#include "trainer/run/layer_density.h"
#include "io/progress.h"
#include "io/error.h"
#include "io/json.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_SHARE 10u /* the last 1/10 of the steps gives the training loss of the report */

static _Atomic int interrupt_requested; /* lock-free: set by signal handlers, read by all workers */

void fgt_job_interrupt(void) {
    atomic_store(&interrupt_requested, 1);
}

bool fgt_worker_interrupt_requested(void) {
    return atomic_load(&interrupt_requested) != 0;
}

void fgt_worker_clear_interrupt(void) {
    atomic_store(&interrupt_requested, 0);
}

/** What a worker sends to the others after a step: FGT_STEP_DOUBLES doubles. */
typedef struct step_summary {
    double loss, asked, right, norm2, stop;
    double bytes, bytes_dense; /* sent to other stages */
    double broken; /* a stage or a neighbor could not update; all stop after the step, since a worker that stopped alone
                      would leave the others waiting */
} step_summary;

_Static_assert(sizeof(step_summary) == FGT_STEP_DOUBLES * sizeof(double), "a message is an array of doubles");

/** Results of one step. */
typedef struct step_result {
    step_summary sum; /* over all workers */
    double begin;     /* time, before the batch was loaded */
    double rate, clipped, seconds;
    double stage_bytes[FGT_STAGES_MAX]; /* sent by each stage */
    fgt_traffic before;
} step_result;

/* Sum the messages of all workers, in rank order, into this worker's own. */
static int sum_over_workers(fgt_worker *w, step_summary mine, step_summary *sum) {
    const size_t n = w->message_count, size = n * sizeof *w->message;
    memcpy(w->message, &mine, sizeof mine);
    frug_status status = frug_comm_allgather(w->comm, w->message, size, w->messages);
    if (status != FRUG_OK)
        return fgt_worker_error(w, "after a step", status);
    memset(w->message, 0, size);
    for (int r = 0; r < w->size; r++)
        for (size_t i = 0; i < n; i++)
            w->message[i] += w->messages[(size_t)r * n + i];
    memcpy(sum, w->message, sizeof *sum);
    return FGIO_EXIT_OK;
}

/* The limits of the next step: from the mean over all workers of this step's norms. */
static void set_limited_norms(fgt_worker *w) {
    if (w->message_count > FGT_STEP_DOUBLES)
        memcpy(w->message + FGT_STEP_DOUBLES, fgt_buckets_limited_norms(w->buckets),
               (w->message_count - FGT_STEP_DOUBLES) * sizeof *w->message);
}

static void update_limits(fgt_worker *w) {
    if (!w->run->job->clip_auto)
        return;
    if (w->pipeline) {
        fgt_norm_limits_update(fgt_buckets_norm_limits(w->buckets), fgt_buckets_limited_norms(w->buckets));
        return;
    }
    for (size_t i = FGT_STEP_DOUBLES; i < w->message_count; i++)
        w->message[i] /= w->replicas;
    fgt_norm_limits_update(fgt_buckets_norm_limits(w->buckets), w->message + FGT_STEP_DOUBLES);
}

static int load_batch(fgt_worker *w) {
    uint64_t epoch = w->step / w->per_epoch, step = w->step % w->per_epoch;
    uint32_t n = w->run->batch;
    uint64_t first = (step * (uint64_t)w->replicas + (uint64_t)w->replica) * n;
    for (uint32_t i = 0; w->ids && i < n; i++)
        w->ids[i] = fgt_data_sample_index(w->run->data, epoch, first + i);
    return fgt_data_batch(w->run->data, FGT_TRAIN, epoch, first, n, &w->batch);
}

/* The batches of all workers: a file that one of them cannot read ends all before the step. */
static int load_batches(fgt_worker *w) {
    double t0 = frugi_clock();
    int status = fgt_data_reads_files(w->run->data) ? fgt_worker_collective(w, load_batch) : load_batch(w);
    w->times.data += frugi_clock() - t0;
    return status;
}

static frug_status run_stage(fgt_worker *w) {
    const bool keyed = w->run->job->stage_feedback != NULL;
    fgt_pipeline_batch batch = {.step = w->step,
                                .seed = w->run->job->seed,
                                .batch = &w->batch,
                                .ids = keyed ? w->ids : NULL,
                                .buckets = w->buckets};
    fgt_score sum;
    frug_status status = fgt_pipeline_run(w->pipeline, &batch, &sum);
    w->graph->score = sum;
    w->times.forward += batch.forward;
    w->times.backward += batch.backward;
    return status;
}

/* Forward and backward of every micro-batch; the loss is the mean over the whole batch. */
static frug_status run_passes(fgt_worker *w) {
    fgt_graph *g = w->graph;
    fgt_score sum = {0};
    if (w->pipeline)
        return run_stage(w);
    g->step = w->step;
    g->target_count = w->accumulate > 1 ? fgt_graph_target_count(g, &w->batch) : 0;
    for (uint32_t i = 0; i < w->accumulate; i++) {
        double t0 = frugi_clock();
        uint64_t n = w->batch.n, first = n * i / w->accumulate, end = n * (i + 1) / w->accumulate;
        fgt_batch part =
            fgt_batch_part(fgt_data_get_info(w->run->data), &w->batch, (uint32_t)first, (uint32_t)(end - first));
        g->offset = first;
        fgt_graph_forward(g, &part, true);
        fgt_score_add(&sum, &g->score);
        double t1 = frugi_clock();
        if (i > 0)
            fgt_buckets_next_pass(w->buckets);
        fgt_graph_backward(g, fgt_buckets_sink(w->buckets));
        w->times.forward += t1 - t0;
        w->times.backward += frugi_clock() - t1;
    }
    g->score = sum;
    g->target_count = 0;
    g->offset = 0;
    return FRUG_OK;
}

static frug_status compute_step(fgt_worker *w, double rate, float factor, double late_clip) {
    fgt_buckets_begin(w->buckets, w->step, rate, factor, false);
    frug_status status = run_passes(w);
    double t0 = frugi_clock();
    if (status == FRUG_OK)
        status = fgt_buckets_end(w->buckets, late_clip);
    w->times.backward += frugi_clock() - t0;
    fgt_master_project(&w->master, rate);
    return status;
}

/* The first step has no earlier norm: an extra backward pass computes it. */
static int measure_first_norm(fgt_worker *w) {
    step_summary sum;
    fgt_times times = w->times;
    fgt_worker_save_buffers(w); /* the running statistics must include the batch only once */
    fgt_buckets_begin(w->buckets, w->step, 0, 1, true);
    frug_status passed = run_passes(w);
    if (passed != FRUG_OK)
        return fgt_worker_error(w, "stages", passed);
    fgt_buckets_end(w->buckets, 0);
    fgt_worker_restore_buffers(w);
    w->times = times;
    int status = sum_over_workers(w, (step_summary){.norm2 = fgt_buckets_norm2(w->buckets)}, &sum);
    if (status == FGIO_EXIT_OK)
        fgt_clip_update(&w->clip, sqrt(sum.norm2 / w->replicas));
    return status;
}

static bool clips_exactly(const fgt_worker *w) {
    return !w->run->job->tune && w->reducer && !w->local && strcmp(frug_reducer_algorithm(w->reducer), "dense") == 0;
}

void fgt_worker_set_norm(fgt_worker *w, double norm) {
    w->norm = norm;
    if (norm >= 0 && w->reducer && !fgt_option_is(w->run->config, "norm", "off"))
        frug_compressor_set_signal(frug_reducer_compressor(w->reducer), FRUG_SIGNAL_NORM, 0, &norm, 1);
}

/* sent_before: by this stage before the step. */
static step_summary summary_of(const fgt_worker *w, bool broken, const fgt_channel_stats *sent_before) {
    const fgt_score *score = &w->graph->score;
    const bool has_loss = !w->pipeline || fgt_pipeline_has_loss(w->pipeline);
    double asked = score->count > 0 ? score->count : has_loss ? 1 : 0;
    step_summary mine = {.loss = asked > 0 ? score->loss / asked : 0,
                         .asked = asked,
                         .right = score->correct,
                         .norm2 = fgt_buckets_norm2(w->buckets),
                         .stop = atomic_load(&interrupt_requested),
                         .broken = broken};
    if (w->pipeline) {
        fgt_channel_stats sent = fgt_pipeline_stats(w->pipeline);
        mine.bytes = (double)(sent.bytes - sent_before->bytes);
        mine.bytes_dense = (double)(sent.bytes_dense - sent_before->bytes_dense);
    }
    return mine;
}

/* After the messages of all workers were exchanged. */
static void count_stage_bytes(fgt_worker *w, step_result *s) {
    for (int r = 0; w->pipeline && r < w->size; r++) {
        step_summary one;
        memcpy(&one, w->messages + (size_t)r * w->message_count, sizeof one);
        s->stage_bytes[r] = one.bytes;
    }
    w->link_bytes += (uint64_t)s->sum.bytes;
    w->link_dense += (uint64_t)s->sum.bytes_dense;
}

/* Whether workers may not know of this one's error before their sums are exchanged. With gossip only neighbors do. */
static bool others_go_on(const fgt_worker *w, frug_status status) {
    return w->pipeline ? !fgt_pipeline_has_failed(w->pipeline) : w->gossip && status != FRUG_ERR_COMM;
}

static int one_step(fgt_worker *w, step_result *s) {
    double clip = w->run->job->clip;
    s->before = fgt_worker_traffic(w);
    fgt_channel_stats sent = w->pipeline ? fgt_pipeline_stats(w->pipeline) : (fgt_channel_stats){0};
    bool lagging = clip > 0 && !clips_exactly(w);
    if (lagging && w->clip.weight == 0 && measure_first_norm(w) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    double factor = lagging ? fgt_clip_factor(&w->clip) : 1;
    s->rate = w->run->base_rate * fgt_rate_at(&w->run->rate, w->step, w->steps);
    frug_status status = compute_step(w, s->rate, (float)factor, clip);
    if (status == FRUG_OK && w->gossip)
        status = frug_gossip_step(w->gossip, w->step, w->graph->weights);
    if (status == FRUG_OK && w->local && fgt_local_is_due(w->local, w->step + 1, w->steps))
        status = fgt_local_exchange(w->local, w->step + 1);
    if (status != FRUG_OK)
        fgt_worker_error(w, w->pipeline ? "stages" : "exchange", status);
    if (status != FRUG_OK && !others_go_on(w, status))
        return FGIO_EXIT_FAIL;
    step_summary mine = summary_of(w, status != FRUG_OK, &sent);
    set_limited_norms(w);
    if (sum_over_workers(w, mine, &s->sum) != FGIO_EXIT_OK || s->sum.broken > 0)
        return FGIO_EXIT_FAIL;
    count_stage_bytes(w, s);
    update_limits(w);
    s->clipped = lagging ? factor : fgt_buckets_clip_factor(w->buckets);
    fgt_clip_update(&w->clip, sqrt(s->sum.norm2 / w->replicas));
    fgt_worker_set_norm(w, sqrt(s->sum.norm2 / w->replicas));
    s->seconds = frugi_clock() - s->begin;
    w->times.total += s->seconds;
    return FGIO_EXIT_OK;
}

static void report_step(fgt_worker *w, const step_result *s) {
    const fgt_job_callbacks *callbacks = w->run->callbacks;
    fgt_traffic now = fgt_worker_traffic(w);
    double seen = now.seen - s->before.seen, done = (double)w->steps_here, mean = w->times.total / done;
    fgt_progress p = {
        .step = w->step,
        .steps = w->steps,
        .epoch = (double)w->step / (double)w->per_epoch,
        .loss = s->sum.loss / w->replicas,
        .right = s->sum.right / s->sum.asked,
        .rate = s->rate,
        .gain = frug_optimizer_gain(w->optimizer, s->rate),
        .norm = sqrt(s->sum.norm2 / w->replicas),
        .clipped = s->clipped,
        .density = seen > 0   ? (now.entries - s->before.entries) / seen
                   : w->local ? 0
                              : 1,
        .seconds = s->seconds,
        .bytes_sent = now.bytes,
        .bytes_dense = now.dense,
        .stage_bytes = w->pipeline ? s->stage_bytes : NULL,
        .stages = w->pipeline ? (uint32_t)w->size : 0,
        .samples_per_second = (double)w->run->batch * w->replicas / s->seconds,
        .seconds_left = mean * (double)(w->steps - w->step),
    };
    if (callbacks && callbacks->step)
        callbacks->step(callbacks->ctx, &p);
    fgt_layer_density_report(w);
}

static void record_step(fgt_worker *w, const step_result *s) {
    w->step_seconds[w->steps_here++ % FGT_STEP_TIMES_MAX] = (float)s->seconds;
    uint64_t tail = w->steps / TAIL_SHARE ? w->steps / TAIL_SHARE : 1;
    if (w->step + tail >= w->steps) {
        w->loss_tail += s->sum.loss / w->replicas;
        w->loss_tail_count++;
    }
    w->step++;
    if (w->rank == 0)
        report_step(w, s);
}

/* Whether all workers have the same weights. */
static bool is_shared(const fgt_worker *w) {
    return !w->local || fgt_local_is_due(w->local, w->step, w->steps);
}

/* With local steps what was due since the exchange before is due now. */
static bool is_due(const fgt_worker *w, uint64_t every) {
    uint64_t since = w->local ? fgt_local_since(w->local, w->step) : 1;
    every = every ? every : w->per_epoch;
    return w->step / every != (w->step - since) / every;
}

/* ReLU can hide weights that are NaN from the loss, but not from the gradient. */
static int not_finite_error(const fgt_worker *w, const char *what) {
    return fgio_error("the %s is not finite after step %llu; a lower --rate may help", what,
                      (unsigned long long)w->step);
}

/* `sound`: whether a checkpoint is worth writing, and can be; a sample that cannot be read does not change that. */
static int evaluate_and_report(fgt_worker *w, bool at_end, fgt_eval_result *to, bool *sound) {
    const fgt_job_callbacks *callbacks = w->run->callbacks;
    fgt_eval_result quality;
    int status = fgt_worker_evaluate(w, fgt_worker_eval_split(w, at_end), &quality, sound);
    if (status == FGIO_EXIT_OK && w->interrupted)
        return FGIO_EXIT_OK; /* what was scored is not the whole split */
    if (status == FGIO_EXIT_OK && w->rank == 0) {
        *to = quality;
        if (callbacks && callbacks->quality)
            callbacks->quality(callbacks->ctx, &quality);
    }
    if (status == FGIO_EXIT_OK && !isfinite(quality.loss)) {
        *sound = false;
        return w->rank == 0 ? not_finite_error(w, "loss of the evaluation") : FGIO_EXIT_FAIL;
    }
    return status;
}

static int save_checkpoint(fgt_worker *w) {
    fgio_progress *meter =
        w->rank == 0 ? fgio_progress_begin(0, "writing a checkpoint into %s", w->run->job->save) : NULL;
    int status = fgt_worker_save(w);
    fgio_progress_end(meter);
    return status;
}

/* Evaluates and writes a checkpoint, where the step or the end requires it. */
static int evaluate_and_save(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    bool end = w->step == w->steps;
    if (!is_shared(w))
        return FGIO_EXIT_OK;
    frug_status averaged =
        w->gossip && end ? fgt_worker_average(w) : FRUG_OK; /* the result is the mean of all workers */
    int status = averaged == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "mean of all workers", averaged);
    bool sound = status == FGIO_EXIT_OK;
    if (sound && job->eval && !w->interrupted && (end || is_due(w, job->eval_every)))
        status = evaluate_and_report(w, end, &w->run->report->quality, &sound);
    if (sound && job->save && (end || (!w->gossip && (w->interrupted || is_due(w, job->save_every))))) {
        int saved = save_checkpoint(w);
        status = status == FGIO_EXIT_OK ? saved : status;
    }
    return status;
}

/* The steps since the last checkpoint, before a batch that cannot be loaded. */
static void save_before_failure(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    if (job->save && w->steps_here > 0 && !w->gossip && is_shared(w) && !is_due(w, job->save_every))
        save_checkpoint(w);
}

/* A run that was already at its end is still evaluated, and one that fine-tunes is evaluated before the first step. */
static int evaluate_before_training(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    bool sound;
    if (job->eval && w->step == w->steps)
        return evaluate_and_report(w, true, &w->run->report->quality, &sound);
    return job->eval && job->tune && w->step == 0 ? evaluate_and_report(w, true, &w->run->report->before, &sound)
                                                  : FGIO_EXIT_OK;
}

static int write_record(fgt_worker *w) {
    const fgt_run *run = w->run;
    if (!w->record)
        return FGIO_EXIT_OK;
    json_t *metadata = json_object();
    int failed = json_object_set_new(metadata, "model", json_string(run->model.text));
    failed |= json_object_set_new(metadata, "data", fgio_json_text(fgt_data_get_info(run->data)->name));
    failed |= json_object_set_new(metadata, "optimizer", json_string(frug_optimizer_text(w->optimizer)));
    int status = failed ? fgio_error("%s: out of memory", run->job->tune->record)
                        : fgt_record_write(w->record, run->job->tune->record, metadata);
    json_decref(metadata);
    return status;
}

int fgt_worker_train(fgt_worker *w) {
    int status = evaluate_before_training(w);
    while (status == FGIO_EXIT_OK && w->step < w->steps && !w->interrupted) {
        step_result s = {.begin = frugi_clock()};
        status = load_batches(w);
        if (status != FGIO_EXIT_OK)
            save_before_failure(w);
        if (status == FGIO_EXIT_OK)
            status = one_step(w, &s);
        if (status != FGIO_EXIT_OK)
            break;
        record_step(w, &s);
        if (!isfinite(s.sum.loss) || !isfinite(s.sum.norm2))
            return w->rank == 0 ? not_finite_error(w, isfinite(s.sum.loss) ? "gradient" : "loss") : FGIO_EXIT_FAIL;
        w->interrupted = s.sum.stop > 0 && w->step < w->steps && is_shared(w);
        status = w->sparse ? fgt_worker_update_masks(w) : FGIO_EXIT_OK;
        if (status == FGIO_EXIT_OK)
            status = evaluate_and_save(w);
    }
    if (status == FGIO_EXIT_OK && w->replicas > 1 && (w->reducer || (w->gossip && !w->interrupted)))
        status = fgt_worker_collective(w, fgt_worker_check_weights);
    if (status == FGIO_EXIT_OK && w->run->job->tune)
        status = fgt_worker_collective(w, write_record);
    return status;
}

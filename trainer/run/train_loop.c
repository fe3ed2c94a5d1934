/*
 * train_loop.c - the steps of training: a batch, forward, backward into the buckets, and what all workers have to know
 * of it.
 *
 * After each step the workers exchange a handful of numbers (loss, norm, whether someone was asked to stop), so that
 * all clip, log and stop alike. Everything random is a function of the step, so nothing else has to be remembered.
 */
#include "trainer/run/worker.h"

#include "base/clock.h"
#include "trainer/run/layer_density.h"
#include "io/progress.h"
#include "io/error.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 10u /* the last tenth of the steps makes the training loss of the report */

static _Atomic int asked_to_stop; /* lock-free: set by handlers of signals, read by all workers */

void fgt_job_interrupt(void) {
    atomic_store(&asked_to_stop, 1);
}

void fgt_worker_forget_interrupt(void) {
    atomic_store(&asked_to_stop, 0);
}

/** What a worker tells the others after a step: FGT_STEP_NUMBERS doubles. */
typedef struct told {
    double loss, asked, right, norm2, stop;
    double broken; /* a batch that could not be read; all stop after the step, since none may leave the others alone */
} told;

_Static_assert(sizeof(told) == FGT_STEP_NUMBERS * sizeof(double), "a message is an array of doubles");

/** One step as it goes. */
typedef struct stride {
    told sum; /* over all workers */
    double rate, clipped, seconds;
    fgt_traffic before;
} stride;

/* Sum the messages of all workers, in rank order, into this worker's own. */
static int share(fgt_worker *w, told mine, told *sum) {
    const size_t n = w->message_count, size = n * sizeof *w->message;
    memcpy(w->message, &mine, sizeof mine);
    frug_status status = frug_comm_gather(w->comm, w->message, size, w->messages);
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
static void put_limited_norms(fgt_worker *w) {
    if (w->crew->job->clip_auto)
        memcpy(w->message + FGT_STEP_NUMBERS, fgt_buckets_limited_norms(w->buckets),
               (w->message_count - FGT_STEP_NUMBERS) * sizeof *w->message);
}

static void update_limits(fgt_worker *w) {
    if (!w->crew->job->clip_auto)
        return;
    for (size_t i = FGT_STEP_NUMBERS; i < w->message_count; i++)
        w->message[i] /= w->size;
    fgt_limits_tell(fgt_buckets_limits(w->buckets), w->message + FGT_STEP_NUMBERS);
}

static int load_batch(fgt_worker *w) {
    uint64_t epoch = w->step / w->per_epoch, place = w->step % w->per_epoch;
    uint32_t n = w->crew->batch;
    uint64_t first = (place * (uint64_t)w->size + (uint64_t)w->rank) * n;
    return fgt_data_batch(w->crew->data, FGT_TRAIN, epoch, first, n, &w->batch);
}

/* Forward and backward of every micro-batch; the loss is the mean over the whole batch. The buckets do the rest. */
static void run_passes(fgt_worker *w) {
    fgt_graph *g = w->graph;
    fgt_score sum = {0};
    g->step = w->step;
    g->asked = w->accumulate > 1 ? fgt_graph_asked(g, &w->batch) : 0;
    for (uint32_t i = 0; i < w->accumulate; i++) {
        double t0 = frugi_clock();
        uint64_t n = w->batch.n, first = n * i / w->accumulate, end = n * (i + 1) / w->accumulate;
        fgt_batch part =
            fgt_batch_part(fgt_data_about(w->crew->data), &w->batch, (uint32_t)first, (uint32_t)(end - first));
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
    g->asked = 0;
    g->offset = 0;
}

static frug_status compute(fgt_worker *w, double rate, float factor, double late_clip) {
    fgt_buckets_begin(w->buckets, w->step, rate, factor, false);
    run_passes(w);
    double t0 = frugi_clock();
    frug_status status = fgt_buckets_end(w->buckets, late_clip);
    w->times.backward += frugi_clock() - t0;
    return status;
}

/* The first step knows no norm yet: it takes one before it begins in earnest. */
static int first_norm(fgt_worker *w) {
    told sum;
    fgt_times times = w->times;
    fgt_worker_put_aside(w); /* the batch will count once, when it is trained on */
    fgt_buckets_begin(w->buckets, w->step, 0, 1, true);
    run_passes(w);
    fgt_buckets_end(w->buckets, 0);
    fgt_worker_put_back(w);
    w->times = times;
    int status = share(w, (told){.norm2 = fgt_buckets_norm2(w->buckets)}, &sum);
    if (status == FGIO_EXIT_OK)
        fgt_clip_tell(&w->clip, sqrt(sum.norm2 / w->size));
    return status;
}

static bool exact_clip(const fgt_worker *w) {
    return !w->crew->job->tune && w->reducer && strcmp(frug_reducer_algorithm(w->reducer), "dense") == 0;
}

void fgt_worker_tell_norm(fgt_worker *w, double norm) {
    w->norm = norm;
    if (norm >= 0 && w->reducer && strstr(frug_config_text(w->config), "norm=off") == NULL)
        frug_compressor_tell(frug_reducer_compressor(w->reducer), FRUG_SIGNAL_NORM, 0, &norm, 1);
}

static int one_step(fgt_worker *w, stride *s) {
    double clip = w->crew->job->clip, t0 = frugi_clock();
    s->before = fgt_worker_traffic(w);
    bool broken = load_batch(w) != FGIO_EXIT_OK;
    w->times.data += frugi_clock() - t0;
    bool lagging = clip > 0 && !exact_clip(w);
    if (lagging && w->clip.weight == 0 && first_norm(w) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    double factor = lagging ? fgt_clip_factor(&w->clip) : 1;
    s->rate = w->crew->base_rate * fgt_rate_at(&w->crew->rate, w->step, w->steps);
    frug_status status = compute(w, s->rate, (float)factor, clip);
    if (status == FRUG_OK && w->gossip)
        status = frug_gossip_step(w->gossip, w->step, w->graph->weights);
    if (status != FRUG_OK)
        return fgt_worker_error(w, "exchange", status);
    double asked = w->graph->score.asked > 0 ? w->graph->score.asked : 1;
    told mine = {w->graph->score.loss / asked, asked, w->graph->score.right, fgt_buckets_norm2(w->buckets),
                 atomic_load(&asked_to_stop),  broken};
    put_limited_norms(w);
    if (share(w, mine, &s->sum) != FGIO_EXIT_OK || s->sum.broken > 0)
        return FGIO_EXIT_FAIL;
    update_limits(w);
    s->clipped = lagging ? factor : fgt_buckets_clipped(w->buckets);
    fgt_clip_tell(&w->clip, sqrt(s->sum.norm2 / w->size));
    fgt_worker_tell_norm(w, sqrt(s->sum.norm2 / w->size));
    s->seconds = frugi_clock() - t0;
    w->times.total += s->seconds;
    return FGIO_EXIT_OK;
}

static void watch_step(fgt_worker *w, const stride *s) {
    const fgt_watch *watch = w->crew->watch;
    fgt_traffic now = fgt_worker_traffic(w);
    double seen = now.seen - s->before.seen, done = (double)w->steps_here, mean = w->times.total / done;
    fgt_progress p = {
        .step = w->step,
        .steps = w->steps,
        .epoch = (double)w->step / (double)w->per_epoch,
        .loss = s->sum.loss / w->size,
        .right = s->sum.right / s->sum.asked,
        .rate = s->rate,
        .gain = frug_optimizer_gain(w->optimizer),
        .norm = sqrt(s->sum.norm2 / w->size),
        .clipped = s->clipped,
        .density = seen > 0 ? (now.entries - s->before.entries) / seen : 1,
        .seconds = s->seconds,
        .bytes_sent = now.bytes,
        .bytes_dense = now.dense,
        .samples_per_second = (double)w->crew->batch * w->size / s->seconds,
        .seconds_left = mean * (double)(w->steps - w->step),
    };
    if (watch && watch->step)
        watch->step(watch->ctx, &p);
    fgt_layers_tell(w);
}

static void note_step(fgt_worker *w, const stride *s) {
    w->step_seconds[w->steps_here++ % FGT_STEPS_KNOWN] = (float)s->seconds;
    uint64_t tail = w->steps / TAIL ? w->steps / TAIL : 1;
    if (w->step + tail >= w->steps) {
        w->loss_tail += s->sum.loss / w->size;
        w->loss_tail_count++;
    }
    w->step++;
    if (w->rank == 0)
        watch_step(w, s);
}

static bool due(const fgt_worker *w, uint64_t every) {
    return w->step % (every ? every : w->per_epoch) == 0;
}

/* Units that are cut off at zero hide weights that are no numbers from the loss, but not from the gradient. */
static int say_not_finite(const fgt_worker *w, const char *what) {
    return fgio_error("the %s is not finite after step %llu; a lower --rate may help", what,
                      (unsigned long long)w->step);
}

static int look(fgt_worker *w, bool at_end, fgt_quality *to) {
    const fgt_watch *watch = w->crew->watch;
    fgt_quality quality;
    int status = fgt_worker_evaluate(w, fgt_worker_split(w, at_end), &quality);
    if (status == FGIO_EXIT_OK && w->rank == 0) {
        *to = quality;
        if (watch && watch->quality)
            watch->quality(watch->ctx, &quality);
    }
    if (status == FGIO_EXIT_OK && !isfinite(quality.loss))
        return w->rank == 0 ? say_not_finite(w, "loss of the evaluation") : FGIO_EXIT_FAIL;
    return status;
}

static int save(fgt_worker *w) {
    fgio_meter *meter = w->rank == 0 ? fgio_meter_begin(0, "writing a checkpoint into %s", w->crew->job->save) : NULL;
    int status = fgt_worker_save(w);
    fgio_meter_end(meter);
    return status;
}

/* Evaluation and checkpoint, where the step or the end calls for them. */
static int pause_after(fgt_worker *w) {
    const fgt_job *job = w->crew->job;
    bool end = w->step == w->steps;
    frug_status settled = w->gossip && end ? fgt_worker_mean(w) : FRUG_OK; /* the result is the mean of all */
    int status = settled == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "mean of all workers", settled);
    if (status == FGIO_EXIT_OK && job->eval && !w->interrupted && (end || due(w, job->eval_every)))
        status = look(w, end, &w->crew->report->quality);
    if (status == FGIO_EXIT_OK && job->save && (end || (!w->gossip && (w->interrupted || due(w, job->save_every)))))
        status = save(w);
    return status;
}

/* A run that was already at its end still says how good it is, and one that fine-tunes how good it was. */
static int look_first(fgt_worker *w) {
    const fgt_job *job = w->crew->job;
    if (job->eval && w->step == w->steps)
        return look(w, true, &w->crew->report->quality);
    return job->eval && job->tune && w->step == 0 ? look(w, true, &w->crew->report->before) : FGIO_EXIT_OK;
}

static int write_record(fgt_worker *w) {
    const fgt_crew *crew = w->crew;
    if (!w->record)
        return FGIO_EXIT_OK;
    json_t *facts = json_object();
    json_object_set_new(facts, "model", json_string(crew->model.text));
    json_object_set_new(facts, "data", json_string(fgt_data_about(crew->data)->name));
    json_object_set_new(facts, "optimizer", json_string(frug_optimizer_text(w->optimizer)));
    int status = fgt_record_write(w->record, crew->job->tune->record, facts);
    json_decref(facts);
    return status;
}

int fgt_worker_train(fgt_worker *w) {
    int status = look_first(w);
    while (status == FGIO_EXIT_OK && w->step < w->steps && !w->interrupted) {
        stride s = {0};
        status = one_step(w, &s);
        if (status != FGIO_EXIT_OK)
            break;
        note_step(w, &s);
        if (!isfinite(s.sum.loss) || !isfinite(s.sum.norm2))
            return w->rank == 0 ? say_not_finite(w, isfinite(s.sum.loss) ? "gradient" : "loss") : FGIO_EXIT_FAIL;
        w->interrupted = s.sum.stop > 0 && w->step < w->steps;
        status = pause_after(w);
    }
    if (status == FGIO_EXIT_OK && w->size > 1 && (w->reducer || (w->gossip && !w->interrupted)))
        status = fgt_worker_together(w, fgt_worker_same_weights);
    if (status == FGIO_EXIT_OK && w->crew->job->tune)
        status = fgt_worker_together(w, write_record);
    return status;
}

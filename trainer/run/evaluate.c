/*
 * evaluate.c - evaluation of a model on a split. The workers divide the batches; running statistics are those of worker
 * 0, which are those that a checkpoint saves. With gossip the mean of all workers is evaluated, weights and running
 * statistics. Afterwards each worker has its own again: training must not depend on how often it is evaluated.
 */
#include "trainer/run/worker.h"

#include "trainer/data/data_source.h"
#include "io/progress.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096u /* floats of one message */

fgt_split fgt_worker_eval_split(const fgt_worker *w, bool at_end) {
    const uint64_t *count = fgt_data_get_info(w->run->data)->count;
    if (w->run->job->hold_out)
        return FGT_VALID;
    if (at_end && !w->run->job->judge_valid)
        return count[FGT_TEST] ? FGT_TEST : count[FGT_VALID] ? FGT_VALID : FGT_TRAIN;
    return count[FGT_VALID] ? FGT_VALID : count[FGT_TEST] ? FGT_TEST : FGT_TRAIN;
}

static frug_status broadcast_buffers(const fgt_worker *w) {
    frug_status status = FRUG_OK;
    for (fgt_buffer *b = w->pipeline ? NULL : w->graph->buffers; b && status == FRUG_OK; b = b->next)
        for (int r = 1; r < w->size && status == FRUG_OK; r++) {
            if (w->rank == 0)
                status = frug_comm_send(w->comm, r, b->data, b->count * sizeof *b->data);
            else if (w->rank == r)
                status = frug_comm_receive(w->comm, 0, b->data, b->count * sizeof *b->data);
        }
    return status;
}

/* Averages a buffer over all workers; worker 0 sums in rank order, so that threads and processes give the same result.
 * */
static frug_status average_floats(const fgt_worker *w, float *x, size_t count) {
    float chunk[CHUNK];
    frug_status status = FRUG_OK;
    for (size_t at = 0; at < count && status == FRUG_OK; at += CHUNK) {
        size_t n = count - at < CHUNK ? count - at : CHUNK;
        for (int r = 1; w->rank == 0 && r < w->size && status == FRUG_OK; r++) {
            status = frug_comm_receive(w->comm, r, chunk, n * sizeof *x);
            for (size_t i = 0; i < n && status == FRUG_OK; i++)
                x[at + i] += chunk[i];
        }
        for (size_t i = 0; i < n && w->rank == 0; i++)
            x[at + i] /= (float)w->size;
        for (int r = 1; w->rank == 0 && r < w->size && status == FRUG_OK; r++)
            status = frug_comm_send(w->comm, r, x + at, n * sizeof *x);
        if (w->rank > 0)
            status = frug_comm_send(w->comm, 0, x + at, n * sizeof *x);
        if (w->rank > 0 && status == FRUG_OK)
            status = frug_comm_receive(w->comm, 0, x + at, n * sizeof *x);
    }
    return status;
}

frug_status fgt_worker_average(fgt_worker *w) {
    frug_status status = average_floats(w, w->graph->weights, (size_t)w->graph->elements);
    for (fgt_buffer *b = w->graph->buffers; b && status == FRUG_OK; b = b->next)
        status = average_floats(w, b->data, b->count);
    return status;
}

/* Replaces this worker's weights by the mean of all workers and saves its own; at the end they are the mean already. */
static frug_status use_mean_weights(fgt_worker *w, float **own) {
    size_t bytes = (size_t)w->graph->elements * sizeof **own;
    if (w->step == w->steps)
        return FRUG_OK;
    *own = malloc(bytes);
    if (!*own)
        return FRUG_ERR_MEMORY;
    memcpy(*own, w->graph->weights, bytes);
    return fgt_worker_average(w);
}

/** Score of one worker. */
typedef struct worker_score {
    fgt_score score;
    int status;   /* a batch that could not be read is an error on all workers */
    bool stopped; /* by a signal, before all batches were scored */
} worker_score;

static int score_part(fgt_worker *w, const fgt_batch *part, fgt_score *sum) {
    if (w->pipeline) {
        frug_status status = fgt_pipeline_evaluate(w->pipeline, part, sum);
        return status == FRUG_OK ? FGIO_EXIT_OK : fgt_worker_error(w, "evaluation", status);
    }
    fgt_graph_forward(w->graph, part, false);
    fgt_score_add(sum, &w->graph->score);
    return FGIO_EXIT_OK;
}

static int score_batches(fgt_worker *w, fgt_split split, worker_score *to) {
    int status = FGIO_EXIT_OK;
    uint64_t count = fgt_data_get_info(w->run->data)->count[split], most = w->run->job->eval_batches;
    uint32_t n = w->run->batch;
    uint64_t batches = (count + n - 1) / n, every = (uint64_t)w->replicas;
    if (most && batches > most * every)
        batches = most * every;
    fgio_progress *meter =
        w->rank == 0 ? fgio_progress_begin(batches, "evaluating on the %s split", fgt_split_names[split]) : NULL;
    for (uint64_t i = (uint64_t)w->replica; i < batches && status == FGIO_EXIT_OK && !to->stopped; i += every) {
        fgio_progress_update(meter, i);
        uint32_t samples = count - i * n < n ? (uint32_t)(count - i * n) : n;
        status = fgt_data_batch(w->run->data, split, 0, i * n, samples, &w->batch);
        for (uint32_t at = 0; at < samples && status == FGIO_EXIT_OK; at += w->graph->batch_max) {
            uint32_t some = samples - at < w->graph->batch_max ? samples - at : w->graph->batch_max;
            fgt_batch part = fgt_batch_part(fgt_data_get_info(w->run->data), &w->batch, at, some);
            status = score_part(w, &part, &to->score);
        }
        to->stopped = fgt_worker_interrupt_requested() && i + every < batches && !w->pipeline;
    }
    fgio_progress_end(meter);
    frug_status ended = w->pipeline ? fgt_pipeline_end_evaluation(w->pipeline, status != FGIO_EXIT_OK) : FRUG_OK;
    return ended == FRUG_OK ? status : fgt_worker_error(w, "evaluation", ended);
}

static double correlation(const fgt_score *s) {
    double n = s->count, x = s->sums[0], y = s->sums[1], xx = s->sums[2], yy = s->sums[3], xy = s->sums[4];
    double spread = sqrt((n * xx - x * x) * (n * yy - y * y));
    return spread > 0 ? (n * xy - x * y) / spread : 0;
}

/* F1 of class 1: the harmonic mean of precision and recall. */
static double f1(const fgt_score *s) {
    double both = s->sums[0], predicted = s->sums[1], actual = s->sums[2];
    return predicted + actual > 0 ? 2 * both / (predicted + actual) : 0;
}

/* Matthews correlation of two classes; 0 where one of them never occurs. */
static double matthews(const fgt_score *s) {
    double n = s->count, both = s->sums[0], predicted = s->sums[1], actual = s->sums[2];
    double spread = sqrt(predicted * actual * (n - predicted) * (n - actual));
    return spread > 0 ? (n * both - predicted * actual) / spread : 0;
}

static fgt_eval_result make_result(const fgt_worker *w, fgt_split split, const fgt_score *s) {
    const fgt_data_info *info = fgt_data_get_info(w->run->data);
    bool tokens = info->task == FGT_TASK_LANGUAGE || info->task == FGT_TASK_MASKED;
    bool numbers = info->task == FGT_TASK_SENTENCES && info->classes == 1;
    double asked = s->count > 0 ? s->count : 1;
    return (fgt_eval_result){.split = split,
                             .step = w->step,
                             .loss = s->loss / asked,
                             .accuracy = numbers ? (double)NAN : s->correct / asked,
                             .perplexity = tokens ? exp(s->loss / asked) : (double)NAN,
                             .correlation = numbers ? correlation(s) : (double)NAN,
                             .f1 = info->metric == FGT_METRIC_F1 ? f1(s) : (double)NAN,
                             .matthews = info->metric == FGT_METRIC_MATTHEWS ? matthews(s) : (double)NAN,
                             .asked = s->count};
}

int fgt_worker_evaluate(fgt_worker *w, fgt_split split, fgt_eval_result *quality, bool *together) {
    worker_score mine = {0}, *all = calloc((size_t)w->size, sizeof *all);
    fgt_score sum = {0};
    float *own = NULL;
    bool failed = false;
    fgt_worker_save_buffers(w);
    frug_status status = !all ? FRUG_ERR_MEMORY : w->gossip ? use_mean_weights(w, &own) : broadcast_buffers(w);
    if (status == FRUG_OK) {
        mine.status = score_batches(w, split, &mine);
        failed = w->pipeline && fgt_pipeline_has_failed(w->pipeline);
        if (!failed) /* else no stage gathers: one may not be able to */
            status = frug_comm_allgather(w->comm, &mine, sizeof mine, all);
    }
    for (int i = 0; status == FRUG_OK && i < w->size; i++) {
        fgt_score_add(&sum, &all[i].score);
        failed |= all[i].status != FGIO_EXIT_OK;
        w->interrupted |= all[i].stopped;
    }
    *together = status == FRUG_OK && !(w->pipeline && fgt_pipeline_has_failed(w->pipeline));
    fgt_worker_restore_buffers(w);
    if (own)
        memcpy(w->graph->weights, own, (size_t)w->graph->elements * sizeof *own);
    free(own);
    free(all);
    if (status != FRUG_OK)
        return fgt_worker_error(w, "evaluation", status);
    *quality = make_result(w, split, &sum);
    return failed ? FGIO_EXIT_FAIL : FGIO_EXIT_OK;
}

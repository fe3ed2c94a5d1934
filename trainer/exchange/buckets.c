/*
 * buckets.c - slots of bucket memory for the backward pass, and the processing of full buckets. The reducer's thread
 * releases the slots of full buckets; a backward pass that finds no free slot blocks until one is released.
 *
 * The optimizer is called by the reducer's thread (a bucket has been reduced) and by the backward pass (measure one),
 * so a lock serializes the calls.
 */
#include "trainer/exchange/buckets_internal.h"

#include "base/clock.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/exchange/gradient_record.h"
#include "trainer/sparse/sparse_weights.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- create and destroy ---- */

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first);
static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first);

static int create_limits(fgt_buckets *b) {
    if (!b->options.auto_clip)
        return 0;
    size_t count = b->options.deferred_update ? 1 : b->count;
    b->limited_norms = calloc(count ? count : 1, sizeof *b->limited_norms);
    return b->limited_norms && fgt_norm_limits_create(count, &b->norm_limits) ? 0 : -1;
}

int fgt_buckets_create(const fgt_buckets_options *options, fgt_buckets **buckets) {
    fgt_buckets *b = calloc(1, sizeof *b);
    if (!b)
        return fgio_error("not enough memory for buckets");
    b->options = *options;
    b->weights = options->weights ? options->weights : options->graph->weights;
    b->sink = (fgt_sink){open_tile, close_tile};
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->optimizer_lock, NULL);
    pthread_cond_init(&b->slot_freed, NULL);
    if (fgt_buckets_plan(b) != 0 || fgt_buckets_alloc(b) != 0 || create_limits(b) != 0) {
        fgt_buckets_destroy(b);
        return fgio_error("not enough memory for buckets of gradients");
    }
    *buckets = b;
    return FGIO_EXIT_OK;
}

void fgt_buckets_destroy(fgt_buckets *b) {
    if (!b)
        return;
    pthread_cond_destroy(&b->slot_freed);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->optimizer_lock);
    fgt_counted_free(b->memory);
    fgt_counted_free(b->full_gradient);
    fgt_counted_free(b->measured_vector);
    fgt_counted_free(b->packed_weights);
    fgt_norm_limits_destroy(&b->norm_limits);
    free(b->limited_norms);
    free(b->bucket);
    free(b);
}

void fgt_buckets_set_exchange(fgt_buckets *b, frug_reducer *reducer, frug_optimizer *optimizer, float *weights) {
    b->options.reducer = reducer;
    b->options.optimizer = optimizer;
    b->weights = weights ? weights : b->options.graph->weights;
    fgt_buckets_set_ranges(b);
}

size_t fgt_buckets_count(const fgt_buckets *b) {
    return b->count;
}

fgt_sink *fgt_buckets_sink(fgt_buckets *b) {
    return &b->sink;
}

double fgt_buckets_norm2(const fgt_buckets *b) {
    return b->norm2;
}

double fgt_buckets_clip_factor(const fgt_buckets *b) {
    return b->clip_factor;
}

fgt_norm_limits *fgt_buckets_norm_limits(fgt_buckets *b) {
    return &b->norm_limits;
}

const double *fgt_buckets_limited_norms(const fgt_buckets *b) {
    return b->limited_norms;
}

double fgt_buckets_wait_seconds(const fgt_buckets *b) {
    return b->wait_seconds;
}

double fgt_buckets_optimizer_seconds(const fgt_buckets *b) {
    return b->optimizer_seconds;
}

double fgt_buckets_inline_seconds(const fgt_buckets *b) {
    return b->inline_seconds;
}

uint64_t fgt_buckets_floats_sent(const fgt_buckets *b) {
    return b->floats_sent;
}

/* ---- a step ---- */

void fgt_buckets_begin(fgt_buckets *b, uint64_t step, double rate, float factor, bool measure) {
    b->step = step;
    b->rate = rate;
    b->factor = factor;
    b->measure = measure;
    b->pass = 0;
    b->norm2 = 0;
    b->clip_factor = 1;
    b->backward_thread = pthread_self();
}

void fgt_buckets_next_pass(fgt_buckets *b) {
    b->pass++;
}

static float *acquire_slot(fgt_buckets *b, fgt_slot_pool *pool) {
    pthread_mutex_lock(&b->lock);
    if (pool->free_count == 0) {
        double since = frugi_clock();
        while (pool->free_count == 0)
            pthread_cond_wait(&b->slot_freed, &b->lock);
        b->wait_seconds += frugi_clock() - since;
    }
    float *memory = pool->free_slots[--pool->free_count];
    pthread_mutex_unlock(&b->lock);
    return memory;
}

static void release_slot(fgt_buckets *b, float *memory) {
    fgt_slot_pool *pool = memory >= b->small.begin ? &b->small : &b->large;
    pthread_mutex_lock(&b->lock);
    pool->free_slots[pool->free_count++] = memory;
    pthread_cond_signal(&b->slot_freed);
    pthread_mutex_unlock(&b->lock);
}

/* The full gradient has its own memory, which is no slot. */
static void release_bucket_slot(fgt_buckets *b, float *memory) {
    if (!b->full_gradient)
        release_slot(b, memory);
}

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    fgt_buckets *b = (fgt_buckets *)sink;
    fgt_bucket *k = &b->bucket[p->bucket + first / p->tile];
    if (!k->memory)
        k->memory = b->memory ? acquire_slot(b, k->count <= b->small_count ? &b->small : &b->large)
                              : b->full_gradient + k->full_offset;
    return k->memory + (p->tensor.offset + first * p->cols - k->begin);
}

/** The optimizer functions that are called with the lock held. */
typedef enum optimizer_call { OPTIMIZER_STEP, OPTIMIZER_STEP_MEASURED, OPTIMIZER_MEASURE } optimizer_call;

/* Whether a parameter is trained and its packed weights are in a range. */
static bool is_packed_in(const fgt_param *p, uint64_t begin, uint64_t count) {
    return !p->frozen && p->packed_offset >= begin && p->packed_offset < begin + count;
}

/* The packed weights of a range, in memory that the next call overwrites. */
static float *pack_weights(fgt_buckets *b, uint64_t begin, uint64_t count) {
    for (const fgt_param *p = b->options.graph->params; p; p = p->next)
        if (is_packed_in(p, begin, count))
            fgt_mask_pack(p, b->weights + p->tensor.offset, b->packed_weights + (p->packed_offset - begin));
    return b->packed_weights;
}

static void unpack_weights(fgt_buckets *b, uint64_t begin, uint64_t count) {
    for (const fgt_param *p = b->options.graph->params; p; p = p->next)
        if (is_packed_in(p, begin, count))
            fgt_mask_unpack(p, b->packed_weights + (p->packed_offset - begin), b->weights + p->tensor.offset);
}

static void call_optimizer(fgt_buckets *b, optimizer_call what, uint64_t begin, uint64_t count, const float *from,
                           float *to) {
    frug_optimizer *o = b->options.optimizer;
    double since = frugi_clock();
    pthread_mutex_lock(&b->optimizer_lock);
    float *weights = b->options.packed ? pack_weights(b, begin, count)
                                       : b->weights + fgt_graph_weight_index(b->options.graph, begin);
    frug_status status =
        what == OPTIMIZER_STEP ? frug_optimizer_step(o, b->step, (frug_range){begin, count}, from, b->rate, weights)
        : what == OPTIMIZER_MEASURE
            ? frug_optimizer_measure(o, b->step, (frug_range){begin, count}, from, to)
            : frug_optimizer_step_measured(o, b->step, (frug_range){begin, count}, from, b->rate, weights);
    if (b->options.packed)
        unpack_weights(b, begin, count);
    if (status != FRUG_OK && b->failed == FRUG_OK)
        b->failed = status;
    double seconds = frugi_clock() - since;
    b->optimizer_seconds += seconds;
    b->inline_seconds += pthread_equal(pthread_self(), b->backward_thread) ? seconds : 0;
    pthread_mutex_unlock(&b->optimizer_lock);
}

static void update_weights(fgt_buckets *b, uint64_t begin, uint64_t count, const float *mean) {
    call_optimizer(b, OPTIMIZER_STEP, begin, count, mean, NULL);
}

/* Callback on the reducer's thread: the bucket holds the mean over all workers. */
static void bucket_done(void *ctx, const frug_bucket *sent, frug_status status) {
    fgt_buckets *b = ctx;
    if (status == FRUG_OK)
        fgt_transform_inverse(b->options.transform, sent->range, sent->grad);
    if (status == FRUG_OK && !b->options.deferred_update)
        update_weights(b, sent->range.begin, sent->range.count, sent->grad);
    release_bucket_slot(b, sent->grad);
}

/* Squared norm of n numbers, which are also multiplied by the factor. 8 accumulators hide the latency of FP add. */
static double norm_and_scale(float *x, uint64_t n, float factor) {
    double sum[8] = {0};
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (unsigned j = 0; j < 8; j++) {
            sum[j] += (double)x[i + j] * (double)x[i + j];
            x[i + j] *= factor;
        }
    for (; i < n; i++) {
        sum[0] += (double)x[i] * (double)x[i];
        x[i] *= factor;
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* Squared norm and scaling of the parameters of a bucket, without the padding between them, whose memory is undefined.
 * */
static double norm_and_scale_bucket(fgt_buckets *b, const fgt_bucket *k, float *memory, float factor) {
    if (b->options.packed)
        return norm_and_scale(memory, k->sent.count, factor);
    double norm2 = 0;
    uint64_t end = k->begin + k->count;
    for (const fgt_param *p = b->options.graph->params; p; p = p->next) {
        uint64_t from = p->tensor.offset, to = from + (uint64_t)p->rows * p->cols;
        from = from > k->begin ? from : k->begin;
        to = to < end ? to : end;
        if (from < to && !p->frozen)
            norm2 += norm_and_scale(memory + (from - k->begin), to - from, factor);
    }
    return norm2;
}

/* The factor that brings norm i within its limit. */
static double limit_factor(fgt_buckets *b, size_t i, double norm) {
    double factor = fgt_norm_limits_factor(&b->norm_limits, i, norm);
    b->limited_norms[i] = norm * factor;
    b->clip_factor = factor < b->clip_factor ? factor : b->clip_factor;
    return factor;
}

/* Counts the floats that the optimizer needs of the bucket at this step; true: it needs measurements only. */
static bool wants_measured(fgt_buckets *b, const fgt_bucket *k) {
    if (!b->options.count_sent)
        return false;
    pthread_mutex_lock(&b->optimizer_lock);
    uint64_t wants = frug_optimizer_measure_count(b->options.optimizer, b->step, (frug_range){k->begin, k->count});
    pthread_mutex_unlock(&b->optimizer_lock);
    b->floats_sent += wants;
    return b->options.reducer && k->measured_count && wants == k->measured_count;
}

static void measure(fgt_buckets *b, fgt_bucket *k, float *memory) {
    call_optimizer(b, OPTIMIZER_MEASURE, k->begin, k->count, memory, b->measured_vector + k->measured_offset);
    k->measured = true;
    release_bucket_slot(b, memory);
}

/* Exchanges all measurements at the end of the backward pass; a step without measurements sends none. */
static frug_status exchange_measured(fgt_buckets *b) {
    frug_status status = FRUG_OK;
    bool any = false;
    for (size_t i = 0; i < b->count; i++)
        any |= b->bucket[i].measured;
    if (any) {
        double since = frugi_clock();
        status =
            frug_reducer_sum(b->options.reducer, b->step, (frug_range){b->options.measured_at, b->options.measured},
                             b->measured_vector, 1.0f / (float)b->options.workers);
        b->inline_seconds += frugi_clock() - since;
    }
    for (size_t i = 0; i < b->count; i++) {
        fgt_bucket *k = &b->bucket[i];
        if (k->measured && status == FRUG_OK)
            call_optimizer(b, OPTIMIZER_STEP_MEASURED, k->begin, k->count, b->measured_vector + k->measured_offset,
                           NULL);
        k->measured = false;
    }
    return status;
}

static void submit_bucket(fgt_buckets *b, const fgt_bucket *k, float *memory) {
    frug_bucket out = FRUG_BUCKET_INIT;
    out.step = b->step;
    out.range = k->sent;
    out.grad = memory;
    out.scale = 1.0f / (float)b->options.workers;
    out.done = bucket_done;
    out.ctx = b;
    frug_status status = FRUG_OK;
    fgt_transform_forward(b->options.transform, out.range, memory);
    if (!b->options.reducer)
        bucket_done(b, &out, FRUG_OK);
    else if (b->options.overlap) {
        status = frug_reducer_submit(b->options.reducer, &out);
        if (status != FRUG_OK)
            release_bucket_slot(b, memory); /* not accepted: there will be no callback */
    } else {
        status = frug_reducer_sum(b->options.reducer, out.step, (frug_range){out.range.begin, out.range.count},
                                  out.grad, out.scale);
        bucket_done(b, &out, status);
    }
    if (status != FRUG_OK && b->failed == FRUG_OK)
        b->failed = status;
}

/* Adds the gradient of this pass to that of the earlier ones and releases its slot. */
static float *accumulate_pass(fgt_buckets *b, const fgt_bucket *k, float *slot) {
    float *restrict sum = b->full_gradient + k->full_offset;
    const float *restrict part = slot;
    if (b->pass == 0)
        memcpy(sum, part, (size_t)k->count * sizeof *sum);
    for (uint64_t i = 0; b->pass > 0 && i < k->count; i++)
        sum[i] += part[i];
    release_slot(b, slot);
    return sum;
}

/* Packs the gradient of a bucket in place: packed numbers never come after their own position. */
static void pack_gradient(fgt_buckets *b, const fgt_bucket *k, float *memory) {
    for (const fgt_param *p = b->options.graph->params; p; p = p->next) {
        if (&b->bucket[p->bucket] != k || p->frozen)
            continue;
        float *gradient = memory + (p->tensor.offset - k->begin);
        if (b->options.growth && !b->measure)
            fgt_sparse_add_growth(b->options.growth, p, gradient);
        fgt_mask_pack(p, gradient, memory + (p->packed_offset - k->sent.begin));
    }
}

/* All passes of a bucket are complete: clip, then exchange. */
static void finish_bucket(fgt_buckets *b, fgt_bucket *k, float *memory) {
    if (b->options.record && !b->measure)
        fgt_record_add(b->options.record, b->step, k->begin, k->count, memory);
    if (b->options.packed)
        pack_gradient(b, k, memory);
    double norm2 = norm_and_scale_bucket(b, k, memory, b->factor);
    if (!b->options.deferred_update || b->measure)
        b->norm2 += norm2;
    if (b->options.auto_clip && !b->options.deferred_update && !b->measure) {
        double factor = limit_factor(b, (size_t)(k - b->bucket), sqrt(norm2));
        if (factor < 1)
            norm_and_scale_bucket(b, k, memory, (float)factor);
    }
    if (b->measure || b->failed != FRUG_OK)
        release_bucket_slot(b, memory);
    else if (wants_measured(b, k))
        measure(b, k, memory);
    else
        submit_bucket(b, k, memory);
}

static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    fgt_buckets *b = (fgt_buckets *)sink;
    fgt_bucket *k = &b->bucket[p->bucket + first / p->tile];
    if (++k->closed_tiles < k->tiles)
        return;
    float *memory = k->memory;
    k->closed_tiles = 0;
    k->memory = NULL;
    if (b->options.passes > 1)
        memory = accumulate_pass(b, k, memory);
    if (b->options.passes <= 1 || b->pass + 1 == b->options.passes)
        finish_bucket(b, k, memory);
}

static void update_deferred(fgt_buckets *b, double clip) {
    for (size_t i = 0; i < b->count; i++)
        b->norm2 += norm_and_scale_bucket(b, &b->bucket[i], b->full_gradient + b->bucket[i].full_offset, 1.0f);
    double all = b->options.sum_norms ? b->options.sum_norms(b->options.sum_norms_ctx, b->norm2) : b->norm2;
    double norm = sqrt(all);
    b->clip_factor = clip > 0 && norm > clip ? clip / norm : 1;
    if (b->options.auto_clip)
        limit_factor(b, 0, norm);
    for (size_t i = 0; i < b->count; i++) {
        const fgt_bucket *k = &b->bucket[i];
        if (b->clip_factor < 1)
            norm_and_scale_bucket(b, k, b->full_gradient + k->full_offset, (float)b->clip_factor);
        update_weights(b, k->sent.begin, k->sent.count, b->full_gradient + k->full_offset);
    }
}

frug_status fgt_buckets_end(fgt_buckets *b, double late_clip) {
    frug_status status = (frug_status)atomic_load(&b->failed);
    if (b->options.reducer && b->options.overlap) {
        double since = frugi_clock();
        frug_status finished = frug_reducer_finish(b->options.reducer);
        b->wait_seconds += frugi_clock() - since;
        status = status == FRUG_OK ? finished : status;
    }
    if (status == FRUG_OK && b->options.deferred_update && !b->measure)
        update_deferred(b, late_clip);
    else if (b->options.sum_norms && b->options.deferred_update && !b->measure)
        b->options.sum_norms(b->options.sum_norms_ctx, b->norm2); /* the other stages wait for it */
    if (status == FRUG_OK)
        status = exchange_measured(b);
    frug_status failed = (frug_status)atomic_exchange(&b->failed, FRUG_OK); /* the optimizer may have failed since */
    return status == FRUG_OK ? failed : status;
}

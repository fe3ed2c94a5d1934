/*
 * buckets.c - lending the memory of buckets to the backward pass, and what becomes of a full one. The memory of full
 * buckets comes back from the reducer's thread; who needs more than there is waits for it.
 *
 * The optimiser is called by the reducer's thread (a bucket has arrived) and by the backward pass (measure one), so a
 * lock keeps the two apart.
 */
#include "trainer/exchange/buckets_internal.h"

#include "base/clock.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/exchange/gradient_record.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first);
static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first);

static int make_limits(fgt_buckets *b) {
    if (!b->want.limited)
        return 0;
    size_t count = b->want.late ? 1 : b->count;
    b->limited = calloc(count ? count : 1, sizeof *b->limited);
    return b->limited && fgt_limits_create(count, &b->limits) ? 0 : -1;
}

int fgt_buckets_create(const fgt_buckets_want *want, fgt_buckets **buckets) {
    fgt_buckets *b = calloc(1, sizeof *b);
    if (!b)
        return fgio_error("not enough memory for buckets");
    b->want = *want;
    b->sink = (fgt_sink){open_tile, close_tile};
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->optimizer_lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (fgt_buckets_plan(b) != 0 || fgt_buckets_take_memory(b) != 0 || make_limits(b) != 0) {
        fgt_buckets_destroy(b);
        return fgio_error("not enough memory for buckets of gradients");
    }
    *buckets = b;
    return FGIO_EXIT_OK;
}

void fgt_buckets_destroy(fgt_buckets *b) {
    if (!b)
        return;
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->optimizer_lock);
    fgt_let_go(b->memory);
    fgt_let_go(b->whole);
    fgt_let_go(b->vector);
    fgt_limits_destroy(&b->limits);
    free(b->limited);
    free(b->bucket);
    free(b);
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

double fgt_buckets_clipped(const fgt_buckets *b) {
    return b->clipped;
}

fgt_limits *fgt_buckets_limits(fgt_buckets *b) {
    return &b->limits;
}

const double *fgt_buckets_limited_norms(const fgt_buckets *b) {
    return b->limited;
}

double fgt_buckets_blocked(const fgt_buckets *b) {
    return b->blocked;
}

double fgt_buckets_optimizer_seconds(const fgt_buckets *b) {
    return b->optimizer_seconds;
}

double fgt_buckets_inline_seconds(const fgt_buckets *b) {
    return b->inline_seconds;
}

uint64_t fgt_buckets_handed(const fgt_buckets *b) {
    return b->handed;
}

/* ---- a step ---- */

void fgt_buckets_begin(fgt_buckets *b, uint64_t step, double rate, float factor, bool measure) {
    b->step = step;
    b->rate = rate;
    b->factor = factor;
    b->measure = measure;
    b->pass = 0;
    b->norm2 = 0;
    b->clipped = 1;
    b->owner = pthread_self();
}

void fgt_buckets_next_pass(fgt_buckets *b) {
    b->pass++;
}

static float *take_slot(fgt_buckets *b) {
    pthread_mutex_lock(&b->lock);
    if (b->idles == 0) {
        double since = frugi_clock();
        while (b->idles == 0)
            pthread_cond_wait(&b->changed, &b->lock);
        b->blocked += frugi_clock() - since;
    }
    float *memory = b->idle[--b->idles];
    pthread_mutex_unlock(&b->lock);
    return memory;
}

static void free_slot(fgt_buckets *b, float *memory) {
    pthread_mutex_lock(&b->lock);
    b->idle[b->idles++] = memory;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* A gradient that is whole has its memory for itself. */
static void return_slot(fgt_buckets *b, float *memory) {
    if (!b->whole)
        free_slot(b, memory);
}

static float *open_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    fgt_buckets *b = (fgt_buckets *)sink;
    fgt_bucket *k = &b->bucket[p->bucket + first / p->tile];
    if (!k->memory)
        k->memory = b->slots ? take_slot(b) : b->whole + k->home;
    return k->memory + (p->tensor.offset + first * p->cols - k->begin);
}

/** What the optimiser is asked to do; with the lock. */
typedef enum ask { ASK_MOVE, ASK_MOVE_MEASURED, ASK_MEASURE } ask;

static void ask_optimizer(fgt_buckets *b, ask what, uint64_t begin, uint64_t count, const float *from, float *to) {
    frug_optimizer *o = b->want.optimizer;
    float *weights = b->want.graph->weights + begin;
    double since = frugi_clock();
    pthread_mutex_lock(&b->optimizer_lock);
    frug_status status = what == ASK_MOVE ? frug_optimizer_step(o, b->step, begin, count, from, b->rate, weights)
                         : what == ASK_MEASURE
                             ? frug_optimizer_measure(o, b->step, begin, count, from, to)
                             : frug_optimizer_step_measured(o, b->step, begin, count, from, b->rate, weights);
    if (status != FRUG_OK && b->failed == FRUG_OK)
        b->failed = status;
    double seconds = frugi_clock() - since;
    b->optimizer_seconds += seconds;
    b->inline_seconds += pthread_equal(pthread_self(), b->owner) ? seconds : 0;
    pthread_mutex_unlock(&b->optimizer_lock);
}

static void update(fgt_buckets *b, uint64_t begin, uint64_t count, const float *mean) {
    ask_optimizer(b, ASK_MOVE, begin, count, mean, NULL);
}

/* On the reducer's thread: the bucket holds the mean over all workers. */
static void bucket_done(void *ctx, const frug_bucket *sent, frug_status status) {
    fgt_buckets *b = ctx;
    if (status == FRUG_OK && !b->want.late)
        update(b, sent->begin, sent->count, sent->grad);
    return_slot(b, sent->grad);
}

/* Squared norm of some numbers, which are also multiplied by the factor. Eight sums, because one would wait for itself.
 */
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

/* The parameters of a bucket, without the gaps between them, where memory holds anything. */
static double weigh(fgt_buckets *b, const fgt_bucket *k, float *memory, float factor) {
    double norm2 = 0;
    uint64_t end = k->begin + k->count;
    for (const fgt_param *p = b->want.graph->params; p; p = p->next) {
        uint64_t from = p->tensor.offset, to = from + (uint64_t)p->rows * p->cols;
        from = from > k->begin ? from : k->begin;
        to = to < end ? to : end;
        if (from < to && !p->frozen)
            norm2 += norm_and_scale(memory + (from - k->begin), to - from, factor);
    }
    return norm2;
}

/* The factor that brings part i of the gradient within its limit. */
static double limit_factor(fgt_buckets *b, size_t i, double norm) {
    double factor = fgt_limits_factor(&b->limits, i, norm);
    b->limited[i] = norm * factor;
    b->clipped = factor < b->clipped ? factor : b->clipped;
    return factor;
}

/* What this step's optimiser wants of the bucket; whether that is its usual measurements. */
static bool wants_measured(fgt_buckets *b, const fgt_bucket *k) {
    if (!b->want.counted)
        return false;
    pthread_mutex_lock(&b->optimizer_lock);
    uint64_t wants = frug_optimizer_wants(b->want.optimizer, b->step, k->begin, k->count);
    pthread_mutex_unlock(&b->optimizer_lock);
    b->handed += wants;
    return b->want.reducer && k->some && wants == k->some;
}

static void measure(fgt_buckets *b, fgt_bucket *k, float *memory) {
    ask_optimizer(b, ASK_MEASURE, k->begin, k->count, memory, b->vector + k->at);
    k->measured = true;
    return_slot(b, memory);
}

/* All measurements, once all are there; a step that has none sends none. */
static frug_status exchange_measured(fgt_buckets *b) {
    frug_status status = FRUG_OK;
    bool any = false;
    for (size_t i = 0; i < b->count; i++)
        any |= b->bucket[i].measured;
    if (any) {
        double since = frugi_clock();
        status = frug_reduce_sum(b->want.reducer, b->step, b->want.measured_at, b->want.measured, b->vector,
                                 1.0f / (float)b->want.workers);
        b->inline_seconds += frugi_clock() - since;
    }
    for (size_t i = 0; i < b->count; i++) {
        fgt_bucket *k = &b->bucket[i];
        if (k->measured && status == FRUG_OK)
            ask_optimizer(b, ASK_MOVE_MEASURED, k->begin, k->count, b->vector + k->at, NULL);
        k->measured = false;
    }
    return status;
}

static void send_off(fgt_buckets *b, const fgt_bucket *k, float *memory) {
    frug_bucket out = FRUG_BUCKET_INIT;
    out.step = b->step;
    out.begin = k->begin;
    out.count = k->count;
    out.grad = memory;
    out.scale = 1.0f / (float)b->want.workers;
    out.done = bucket_done;
    out.ctx = b;
    frug_status status = FRUG_OK;
    if (!b->want.reducer)
        bucket_done(b, &out, FRUG_OK);
    else if (b->want.overlap) {
        status = frug_reducer_submit(b->want.reducer, &out);
        if (status != FRUG_OK)
            return_slot(b, memory); /* not taken, so nobody else will */
    } else {
        status = frug_reduce_sum(b->want.reducer, out.step, out.begin, out.count, out.grad, out.scale);
        bucket_done(b, &out, status);
    }
    if (status != FRUG_OK && b->failed == FRUG_OK)
        b->failed = status;
}

/* What the passes so far have come to, with this one's part, whose slot is free again. */
static float *add_pass(fgt_buckets *b, const fgt_bucket *k, float *slot) {
    float *restrict sum = b->whole + k->home;
    const float *restrict part = slot;
    if (b->pass == 0)
        memcpy(sum, part, (size_t)k->count * sizeof *sum);
    for (uint64_t i = 0; b->pass > 0 && i < k->count; i++)
        sum[i] += part[i];
    free_slot(b, slot);
    return sum;
}

static void close_tile(fgt_sink *sink, const fgt_param *p, size_t first) {
    fgt_buckets *b = (fgt_buckets *)sink;
    fgt_bucket *k = &b->bucket[p->bucket + first / p->tile];
    if (++k->closed < k->tiles)
        return;
    float *memory = k->memory;
    k->closed = 0;
    k->memory = NULL;
    if (b->want.passes > 1) {
        memory = add_pass(b, k, memory);
        if (b->pass + 1 < b->want.passes)
            return;
    }
    if (b->want.record && !b->measure)
        fgt_record_put(b->want.record, b->step, k->begin, k->count, memory);
    double norm2 = weigh(b, k, memory, b->factor);
    if (!b->want.late || b->measure)
        b->norm2 += norm2;
    if (b->want.limited && !b->want.late && !b->measure) {
        double factor = limit_factor(b, (size_t)(k - b->bucket), sqrt(norm2));
        if (factor < 1)
            weigh(b, k, memory, (float)factor);
    }
    if (b->measure || b->failed != FRUG_OK)
        return_slot(b, memory);
    else if (wants_measured(b, k))
        measure(b, k, memory);
    else
        send_off(b, k, memory);
}

static void update_late(fgt_buckets *b, double clip) {
    for (size_t i = 0; i < b->count; i++)
        b->norm2 += weigh(b, &b->bucket[i], b->whole + b->bucket[i].home, 1.0f);
    double norm = sqrt(b->norm2);
    b->clipped = clip > 0 && norm > clip ? clip / norm : 1;
    if (b->want.limited)
        limit_factor(b, 0, norm);
    for (size_t i = 0; i < b->count; i++) {
        const fgt_bucket *k = &b->bucket[i];
        if (b->clipped < 1)
            weigh(b, k, b->whole + k->home, (float)b->clipped);
        update(b, k->begin, k->count, b->whole + k->home);
    }
}

frug_status fgt_buckets_end(fgt_buckets *b, double late_clip) {
    frug_status status = (frug_status)atomic_load(&b->failed);
    if (b->want.reducer && b->want.overlap) {
        double since = frugi_clock();
        frug_status finished = frug_reducer_finish(b->want.reducer);
        b->blocked += frugi_clock() - since;
        status = status == FRUG_OK ? finished : status;
    }
    if (status == FRUG_OK && b->want.late && !b->measure)
        update_late(b, late_clip);
    if (status == FRUG_OK)
        status = exchange_measured(b);
    frug_status failed = (frug_status)atomic_exchange(&b->failed, FRUG_OK); /* the optimiser may have, since */
    return status == FRUG_OK ? failed : status;
}

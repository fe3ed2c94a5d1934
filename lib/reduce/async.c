/*
 * async.c - asynchronous buckets: a thread of the reducer reduces submitted buckets in order.
 *
 * The queue has a fixed length; submitting to a full queue blocks, which bounds the memory in use. If the transport may
 * only be called from the thread that created it (any_thread is 0), or no thread can be started, a bucket is reduced
 * while it is submitted. After an error the queued buckets are dropped and frug_reducer_finish() returns the error. In
 * every case the callback of each submitted bucket is called once, in order, with no lock held.
 */
#include "reduce/reducer.h"

#include "base/struct_size.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"

#include <pthread.h>
#include <string.h>

#define ERROR_TEXT 512

struct frugi_async {
    frug_reducer *reducer;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    frug_bucket queue[FRUGI_QUEUE_MAX];
    size_t first, queued; /* head and length of the queue */
    bool has_thread, stopping;
    bool unfinished;    /* buckets were submitted since the last frug_reducer_finish() */
    bool reducing;      /* without a thread: in reduce_inline() */
    frug_status status; /* of the first bucket that failed */
    char error[ERROR_TEXT];
};

frug_status frugi_async_check_idle(frugi_async *a) {
    if (!a || (a->has_thread && pthread_equal(pthread_self(), a->thread)))
        return FRUG_OK;
    FRUG_FAIL_IF(a->unfinished && !a->reducing, FRUG_ERR_ARG,
                 "reduce: buckets are in flight; call frug_reducer_finish() first");
    return FRUG_OK;
}

static frug_status reduce(frug_reducer *r, const frug_bucket *b) {
    if (b->weights)
        return frug_reducer_apply(r, b->step, b->range, b->grad, b->rate, b->decay, b->weights);
    return frug_reducer_sum(r, b->step, b->range, b->grad, b->scale);
}

static void notify(const frug_bucket *b, frug_status status) {
    if (b->done)
        b->done(b->ctx, b, status);
}

/*
 * Keep the first error; later buckets get the same one. Only the reducing thread writes it while buckets are queued,
 * and frug_reducer_finish() while none are.
 */
static void store_error(frugi_async *a, frug_status status) {
    if (a->status != FRUG_OK || status == FRUG_OK)
        return;
    a->status = status;
    strncpy(a->error, frug_last_error(), sizeof a->error - 1);
}

/* The thread. The lock is released while a bucket is reduced. */
static void *run_queue(void *arg) {
    frugi_async *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stopping || a->queued) {
        if (!a->queued) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        frug_bucket b = a->queue[a->first];
        frug_status status = a->status;
        pthread_mutex_unlock(&a->lock);
        if (status == FRUG_OK)
            store_error(a, status = reduce(a->reducer, &b));
        notify(&b, status);
        pthread_mutex_lock(&a->lock);
        a->first = (a->first + 1) % FRUGI_QUEUE_MAX;
        a->queued--;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static frug_status create_async(frug_reducer *r) {
    frugi_async *a = frugi_calloc(1, sizeof *a);
    FRUG_FAIL_IF(!a, FRUG_ERR_MEMORY, "reduce: out of memory");
    a->reducer = r;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    /* No error if there is no thread: the other ranks would wait for this one. */
    a->has_thread = r->comm->transport.any_thread != 0 && pthread_create(&a->thread, NULL, run_queue, a) == 0;
    r->async = a;
    return FRUG_OK;
}

void frugi_async_destroy(frugi_async *a) {
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread)
        pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    frugi_free(a);
}

/* Without a thread. Errors are returned by frug_reducer_finish() here as well. */
static void reduce_inline(frugi_async *a, const frug_bucket *b) {
    a->reducing = true;
    frug_status status = a->status == FRUG_OK ? reduce(a->reducer, b) : a->status;
    a->reducing = false;
    store_error(a, status);
    notify(b, status);
}

frug_status frug_reducer_submit(frug_reducer *r, const frug_bucket *bucket) {
    FRUG_FAIL_IF(!r || !frugi_struct_valid(bucket), FRUG_ERR_ARG,
                 "submit: reducer or bucket is NULL, or struct_size is not set");
    frug_bucket full = FRUG_BUCKET_INIT;
    frugi_struct_read(&full, bucket);
    if (!r->async)
        FRUG_TRY(create_async(r));
    frugi_async *a = r->async;
    a->unfinished = true;
    double begin = frugi_clock();
    if (!a->has_thread) {
        reduce_inline(a, &full);
        r->seconds_blocked += frugi_clock() - begin;
        return FRUG_OK;
    }
    pthread_mutex_lock(&a->lock);
    while (a->queued == FRUGI_QUEUE_MAX)
        pthread_cond_wait(&a->changed, &a->lock);
    a->queue[(a->first + a->queued++) % FRUGI_QUEUE_MAX] = full;
    r->seconds_blocked += frugi_clock() - begin;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return FRUG_OK;
}

frug_status frug_reducer_finish(frug_reducer *r) {
    FRUG_FAIL_IF(!r, FRUG_ERR_ARG, "finish: reducer is NULL");
    frugi_async *a = r->async;
    if (!a)
        return FRUG_OK;
    double begin = frugi_clock();
    pthread_mutex_lock(&a->lock);
    while (a->queued)
        pthread_cond_wait(&a->changed, &a->lock);
    frug_status status = a->status;
    char error[ERROR_TEXT];
    memcpy(error, a->error, sizeof error);
    a->status = FRUG_OK;
    a->unfinished = false;
    r->stats.seconds_blocked = r->seconds_blocked += frugi_clock() - begin;
    pthread_mutex_unlock(&a->lock);
    return status == FRUG_OK ? FRUG_OK : frugi_fail(status, "%s", error);
}

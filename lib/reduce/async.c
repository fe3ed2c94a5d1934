/*
 * async.c - hand over buckets and go on computing: a thread of the reducer's own takes them in order.
 *
 * The queue holds a fixed number of buckets; who hands over one more waits, which bounds the memory in flight. A
 * transport that must be called from the thread that made it (any_thread is 0) has no such thread, nor has a process
 * that cannot start one more: then a bucket is reduced when it is handed over. After an error the buckets that wait are
 * dropped, and frug_reducer_finish() says what happened. Either way each bucket that was taken has its end told once,
 * in order, while no lock is held.
 */
#include "reduce/reducer.h"

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
    frug_bucket queue[FRUGI_BUCKETS];
    size_t first, waiting; /* of the queue */
    bool own_thread, ending;
    frug_status status; /* of the first bucket that failed */
    char error[ERROR_TEXT];
};

static frug_status reduce(frug_reducer *r, const frug_bucket *b) {
    if (b->weights)
        return frug_reduce_apply(r, b->step, b->begin, b->count, b->grad, b->rate, b->decay, b->weights);
    return frug_reduce_sum(r, b->step, b->begin, b->count, b->grad, b->scale);
}

static void tell(const frug_bucket *b, frug_status status) {
    if (b->done)
        b->done(b->ctx, b, status);
}

/*
 * The first error is kept; what comes of the buckets behind it is the same one. Only who reduces writes it while
 * buckets wait, and finish() while none do.
 */
static void note(frugi_async *a, frug_status status) {
    if (a->status != FRUG_OK || status == FRUG_OK)
        return;
    a->status = status;
    strncpy(a->error, frug_last_error(), sizeof a->error - 1);
}

/* The thread: one bucket after the other. The lock is free while it works. */
static void *work(void *arg) {
    frugi_async *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->ending || a->waiting) {
        if (!a->waiting) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        frug_bucket b = a->queue[a->first];
        frug_status status = a->status;
        pthread_mutex_unlock(&a->lock);
        if (status == FRUG_OK)
            note(a, status = reduce(a->reducer, &b));
        tell(&b, status);
        pthread_mutex_lock(&a->lock);
        a->first = (a->first + 1) % FRUGI_BUCKETS;
        a->waiting--;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static frug_status start(frug_reducer *r) {
    frugi_async *a = frugi_calloc(1, sizeof *a);
    FRUG_FAIL_IF(!a, FRUG_ERR_MEMORY, "reduce: out of memory");
    a->reducer = r;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    /* A rank that cannot have a thread reduces in this one: an error here would leave the other ranks waiting. */
    a->own_thread = r->comm->transport.any_thread != 0 && pthread_create(&a->thread, NULL, work, a) == 0;
    r->async = a;
    return FRUG_OK;
}

void frugi_async_end(frugi_async *a) {
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->ending = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->own_thread)
        pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    frugi_free(a);
}

/* Where there is no other thread. Errors come out at the end here as well. */
static void reduce_now(frugi_async *a, const frug_bucket *b) {
    frug_status status = a->status == FRUG_OK ? reduce(a->reducer, b) : a->status;
    note(a, status);
    tell(b, status);
}

frug_status frug_reducer_submit(frug_reducer *r, const frug_bucket *bucket) {
    FRUG_FAIL_IF(!r || !bucket || bucket->struct_size < sizeof *bucket, FRUG_ERR_ARG,
                 "submit: no reducer, no bucket or struct_size unset");
    if (!r->async)
        FRUG_TRY(start(r));
    frugi_async *a = r->async;
    double since = frugi_clock();
    if (!a->own_thread) {
        reduce_now(a, bucket);
        r->seconds_blocked += frugi_clock() - since;
        return FRUG_OK;
    }
    pthread_mutex_lock(&a->lock);
    while (a->waiting == FRUGI_BUCKETS)
        pthread_cond_wait(&a->changed, &a->lock);
    a->queue[(a->first + a->waiting++) % FRUGI_BUCKETS] = *bucket;
    r->seconds_blocked += frugi_clock() - since;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return FRUG_OK;
}

frug_status frug_reducer_finish(frug_reducer *r) {
    FRUG_FAIL_IF(!r, FRUG_ERR_ARG, "finish: no reducer");
    frugi_async *a = r->async;
    if (!a)
        return FRUG_OK;
    double since = frugi_clock();
    pthread_mutex_lock(&a->lock);
    while (a->waiting)
        pthread_cond_wait(&a->changed, &a->lock);
    frug_status status = a->status;
    char error[ERROR_TEXT];
    memcpy(error, a->error, sizeof error);
    a->status = FRUG_OK;
    r->stats.seconds_blocked = r->seconds_blocked += frugi_clock() - since;
    pthread_mutex_unlock(&a->lock);
    return status == FRUG_OK ? FRUG_OK : frugi_fail(status, "%s", error);
}

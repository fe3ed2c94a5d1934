/*
 * thread_transport.c - transport for workers that are threads of one process, and the group of one.
 *
 * Every rank has an endpoint: a mutex, a condition variable and a hash table, by sender and tag, of unmatched sends to
 * it and of its own unmatched receives. Of a matching send and receive the one posted second copies the bytes, outside
 * the lock, directly from the send buffer to the receive buffer. So the cost of a message does not depend on the number
 * of ranks.
 *
 * All-gathers of short data use a shared table (thread_allgather.c) instead of P^2 messages.
 */
#include "comm/comm.h"
#include "comm/thread_allgather.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define MAX_BUCKETS  256u  /* per endpoint */
#define WAIT_SECONDS 50e-3 /* seconds */

enum { PENDING, COPYING, DONE, FAILED }; /* states of a request */

/** A posted message. Only the rank that posted it allocates and recycles it. */
typedef struct request {
    struct request *next; /* in a bucket of the receiver's endpoint, or in free_list */
    frug_message *message;
    int from, to;
    atomic_int state;
} request;

typedef struct bucket {
    request *first, **last; /* unmatched requests, in the order they were posted */
} bucket;

/** One rank; ctx of its frug_comm. */
typedef struct endpoint {
    struct group *group;
    int rank;
    pthread_mutex_t lock; /* protects buckets and events */
    pthread_cond_t wakeup;
    bucket *bucket;
    uint64_t events;      /* number of wake() calls */
    uint64_t events_seen; /* of which the rank has been notified */
    request *free_list;
} endpoint;

typedef struct group {
    endpoint *endpoint;
    int size;
    unsigned buckets; /* per endpoint, a power of two */
    bucket *bucket;   /* of all endpoints */
    frugi_thread_allgather *allgather;
    atomic_int handles;
} group;

/* ---- wake-ups ----------------------------------------------------------------------- */

static void wake(endpoint *ep) {
    pthread_mutex_lock(&ep->lock);
    ep->events++;
    pthread_cond_signal(&ep->wakeup);
    pthread_mutex_unlock(&ep->lock);
}

/* Returns at once if an event came before the wait, so that no wake-up is missed. */
static frug_status wait_event(void *ctx, double seconds) {
    endpoint *ep = ctx;
    int late = 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long long ns = until.tv_nsec + (long long)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&ep->lock);
    while (ep->events == ep->events_seen && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&ep->wakeup, &ep->lock, &until);
    ep->events_seen = ep->events;
    pthread_mutex_unlock(&ep->lock);
    return FRUG_OK;
}

/* ---- messages ----------------------------------------------------------------------- */

static bucket *find_bucket(const group *g, const request *req) {
    unsigned hash = (unsigned)req->from + (unsigned)req->message->tag * 0x9e3779b1u;
    return &g->endpoint[req->to].bucket[hash & (g->buckets - 1)];
}

static bool matches(const request *a, const request *b) {
    return a->message->sending != b->message->sending && a->from == b->from && a->message->tag == b->message->tag;
}

static void unlink_request(bucket *b, request **at) {
    request *req = *at;
    *at = req->next;
    if (b->last == &req->next)
        b->last = at;
}

/* Remove the first match of a request from its bucket and return it. Without a match, enqueue the request. */
static request *match_or_enqueue(bucket *b, request *mine) {
    for (request **at = &b->first; *at; at = &(*at)->next)
        if (matches(*at, mine)) {
            request *found = *at;
            unlink_request(b, at);
            atomic_store_explicit(&found->state, COPYING, memory_order_relaxed);
            return found;
        }
    *b->last = mine;
    b->last = &mine->next;
    return NULL;
}

/* Copy the bytes and wake the other rank. Once its request is DONE the other rank may recycle it. */
static void complete_pair(group *g, request *mine, request *theirs) {
    const frug_message *a = mine->message, *b = theirs->message;
    endpoint *other = &g->endpoint[a->sending ? mine->to : mine->from];
    int state = a->bytes == b->bytes ? DONE : FAILED;
    if (state == DONE && a->bytes)
        memcpy(a->sending ? b->data : a->data, a->sending ? a->data : b->data, a->bytes);
    atomic_store_explicit(&mine->state, state, memory_order_relaxed);
    atomic_store_explicit(&theirs->state, state, memory_order_release);
    wake(other);
}

static frug_status post(void *ctx, frug_message *m) {
    endpoint *ep = ctx;
    group *g = ep->group;
    request *req = ep->free_list;
    if (req)
        ep->free_list = req->next;
    else if (!(req = frugi_malloc(sizeof *req)))
        return FRUG_ERR_MEMORY;
    req->next = NULL;
    req->message = m;
    req->from = m->sending ? ep->rank : m->peer;
    req->to = m->sending ? m->peer : ep->rank;
    atomic_init(&req->state, PENDING);
    m->handle = req;
    pthread_mutex_t *lock = &g->endpoint[req->to].lock;
    pthread_mutex_lock(lock);
    request *match = match_or_enqueue(find_bucket(g, req), req);
    pthread_mutex_unlock(lock);
    if (match)
        complete_pair(g, req, match);
    return FRUG_OK;
}

static void recycle_request(endpoint *ep, request *req) {
    req->next = ep->free_list;
    ep->free_list = req;
}

static frug_status test(void *ctx, frug_message *m) {
    request *req = m->handle;
    int state = atomic_load_explicit(&req->state, memory_order_acquire);
    m->done = state == DONE || state == FAILED;
    if (m->done)
        recycle_request(ctx, req);
    return state == FAILED ? FRUG_ERR_COMM : FRUG_OK;
}

static void abandon(void *ctx, frug_message *m) {
    endpoint *ep = ctx;
    request *req = m->handle;
    pthread_mutex_t *lock = &ep->group->endpoint[req->to].lock;
    pthread_mutex_lock(lock);
    bucket *b = find_bucket(ep->group, req);
    if (atomic_load_explicit(&req->state, memory_order_relaxed) == PENDING)
        for (request **at = &b->first; *at; at = &(*at)->next)
            if (*at == req) {
                unlink_request(b, at);
                atomic_store_explicit(&req->state, DONE, memory_order_relaxed);
                break;
            }
    pthread_mutex_unlock(lock);
    while (atomic_load_explicit(&req->state, memory_order_acquire) == COPYING)
        wait_event(ep, WAIT_SECONDS);
    recycle_request(ep, req);
}

/* ---- group ----------------------------------------------------------------------------- */

static frug_status short_allgather(void *ctx, const frug_comm *comm, int tag, const void *mine, size_t bytes,
                                   void *all) {
    return frugi_thread_allgather_run(((endpoint *)ctx)->group->allgather, comm, tag, mine, bytes, all);
}

static void free_group(group *g) {
    for (int i = 0; i < g->size && g->endpoint; i++) {
        endpoint *ep = &g->endpoint[i];
        for (request *req = ep->free_list; req; req = ep->free_list) {
            ep->free_list = req->next;
            frugi_free(req);
        }
        pthread_cond_destroy(&ep->wakeup);
        pthread_mutex_destroy(&ep->lock);
    }
    frugi_thread_allgather_destroy(g->allgather);
    frugi_free(g->bucket);
    frugi_free(g->endpoint);
    frugi_free(g);
}

static void release_endpoint(void *ctx) {
    group *g = ((endpoint *)ctx)->group;
    if (atomic_fetch_sub(&g->handles, 1) == 1)
        free_group(g);
}

static const frug_transport transport = {.struct_size = sizeof transport,
                                         .name = "threads",
                                         .any_thread = 1,
                                         .post = post,
                                         .test = test,
                                         .wait = wait_event,
                                         .abandon = abandon,
                                         .destroy = release_endpoint};

static void init_endpoint(group *g, int rank) {
    endpoint *ep = &g->endpoint[rank];
    ep->group = g;
    ep->rank = rank;
    ep->bucket = g->bucket + (size_t)rank * g->buckets;
    for (unsigned i = 0; i < g->buckets; i++)
        ep->bucket[i].last = &ep->bucket[i].first;
    pthread_mutex_init(&ep->lock, NULL);
    pthread_cond_init(&ep->wakeup, NULL);
}

static group *create_group(int size) {
    group *g = frugi_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->buckets = 1;
    while (g->buckets < (unsigned)size && g->buckets < MAX_BUCKETS)
        g->buckets *= 2;
    g->bucket = frugi_calloc((size_t)size * g->buckets, sizeof *g->bucket);
    g->allgather = frugi_thread_allgather_create(size);
    endpoint *endpoints = g->bucket && g->allgather ? frugi_calloc((size_t)size, sizeof *g->endpoint) : NULL;
    if (!endpoints) {
        free_group(g);
        return NULL;
    }
    g->endpoint = endpoints;
    g->size = size;
    for (int i = 0; i < size; i++)
        init_endpoint(g, i);
    return g;
}

/* With more threads than cores poll for less time: a polling thread takes the core from one that computes. */
static double poll_seconds(int size, int cores) {
    return cores >= size ? FRUGI_POLL_SECONDS : FRUGI_POLL_SECONDS * cores / size;
}

frug_status frug_comm_threads(int size, frug_comm **comms) {
    FRUG_FAIL_IF(size < 1 || !comms, FRUG_ERR_ARG, "comm: %d threads, or the result is NULL", size);
    group *g = create_group(size);
    FRUG_FAIL_IF(!g, FRUG_ERR_MEMORY, "comm: out of memory");
    atomic_init(&g->handles, 0);
    const int cores = frugi_cpu_cores();
    for (int i = 0; i < size; i++) {
        frug_status status = frug_comm_create(&transport, &g->endpoint[i], i, size, &comms[i]);
        if (status != FRUG_OK) {
            if (i == 0)
                free_group(g);
            while (i > 0)
                frug_comm_destroy(comms[--i]);
            return status;
        }
        comms[i]->short_allgather = short_allgather;
        comms[i]->poll_seconds = poll_seconds(size, cores);
        comms[i]->transport.threads = cores > size ? cores / size : 1;
        atomic_fetch_add(&g->handles, 1);
    }
    return FRUG_OK;
}

frug_status frug_comm_self(frug_comm **comm) {
    return frug_comm_threads(1, comm);
}

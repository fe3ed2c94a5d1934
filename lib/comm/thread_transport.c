/*
 * thread_transport.c - workers that are threads of one process; and the group of one.
 *
 * Every rank has a mailbox: messages to it that have no partner yet, hashed by sender and tag, under a lock of its own,
 * and a bell that wakes this rank alone. The second of two partners to arrive copies the bytes, outside the lock,
 * straight from one worker's buffer to the other's. So the cost of a message does not depend on how many ranks there
 * are.
 *
 * Short pieces that all ranks gather do not travel as messages, which would be P^2 of them, but over a table
 * (thread_allgather.c).
 */
#include "comm/comm.h"
#include "comm/thread_allgather.h"

#include "base/alloc.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS_MOST 256u  /* of a mailbox */
#define NAP          50e-3 /* seconds */

enum { WAITING, COPYING, DONE, BAD }; /* the states of a note */

/** A message that was posted. Its rank alone makes it and uses it again. */
typedef struct note {
    struct note *next; /* in a bucket of the receiver's mailbox; or of those to use again */
    frug_message *message;
    int from, to;
    atomic_int state;
} note;

typedef struct bucket {
    note *first, **last; /* without partner, in the order they came */
} bucket;

/** One rank: its handle, its mailbox and its bell. */
typedef struct seat {
    struct hub *hub;
    int rank;
    pthread_mutex_t lock; /* of the buckets and of news */
    pthread_cond_t bell;
    bucket *bucket;
    uint64_t news;  /* how often the bell has rung */
    uint64_t heard; /* rings that this rank knows of */
    note *spare;
} seat;

typedef struct hub {
    seat *seat;
    int size;
    unsigned buckets; /* of each mailbox, a power of two */
    bucket *bucket;   /* of all mailboxes */
    frugi_meeting *meeting;
    atomic_int handles;
} hub;

/* ---- the bell ---------------------------------------------------------------------- */

static void ring(seat *s) {
    pthread_mutex_lock(&s->lock);
    s->news++;
    pthread_cond_signal(&s->bell);
    pthread_mutex_unlock(&s->lock);
}

/* A ring that came before the wait counts, or it would be slept through. */
static frug_status wait_for_bell(void *ctx, double seconds) {
    seat *s = ctx;
    int late = 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long long ns = until.tv_nsec + (long long)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&s->lock);
    while (s->news == s->heard && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&s->bell, &s->lock, &until);
    s->heard = s->news;
    pthread_mutex_unlock(&s->lock);
    return FRUG_OK;
}

/* ---- messages ----------------------------------------------------------------------- */

static bucket *bucket_of(const hub *h, const note *n) {
    unsigned hash = (unsigned)n->from + (unsigned)n->message->tag * 0x9e3779b1u;
    return &h->seat[n->to].bucket[hash & (h->buckets - 1)];
}

static bool partners(const note *a, const note *b) {
    return a->message->sending != b->message->sending && a->from == b->from && a->message->tag == b->message->tag;
}

static void take_out(bucket *b, note **at) {
    note *n = *at;
    *at = n->next;
    if (b->last == &n->next)
        b->last = at;
}

/* Take the first partner of a note out of its bucket; where there is none the note stays there itself. */
static note *find_partner(bucket *b, note *mine) {
    for (note **at = &b->first; *at; at = &(*at)->next)
        if (partners(*at, mine)) {
            note *found = *at;
            take_out(b, at);
            atomic_store_explicit(&found->state, COPYING, memory_order_relaxed);
            return found;
        }
    *b->last = mine;
    b->last = &mine->next;
    return NULL;
}

/* Both are there: copy, and wake the one who came first. From the moment its note is done it may be used again. */
static void deliver(hub *h, note *mine, note *theirs) {
    const frug_message *a = mine->message, *b = theirs->message;
    seat *other = &h->seat[a->sending ? mine->to : mine->from];
    int state = a->bytes == b->bytes ? DONE : BAD;
    if (state == DONE && a->bytes)
        memcpy(a->sending ? b->data : a->data, a->sending ? a->data : b->data, a->bytes);
    atomic_store_explicit(&mine->state, state, memory_order_relaxed);
    atomic_store_explicit(&theirs->state, state, memory_order_release);
    ring(other);
}

static frug_status post(void *ctx, frug_message *m) {
    seat *s = ctx;
    hub *h = s->hub;
    note *n = s->spare;
    if (n)
        s->spare = n->next;
    else if (!(n = frugi_malloc(sizeof *n)))
        return FRUG_ERR_MEMORY;
    n->next = NULL;
    n->message = m;
    n->from = m->sending ? s->rank : m->peer;
    n->to = m->sending ? m->peer : s->rank;
    atomic_init(&n->state, WAITING);
    m->handle = n;
    pthread_mutex_t *lock = &h->seat[n->to].lock;
    pthread_mutex_lock(lock);
    note *partner = find_partner(bucket_of(h, n), n);
    pthread_mutex_unlock(lock);
    if (partner)
        deliver(h, n, partner);
    return FRUG_OK;
}

static void retire(seat *s, note *n) {
    n->next = s->spare;
    s->spare = n;
}

static frug_status test(void *ctx, frug_message *m) {
    note *n = m->handle;
    int state = atomic_load_explicit(&n->state, memory_order_acquire);
    m->done = state == DONE || state == BAD;
    if (m->done)
        retire(ctx, n);
    return state == BAD ? FRUG_ERR_COMM : FRUG_OK;
}

static void abandon(void *ctx, frug_message *m) {
    seat *s = ctx;
    note *n = m->handle;
    pthread_mutex_t *lock = &s->hub->seat[n->to].lock;
    pthread_mutex_lock(lock);
    bucket *b = bucket_of(s->hub, n);
    if (atomic_load_explicit(&n->state, memory_order_relaxed) == WAITING)
        for (note **at = &b->first; *at; at = &(*at)->next)
            if (*at == n) {
                take_out(b, at);
                atomic_store_explicit(&n->state, DONE, memory_order_relaxed);
                break;
            }
    pthread_mutex_unlock(lock);
    while (atomic_load_explicit(&n->state, memory_order_acquire) == COPYING)
        wait_for_bell(s, NAP);
    retire(s, n);
}

/* ---- the group --------------------------------------------------------------------------- */

static frug_status gather(void *ctx, const frug_comm *comm, int tag, const void *mine, size_t bytes, void *all) {
    return frugi_meeting_gather(((seat *)ctx)->hub->meeting, comm, tag, mine, bytes, all);
}

static void free_hub(hub *h) {
    for (int i = 0; i < h->size && h->seat; i++) {
        seat *s = &h->seat[i];
        for (note *n = s->spare; n; n = s->spare) {
            s->spare = n->next;
            frugi_free(n);
        }
        pthread_cond_destroy(&s->bell);
        pthread_mutex_destroy(&s->lock);
    }
    frugi_meeting_destroy(h->meeting);
    frugi_free(h->bucket);
    frugi_free(h->seat);
    frugi_free(h);
}

static void leave(void *ctx) {
    hub *h = ((seat *)ctx)->hub;
    if (atomic_fetch_sub(&h->handles, 1) == 1)
        free_hub(h);
}

static const frug_transport transport = {.struct_size = sizeof transport,
                                         .name = "threads",
                                         .any_thread = 1,
                                         .post = post,
                                         .test = test,
                                         .wait = wait_for_bell,
                                         .abandon = abandon,
                                         .destroy = leave};

static void open_seat(hub *h, int rank) {
    seat *s = &h->seat[rank];
    s->hub = h;
    s->rank = rank;
    s->bucket = h->bucket + (size_t)rank * h->buckets;
    for (unsigned i = 0; i < h->buckets; i++)
        s->bucket[i].last = &s->bucket[i].first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->bell, NULL);
}

static hub *make_hub(int size) {
    hub *h = frugi_calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->buckets = 1;
    while (h->buckets < (unsigned)size && h->buckets < BUCKETS_MOST)
        h->buckets *= 2;
    h->bucket = frugi_calloc((size_t)size * h->buckets, sizeof *h->bucket);
    h->meeting = frugi_meeting_create(size);
    seat *seats = h->bucket && h->meeting ? frugi_calloc((size_t)size, sizeof *h->seat) : NULL;
    if (!seats) {
        free_hub(h);
        return NULL;
    }
    h->seat = seats;
    h->size = size;
    for (int i = 0; i < size; i++)
        open_seat(h, i);
    return h;
}

/* Threads that share a core poll the less the more there are: what one polls, another cannot compute. */
static double eager(int size) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores >= size ? FRUGI_EAGER : FRUGI_EAGER * (double)(cores > 1 ? cores : 1) / size;
}

frug_status frug_comm_threads(int size, frug_comm **comms) {
    FRUG_FAIL_IF(size < 1 || !comms, FRUG_ERR_ARG, "comm: %d threads, or no place for the result", size);
    hub *h = make_hub(size);
    FRUG_FAIL_IF(!h, FRUG_ERR_MEMORY, "comm: out of memory");
    atomic_init(&h->handles, 0);
    for (int i = 0; i < size; i++) {
        frug_status status = frug_comm_create(&transport, &h->seat[i], i, size, &comms[i]);
        if (status != FRUG_OK) {
            if (i == 0)
                free_hub(h);
            while (i > 0)
                frug_comm_destroy(comms[--i]);
            return status;
        }
        comms[i]->gather = gather;
        comms[i]->eager = eager(size);
        atomic_fetch_add(&h->handles, 1);
    }
    return FRUG_OK;
}

frug_status frug_comm_self(frug_comm **comm) {
    return frug_comm_threads(1, comm);
}

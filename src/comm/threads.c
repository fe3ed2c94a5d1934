/*
 * threads.c - workers that are threads of one process; and the group of one.
 *
 * The handles share a hub: a lock, a bell that rings when anything changes, and the messages that have no partner yet.
 * The second of two partners to arrive copies the bytes, outside the lock, straight from one worker's buffer to the
 * other's.
 */
#include "comm/comm.h"

#include "common/memory.h"
#include "common/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/** A message in the hub. */
typedef struct note {
    struct note *next; /* in the list of those without partner, or of those to use again */
    frug_message *message;
    int from, to;
    bool copying, done, bad;
} note;

typedef struct hub {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    note *waiting, **last; /* without partner, in the order they came */
    note *spare;
    uint64_t news; /* how often the bell has rung */
    int handles;
    struct seat *seat;
} hub;

/** One worker's handle. */
typedef struct seat {
    hub *hub;
    int rank;
    uint64_t heard; /* rings of the bell that this worker knows of */
} seat;

static bool partners(const note *a, const note *b) {
    return a->message->sending != b->message->sending && a->from == b->from && a->to == b->to &&
           a->message->tag == b->message->tag;
}

/* Take the first partner of a note out of the list. */
static note *find_partner(hub *h, const note *mine) {
    for (note **at = &h->waiting; *at; at = &(*at)->next)
        if (partners(*at, mine)) {
            note *found = *at;
            *at = found->next;
            if (h->last == &found->next)
                h->last = at;
            return found;
        }
    return NULL;
}

static note *new_note(hub *h) {
    note *n = h->spare;
    if (n)
        h->spare = n->next;
    else
        n = frugi_malloc(sizeof *n);
    return n;
}

/* Both at hand: copy without the lock, and ring. */
static void deliver(hub *h, note *a, note *b) {
    note *sender = a->message->sending ? a : b, *receiver = a->message->sending ? b : a;
    a->copying = b->copying = true;
    a->bad = b->bad = sender->message->bytes != receiver->message->bytes;
    pthread_mutex_unlock(&h->lock);
    if (!a->bad && sender->message->bytes)
        memcpy(receiver->message->data, sender->message->data, sender->message->bytes);
    pthread_mutex_lock(&h->lock);
    a->copying = b->copying = false;
    a->done = b->done = true;
    h->news++;
    pthread_cond_broadcast(&h->bell);
}

static frug_status post(void *ctx, frug_message *m) {
    seat *s = ctx;
    hub *h = s->hub;
    pthread_mutex_lock(&h->lock);
    note *n = new_note(h);
    if (n) {
        *n = (note){.message = m, .from = m->sending ? s->rank : m->peer, .to = m->sending ? m->peer : s->rank};
        m->handle = n;
        note *partner = find_partner(h, n);
        if (partner) {
            deliver(h, n, partner);
        } else {
            *h->last = n;
            h->last = &n->next;
        }
    }
    pthread_mutex_unlock(&h->lock);
    return n ? FRUG_OK : FRUG_ERR_MEMORY;
}

static void retire(hub *h, note *n) {
    n->next = h->spare;
    h->spare = n;
}

static frug_status test(void *ctx, frug_message *m) {
    hub *h = ((seat *)ctx)->hub;
    note *n = m->handle;
    pthread_mutex_lock(&h->lock);
    bool bad = n->bad && n->done;
    m->done = n->done;
    if (m->done)
        retire(h, n);
    pthread_mutex_unlock(&h->lock);
    return bad ? FRUG_ERR_COMM : FRUG_OK;
}

/* A ring that came before the wait counts, or it would be slept through. */
static frug_status wait_for_bell(void *ctx, double seconds) {
    seat *s = ctx;
    hub *h = s->hub;
    int late = 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long long ns = until.tv_nsec + (long long)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&h->lock);
    while (h->news == s->heard && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&h->bell, &h->lock, &until);
    s->heard = h->news;
    pthread_mutex_unlock(&h->lock);
    return FRUG_OK;
}

static void abandon(void *ctx, frug_message *m) {
    hub *h = ((seat *)ctx)->hub;
    note *n = m->handle;
    pthread_mutex_lock(&h->lock);
    while (n->copying)
        pthread_cond_wait(&h->bell, &h->lock);
    for (note **at = &h->waiting; !n->done && *at; at = &(*at)->next)
        if (*at == n) {
            *at = n->next;
            if (h->last == &n->next)
                h->last = at;
            break;
        }
    retire(h, n);
    pthread_mutex_unlock(&h->lock);
}

static void free_hub(hub *h) {
    for (note *n = h->spare; n; n = h->spare) {
        h->spare = n->next;
        frugi_free(n);
    }
    pthread_cond_destroy(&h->bell);
    pthread_mutex_destroy(&h->lock);
    frugi_free(h->seat);
    frugi_free(h);
}

static void leave(void *ctx) {
    hub *h = ((seat *)ctx)->hub;
    pthread_mutex_lock(&h->lock);
    int left = --h->handles;
    pthread_mutex_unlock(&h->lock);
    if (!left)
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

static hub *make_hub(int size) {
    hub *h = frugi_calloc(1, sizeof *h);
    seat *seats = frugi_calloc((size_t)size, sizeof *seats);
    if (!h || !seats) {
        frugi_free(h);
        frugi_free(seats);
        return NULL;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->bell, NULL);
    h->last = &h->waiting;
    h->seat = seats;
    return h;
}

frug_status frug_comm_threads(int size, frug_comm **comms) {
    FRUG_FAIL_IF(size < 1 || !comms, FRUG_ERR_ARG, "comm: %d threads, or no place for the result", size);
    hub *h = make_hub(size);
    FRUG_FAIL_IF(!h, FRUG_ERR_MEMORY, "comm: out of memory");
    for (; h->handles < size; h->handles++) {
        int i = h->handles;
        h->seat[i] = (seat){.hub = h, .rank = i};
        frug_status status = frug_comm_create(&transport, &h->seat[i], i, size, &comms[i]);
        if (status == FRUG_OK)
            continue;
        if (i == 0)
            free_hub(h);
        while (i > 0)
            frug_comm_destroy(comms[--i]);
        return status;
    }
    return FRUG_OK;
}

frug_status frug_comm_self(frug_comm **comm) {
    return frug_comm_threads(1, comm);
}

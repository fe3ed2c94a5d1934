/*
 * thread_allgather.c - threads gather short pieces: each writes its own into a table and the last to arrive wakes the
 * others, so P ranks wake P times where messages from everyone to everyone would be P^2.
 *
 * Two tables take turns. A rank that writes into one again knows that nobody reads it any more, because all ranks have
 * since arrived at the other.
 */
#include "comm/thread_allgather.h"

#include "base/clock.h"
#include "base/alloc.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/** A rank's piece. */
typedef struct slot {
    uint64_t number; /* of the meeting it was written for, counted from 1 */
    size_t bytes;
    unsigned char data[FRUGI_SHORT];
} slot;

/** Meetings of one tag. */
typedef struct room {
    pthread_mutex_t lock;
    pthread_cond_t over;
    int here;            /* ranks that have arrived and wait */
    uint64_t arrivals;   /* so far, also of ranks that have given up since */
    atomic_ullong ended; /* meetings so far */
    slot *table[2];
} room;

struct frugi_meeting {
    int size;
    room room[2];
    slot *slots; /* of all tables */
};

frugi_meeting *frugi_meeting_create(int size) {
    frugi_meeting *m = frugi_calloc(1, sizeof *m);
    slot *slots = frugi_calloc(4 * (size_t)size, sizeof *slots);
    if (!m || !slots) {
        frugi_free(m);
        frugi_free(slots);
        return NULL;
    }
    m->size = size;
    m->slots = slots;
    for (int i = 0; i < 2; i++) {
        room *r = &m->room[i];
        pthread_mutex_init(&r->lock, NULL);
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* setting the time of day is no timeout */
        pthread_cond_init(&r->over, &attributes);
        pthread_condattr_destroy(&attributes);
        atomic_init(&r->ended, 0);
        for (int k = 0; k < 2; k++)
            r->table[k] = slots + (size_t)(2 * i + k) * (size_t)size;
    }
    return m;
}

void frugi_meeting_destroy(frugi_meeting *m) {
    for (int i = 0; m && i < 2; i++) {
        pthread_cond_destroy(&m->room[i].over);
        pthread_mutex_destroy(&m->room[i].lock);
    }
    if (m)
        frugi_free(m->slots);
    frugi_free(m);
}

/* Returns the meeting's number; the last to arrive ends it. */
static uint64_t arrive(room *r, int rank, int size, const void *mine, size_t bytes) {
    pthread_mutex_lock(&r->lock);
    uint64_t number = atomic_load_explicit(&r->ended, memory_order_relaxed) + 1;
    slot *s = &r->table[number % 2][rank];
    s->number = number;
    s->bytes = bytes;
    memcpy(s->data, mine, bytes);
    r->arrivals++;
    if (++r->here == size) {
        r->here = 0;
        atomic_store_explicit(&r->ended, number, memory_order_release);
        pthread_cond_broadcast(&r->over);
    }
    pthread_mutex_unlock(&r->lock);
    return number;
}

static bool over(room *r, uint64_t number) {
    return atomic_load_explicit(&r->ended, memory_order_acquire) >= number;
}

/* No rank has arrived for as long as the deadline says: this one no longer counts as arrived. Its slot keeps the
 * number, so that others that give up later name the rank that never came. */
static frug_status withdraw(room *r, const frug_comm *comm, uint64_t number) {
    const slot *table = r->table[number % 2];
    int missing = 0;
    while (missing + 1 < comm->size && table[missing].number == number)
        missing++;
    r->here--;
    return frugi_comm_too_late(comm, missing);
}

static struct timespec after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    seconds = seconds < 1e9 ? seconds : 1e9;
    long long ns = t.tv_nsec + (long long)((seconds - (double)(long long)seconds) * 1e9);
    t.tv_sec += (time_t)(long long)seconds + (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* Whoever arrives meanwhile is a sign of life. */
static frug_status wait_until_over(room *r, const frug_comm *comm, uint64_t number) {
    double start = frugi_clock();
    while (!over(r, number) && frugi_clock() - start < comm->eager)
        continue;
    if (over(r, number))
        return FRUG_OK;
    frug_status status = FRUG_OK;
    pthread_mutex_lock(&r->lock);
    uint64_t arrivals = r->arrivals;
    struct timespec until = after(comm->deadline);
    while (status == FRUG_OK && !over(r, number)) {
        bool late = pthread_cond_timedwait(&r->over, &r->lock, &until) == ETIMEDOUT && !over(r, number);
        if (late && r->arrivals == arrivals)
            status = withdraw(r, comm, number);
        else if (late)
            until = after(comm->deadline);
        arrivals = r->arrivals;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

frug_status frugi_meeting_gather(frugi_meeting *m, const frug_comm *comm, int tag, const void *mine, size_t bytes,
                                 void *all) {
    room *r = &m->room[tag == FRUGI_TAG_MEET];
    uint64_t number = arrive(r, comm->rank, m->size, mine, bytes);
    FRUG_TRY(wait_until_over(r, comm, number));
    const slot *table = r->table[number % 2];
    for (int i = 0; i < m->size; i++)
        FRUG_FAIL_IF(table[i].bytes != bytes, FRUG_ERR_COMM, "comm: rank %d gathers %zu bytes, rank %d %zu", comm->rank,
                     bytes, i, table[i].bytes);
    for (int i = 0; i < m->size; i++)
        memcpy((unsigned char *)all + (size_t)i * bytes, table[i].data, bytes);
    return FRUG_OK;
}

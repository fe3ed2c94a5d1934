/*
 * thread_allgather.c - all-gather over a shared table: each rank writes its slot and the last to arrive wakes the
 * others. P ranks need P wake-ups; messages between all pairs would be P^2.
 *
 * Rounds alternate between two tables. When a rank writes to a table again no other rank still reads it, because all
 * ranks have since entered the round of the other table.
 */
#include "comm/thread_allgather.h"

#include "base/clock.h"
#include "base/alloc.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define WAIT_SECONDS 50e-3 /* seconds */

/** The data of one rank. */
typedef struct slot {
    uint64_t round; /* the round it was written in, counted from 1 */
    size_t bytes;
    unsigned char data[FRUGI_SHORT_MAX];
} slot;

/** The rounds of one tag. */
typedef struct channel {
    pthread_mutex_t lock;
    pthread_cond_t round_done;
    int arrived;             /* ranks in the current round */
    uint64_t arrivals;       /* total, including ranks that timed out */
    atomic_ullong completed; /* rounds */
    slot *table[2];
} channel;

struct frugi_thread_allgather {
    int size;
    channel channel[2];
    slot *slots; /* memory of the tables of both channels */
};

frugi_thread_allgather *frugi_thread_allgather_create(int size) {
    frugi_thread_allgather *allgather = frugi_calloc(1, sizeof *allgather);
    slot *slots = frugi_calloc(4 * (size_t)size, sizeof *slots);
    if (!allgather || !slots) {
        frugi_free(allgather);
        frugi_free(slots);
        return NULL;
    }
    allgather->size = size;
    allgather->slots = slots;
    for (int i = 0; i < 2; i++) {
        channel *ch = &allgather->channel[i];
        pthread_mutex_init(&ch->lock, NULL);
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* independent of changes of the system time */
        pthread_cond_init(&ch->round_done, &attributes);
        pthread_condattr_destroy(&attributes);
        atomic_init(&ch->completed, 0);
        for (int k = 0; k < 2; k++)
            ch->table[k] = slots + (size_t)(2 * i + k) * (size_t)size;
    }
    return allgather;
}

void frugi_thread_allgather_destroy(frugi_thread_allgather *allgather) {
    for (int i = 0; allgather && i < 2; i++) {
        pthread_cond_destroy(&allgather->channel[i].round_done);
        pthread_mutex_destroy(&allgather->channel[i].lock);
    }
    if (allgather)
        frugi_free(allgather->slots);
    frugi_free(allgather);
}

/* Write this rank's slot; the last rank completes the round. Returns the round. */
static uint64_t enter_round(channel *ch, int rank, int size, const void *mine, size_t bytes) {
    pthread_mutex_lock(&ch->lock);
    uint64_t round = atomic_load_explicit(&ch->completed, memory_order_relaxed) + 1;
    slot *s = &ch->table[round % 2][rank];
    s->round = round;
    s->bytes = bytes;
    memcpy(s->data, mine, bytes);
    ch->arrivals++;
    if (++ch->arrived == size) {
        ch->arrived = 0;
        atomic_store_explicit(&ch->completed, round, memory_order_release);
        pthread_cond_broadcast(&ch->round_done);
    }
    pthread_mutex_unlock(&ch->lock);
    return round;
}

static bool is_complete(channel *ch, uint64_t round) {
    return atomic_load_explicit(&ch->completed, memory_order_acquire) >= round;
}

/* Timeout: this rank no longer counts as arrived. Its slot keeps the round, so that ranks that time out later name the
 * rank that is missing and not this one. */
static frug_status leave_round(channel *ch, const frug_comm *comm, uint64_t round) {
    const slot *table = ch->table[round % 2];
    int missing = 0;
    while (missing + 1 < comm->size && table[missing].round == round)
        missing++;
    ch->arrived--;
    return frugi_comm_timeout_error(comm, missing);
}

static struct timespec time_after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    seconds = seconds < 1e9 ? seconds : 1e9;
    long long ns = t.tv_nsec + (long long)((seconds - (double)(long long)seconds) * 1e9);
    t.tv_sec += (time_t)(long long)seconds + (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* Each arrival of another rank restarts the deadline. It is one of frugi_clock(), which is read every WAIT_SECONDS. */
static frug_status wait_round(channel *ch, const frug_comm *comm, uint64_t round) {
    double start = frugi_clock();
    while (!is_complete(ch, round) && frugi_clock() - start < comm->poll_seconds)
        continue;
    if (is_complete(ch, round))
        return FRUG_OK;
    frug_status status = FRUG_OK;
    pthread_mutex_lock(&ch->lock);
    uint64_t arrivals = ch->arrivals;
    double progress = frugi_clock();
    while (status == FRUG_OK && !is_complete(ch, round)) {
        struct timespec until = time_after(comm->deadline < WAIT_SECONDS ? comm->deadline : WAIT_SECONDS);
        pthread_cond_timedwait(&ch->round_done, &ch->lock, &until);
        double now = frugi_clock();
        if (ch->arrivals != arrivals)
            progress = now;
        else if (!is_complete(ch, round) && now - progress > comm->deadline)
            status = leave_round(ch, comm, round);
        arrivals = ch->arrivals;
    }
    pthread_mutex_unlock(&ch->lock);
    return status;
}

frug_status frugi_thread_allgather_run(frugi_thread_allgather *allgather, const frug_comm *comm, int tag,
                                       const void *mine, size_t bytes, void *all) {
    channel *ch = &allgather->channel[tag == FRUGI_TAG_CALLER_ALLGATHER];
    uint64_t round = enter_round(ch, comm->rank, allgather->size, mine, bytes);
    FRUG_TRY(wait_round(ch, comm, round));
    const slot *table = ch->table[round % 2];
    for (int i = 0; i < allgather->size; i++)
        FRUG_FAIL_IF(table[i].bytes != bytes, FRUG_ERR_COMM, "comm: rank %d gathers %zu bytes, but rank %d %zu",
                     comm->rank, bytes, i, table[i].bytes);
    for (int i = 0; i < allgather->size; i++)
        memcpy((unsigned char *)all + (size_t)i * bytes, table[i].data, bytes);
    return FRUG_OK;
}

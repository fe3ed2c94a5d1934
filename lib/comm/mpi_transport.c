/*
 * mpi_transport.c - workers that are processes of an MPI job: frug_message over MPI_Isend and MPI_Irecv.
 *
 * A library of its own over the public header, so that frugrad itself needs no MPI. MPI counts in int: a longer message
 * travels as several pieces, which MPI delivers in order. Each piece has a record from a list of used ones, so a step
 * allocates nothing once the list has grown.
 *
 * MPI moves data only inside its own calls, so a worker that sleeps may hold up a message that travels in fragments;
 * one that calls over and over takes the core from those who compute while a bucket is on its way. So it sleeps, but
 * while payloads are under way for no longer than the buffers in between last: 200 us are 25 KB at 1 Gbit/s, and
 * sockets hold more than 100 KB. Measured with four workers on two cores, exchanges of 25.6 M parameters take as long
 * as when nobody slept, at 1 Gbit/s and over shared memory.
 */
#include "frugrad_mpi.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#ifndef PIECE_BYTES /* a test makes it small */
#define PIECE_BYTES (1u << 30)
#endif

#define BULK     4096   /* bytes above which MPIs begin to send in fragments */
#define SHORTEST 20000  /* nanoseconds: the first sleep */
#define LONGEST  500000 /* and the longest */
#define YIELDS   4      /* that come before a sleep while payloads are under way */
#define HURRIED  200000 /* the longest sleep then */

/** A part of a message that fits MPI's counts. */
typedef struct piece {
    struct piece *next; /* of the same message; or of those to use again */
    MPI_Request request;
    int bytes;
} piece;

typedef struct group {
    MPI_Comm mpi;
    piece *spare;
    size_t bulk; /* pieces under way that are payload */
    long pause;  /* the next sleep, in nanoseconds */
    int yields;  /* since the last piece was done */
    bool lost;   /* a message was given up, so someone may be gone */
} group;

static piece *new_piece(group *g) {
    piece *p = g->spare;
    if (p)
        g->spare = p->next;
    else
        p = malloc(sizeof *p);
    return p;
}

static piece *retire(group *g, piece *p) {
    piece *next = p->next;
    g->bulk -= p->bytes > BULK;
    g->pause = SHORTEST;
    g->yields = 0;
    p->next = g->spare;
    g->spare = p;
    return next;
}

/*
 * A receive that nothing has arrived for can be called back; some MPIs need a few calls for that. Anything else stays
 * MPI's, which forgets it when done.
 */
static void give_up(group *g, piece *p, bool sending) {
    int done = 0;
    g->lost = true;
    if (!sending && p->request != MPI_REQUEST_NULL)
        MPI_Cancel(&p->request);
    for (int i = 0; i < 100 && !done && p->request != MPI_REQUEST_NULL; i++)
        if (MPI_Test(&p->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
    if (p->request != MPI_REQUEST_NULL)
        MPI_Request_free(&p->request);
}

static void abandon(void *ctx, frug_message *m) {
    group *g = ctx;
    for (piece *p = m->handle; p; p = retire(g, p))
        give_up(g, p, m->sending);
    m->handle = NULL;
}

static frug_status post(void *ctx, frug_message *m) {
    group *g = ctx;
    unsigned char *data = m->data;
    piece *first = NULL, **last = &first;
    size_t at = 0;
    do {
        size_t left = m->bytes - at;
        piece *p = new_piece(g);
        int failed = MPI_ERR_NO_MEM;
        if (p) {
            *p = (piece){.request = MPI_REQUEST_NULL, .bytes = (int)(left < PIECE_BYTES ? left : PIECE_BYTES)};
            *last = p;
            last = &p->next;
            g->bulk += p->bytes > BULK;
            failed = m->sending ? MPI_Isend(data + at, p->bytes, MPI_BYTE, m->peer, m->tag, g->mpi, &p->request)
                                : MPI_Irecv(data + at, p->bytes, MPI_BYTE, m->peer, m->tag, g->mpi, &p->request);
        }
        m->handle = first;
        if (failed != MPI_SUCCESS) {
            abandon(g, m);
            return p ? FRUG_ERR_COMM : FRUG_ERR_MEMORY;
        }
        at += (size_t)p->bytes;
    } while (at < m->bytes);
    return FRUG_OK;
}

static frug_status test(void *ctx, frug_message *m) {
    group *g = ctx;
    for (piece *p = m->handle; p; m->handle = p) {
        MPI_Status arrived;
        int done = 0, bytes = p->bytes;
        if (MPI_Test(&p->request, &done, &arrived) != MPI_SUCCESS)
            return FRUG_ERR_COMM;
        if (!done)
            return FRUG_OK;
        if (!m->sending && (MPI_Get_count(&arrived, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes != p->bytes))
            return FRUG_ERR_COMM;
        p = retire(g, p);
    }
    m->done = 1;
    return FRUG_OK;
}

static frug_status wait_a_moment(void *ctx, double seconds) {
    group *g = ctx;
    (void)seconds;
    if (g->bulk && g->yields < YIELDS) {
        g->yields++;
        sched_yield();
        return FRUG_OK;
    }
    long longest = g->bulk ? HURRIED : LONGEST;
    struct timespec t = {.tv_nsec = g->pause < longest ? g->pause : longest};
    nanosleep(&t, NULL);
    g->pause = g->pause * 2 < LONGEST ? g->pause * 2 : LONGEST;
    return FRUG_OK;
}

static frug_status allreduce(void *ctx, float *x, uint64_t n) {
    group *g = ctx;
    const uint64_t most = PIECE_BYTES / sizeof *x;
    for (uint64_t at = 0; at < n; at += most) {
        int count = (int)(n - at < most ? n - at : most);
        if (MPI_Allreduce(MPI_IN_PLACE, x + at, count, MPI_FLOAT, MPI_SUM, g->mpi) != MPI_SUCCESS)
            return FRUG_ERR_COMM;
    }
    return FRUG_OK;
}

/* Freeing a communicator is collective; with someone gone it might never return, and the job is about to end. */
static void destroy(void *ctx) {
    group *g = ctx;
    int finalized = 1;
    MPI_Finalized(&finalized);
    if (!finalized && !g->lost)
        MPI_Comm_free(&g->mpi);
    for (piece *p = g->spare; p; p = g->spare) {
        g->spare = p->next;
        free(p);
    }
    free(g);
}

static const frug_transport one_thread = {.struct_size = sizeof(frug_transport),
                                          .name = "mpi",
                                          .post = post,
                                          .test = test,
                                          .wait = wait_a_moment,
                                          .allreduce = allreduce,
                                          .abandon = abandon,
                                          .destroy = destroy};

/* MPI aborts on calls before its start and after its end; those it must not see. */
static frug_status check(MPI_Comm mpi, frug_comm **comm) {
    int initialized = 0, finalized = 1, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!comm || !initialized || finalized || mpi == MPI_COMM_NULL)
        return frug_transport_fail(FRUG_ERR_ARG, "mpi: no place for the result, no communicator or MPI is not running");
    if (MPI_Comm_test_inter(mpi, &inter) != MPI_SUCCESS || inter)
        return frug_transport_fail(FRUG_ERR_ARG, "mpi: an inter-communicator has two groups, not one");
    return FRUG_OK;
}

frug_status frug_comm_mpi(MPI_Comm mpi, frug_comm **comm) {
    int rank = 0, size = 0, level = MPI_THREAD_SINGLE;
    frug_status status = check(mpi, comm);
    if (status != FRUG_OK)
        return status;
    group *g = calloc(1, sizeof *g);
    if (!g)
        return frug_transport_fail(FRUG_ERR_MEMORY, "mpi: out of memory");
    if (MPI_Comm_dup(mpi, &g->mpi) != MPI_SUCCESS) {
        free(g);
        return frug_transport_fail(FRUG_ERR_COMM, "mpi: the communicator could not be duplicated");
    }
    g->pause = SHORTEST;
    MPI_Comm_set_errhandler(g->mpi, MPI_ERRORS_RETURN);
    MPI_Comm_rank(g->mpi, &rank);
    MPI_Comm_size(g->mpi, &size);
    frug_transport transport = one_thread;
    transport.any_thread = MPI_Query_thread(&level) == MPI_SUCCESS && level >= MPI_THREAD_SERIALIZED;
    status = frug_comm_create(&transport, g, rank, size, comm);
    if (status != FRUG_OK)
        destroy(g);
    return status;
}

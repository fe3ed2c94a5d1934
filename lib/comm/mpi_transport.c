/*
 * mpi_transport.c - transport for workers that are processes of an MPI job: MPI_Isend and MPI_Irecv.
 *
 * It is a separate library over the public header, so that frugrad itself does not need MPI. MPI counts are int: a
 * longer message is sent as several chunks, which MPI delivers in order. Chunk records come from a free list, so in the
 * steady state a step allocates nothing.
 *
 * MPI makes progress only inside its own calls: a rank that sleeps may delay a message that is sent in fragments, and a
 * rank that polls takes the core from threads that compute. So a wait sleeps, but while payloads are pending not for
 * longer than network buffers last: 200 us are 25 KB at 1 Gbit/s, and sockets buffer more than 100 KB. Measured with
 * four workers on two cores, exchanges of 25.6 M parameters take as long as without sleeping, at 1 Gbit/s and over
 * shared memory.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "frugrad/mpi.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#ifndef CHUNK_BYTES /* tests set a small value */
#define CHUNK_BYTES (1u << 30)
#endif

#define BULK_BYTES     4096   /* chunks above this size count as payload: MPI libraries send them in fragments */
#define SLEEP_MIN      20000  /* nanoseconds: the first sleep */
#define SLEEP_MAX      500000 /* and the longest */
#define MAX_YIELDS     4      /* before a sleep while payloads are pending */
#define SLEEP_MAX_BULK 200000 /* nanoseconds: longest sleep while payloads are pending */

/** A part of a message that fits into an int count. */
typedef struct chunk {
    struct chunk *next; /* of the same message, or in free_list */
    MPI_Request request;
    int bytes;
} chunk;

typedef struct group {
    MPI_Comm mpi;
    chunk *free_list;
    size_t bulk_pending; /* posted chunks larger than BULK_BYTES */
    long sleep_ns;       /* next sleep */
    int yields;          /* since the last chunk completed */
    bool abandoned;      /* a message was abandoned, so a rank may have failed */
} group;

static chunk *alloc_chunk(group *g) {
    chunk *p = g->free_list;
    if (p)
        g->free_list = p->next;
    else
        p = malloc(sizeof *p);
    return p;
}

static chunk *recycle_chunk(group *g, chunk *p) {
    chunk *next = p->next;
    g->bulk_pending -= p->bytes > BULK_BYTES;
    g->sleep_ns = SLEEP_MIN;
    g->yields = 0;
    p->next = g->free_list;
    g->free_list = p;
    return next;
}

/*
 * A receive without a matching message can be canceled; some MPI libraries need several MPI_Test calls for it. Any
 * other request is freed, and MPI releases it on completion.
 */
static void cancel_chunk(group *g, chunk *p, bool sending) {
    int done = 0;
    g->abandoned = true;
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
    for (chunk *p = m->handle; p; p = recycle_chunk(g, p))
        cancel_chunk(g, p, m->sending);
    m->handle = NULL;
}

static frug_status post(void *ctx, frug_message *m) {
    group *g = ctx;
    unsigned char *data = m->data;
    chunk *first = NULL, **last = &first;
    size_t at = 0;
    do {
        size_t left = m->bytes - at;
        chunk *p = alloc_chunk(g);
        int failed = MPI_ERR_NO_MEM;
        if (p) {
            *p = (chunk){.request = MPI_REQUEST_NULL, .bytes = (int)(left < CHUNK_BYTES ? left : CHUNK_BYTES)};
            *last = p;
            last = &p->next;
            g->bulk_pending += p->bytes > BULK_BYTES;
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
    for (chunk *p = m->handle; p; m->handle = p) {
        MPI_Status arrived;
        int done = 0, bytes = p->bytes;
        if (MPI_Test(&p->request, &done, &arrived) != MPI_SUCCESS)
            return FRUG_ERR_COMM;
        if (!done)
            return FRUG_OK;
        if (!m->sending && (MPI_Get_count(&arrived, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes != p->bytes))
            return FRUG_ERR_COMM;
        p = recycle_chunk(g, p);
    }
    m->done = 1;
    return FRUG_OK;
}

static frug_status wait_progress(void *ctx, double seconds) {
    group *g = ctx;
    (void)seconds;
    if (g->bulk_pending && g->yields < MAX_YIELDS) {
        g->yields++;
        sched_yield();
        return FRUG_OK;
    }
    long longest = g->bulk_pending ? SLEEP_MAX_BULK : SLEEP_MAX;
    struct timespec t = {.tv_nsec = g->sleep_ns < longest ? g->sleep_ns : longest};
    nanosleep(&t, NULL);
    g->sleep_ns = g->sleep_ns * 2 < SLEEP_MAX ? g->sleep_ns * 2 : SLEEP_MAX;
    return FRUG_OK;
}

static frug_status allreduce(void *ctx, float *x, uint64_t n) {
    group *g = ctx;
    const uint64_t most = CHUNK_BYTES / sizeof *x;
    for (uint64_t at = 0; at < n; at += most) {
        int count = (int)(n - at < most ? n - at : most);
        if (MPI_Allreduce(MPI_IN_PLACE, x + at, count, MPI_FLOAT, MPI_SUM, g->mpi) != MPI_SUCCESS)
            return FRUG_ERR_COMM;
    }
    return FRUG_OK;
}

/* MPI_Comm_free is collective: after a failure it might never return, so the communicator is leaked. */
static void destroy(void *ctx) {
    group *g = ctx;
    int finalized = 1;
    MPI_Finalized(&finalized);
    if (!finalized && !g->abandoned)
        MPI_Comm_free(&g->mpi);
    for (chunk *p = g->free_list; p; p = g->free_list) {
        g->free_list = p->next;
        free(p);
    }
    free(g);
}

static const frug_transport mpi_transport = {.struct_size = sizeof(frug_transport),
                                             .name = "mpi",
                                             .post = post,
                                             .test = test,
                                             .wait = wait_progress,
                                             .allreduce = allreduce,
                                             .abandon = abandon,
                                             .destroy = destroy};

/* MPI aborts on calls before MPI_Init and after MPI_Finalize: reject these cases first. */
static frug_status check_communicator(MPI_Comm mpi, frug_comm **comm) {
    int initialized = 0, finalized = 1, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return frug_set_last_error(FRUG_ERR_ARG,
                                   "mpi: MPI is not initialized; call MPI_Init first, and this before MPI_Finalize");
    if (!comm || mpi == MPI_COMM_NULL)
        return frug_set_last_error(FRUG_ERR_ARG, "mpi: the result is NULL, or the communicator is MPI_COMM_NULL");
    if (MPI_Comm_test_inter(mpi, &inter) != MPI_SUCCESS || inter)
        return frug_set_last_error(FRUG_ERR_ARG, "mpi: an inter-communicator is not supported");
    return FRUG_OK;
}

/* Threads of this rank with which all ranks of the host have as many as there are cores, in proportion to the cores
 * that mpirun binds a rank to; 0: not known. */
static int threads_of_rank(MPI_Comm mpi) {
    int threads = 0;
#ifdef CPU_COUNT
    MPI_Comm host;
    cpu_set_t own, all;
    CPU_ZERO(&own);
    int known = sched_getaffinity(0, sizeof own, &own) == 0, all_known = 0;
    if (MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return 0;
    int cores = CPU_COUNT(&own), sum = cores;
    if (MPI_Allreduce(&own, &all, (int)sizeof own, MPI_BYTE, MPI_BOR, host) == MPI_SUCCESS &&
        MPI_Allreduce(&cores, &sum, 1, MPI_INT, MPI_SUM, host) == MPI_SUCCESS &&
        MPI_Allreduce(&known, &all_known, 1, MPI_INT, MPI_MIN, host) == MPI_SUCCESS && all_known)
        threads = cores * CPU_COUNT(&all) / sum > 1 ? cores * CPU_COUNT(&all) / sum : 1;
    MPI_Comm_free(&host);
#else
    (void)mpi;
#endif
    return threads;
}

frug_status frug_comm_mpi(MPI_Comm mpi, frug_comm **comm) {
    int rank = 0, size = 0, level = MPI_THREAD_SINGLE;
    frug_status status = check_communicator(mpi, comm);
    if (status != FRUG_OK)
        return status;
    group *g = calloc(1, sizeof *g);
    if (!g)
        return frug_set_last_error(FRUG_ERR_MEMORY, "mpi: out of memory");
    if (MPI_Comm_dup(mpi, &g->mpi) != MPI_SUCCESS) {
        free(g);
        return frug_set_last_error(FRUG_ERR_COMM, "mpi: MPI_Comm_dup failed");
    }
    g->sleep_ns = SLEEP_MIN;
    MPI_Comm_set_errhandler(g->mpi, MPI_ERRORS_RETURN);
    MPI_Comm_rank(g->mpi, &rank);
    MPI_Comm_size(g->mpi, &size);
    frug_transport transport = mpi_transport;
    transport.any_thread = MPI_Query_thread(&level) == MPI_SUCCESS && level >= MPI_THREAD_SERIALIZED;
    transport.threads = threads_of_rank(g->mpi);
    status = frug_comm_create(&transport, g, rank, size, comm);
    if (status != FRUG_OK)
        destroy(g);
    return status;
}

/*
 * jobs.h - what tests need whose workers are processes: verdicts that all ranks share, and a transport that does harm.
 *
 * A rank that failed an assertion alone would leave the others waiting. So ranks tell each other how they fared, and
 * all fail together with the words of the first that has something to say.
 */
#ifndef FRUGRAD_TESTS_JOBS_H
#define FRUGRAD_TESTS_JOBS_H

#include "comm/comm.h"
#include "frugrad_mpi.h"
#include "support/assertions.h"

#include <stdbool.h>
#include <stdio.h>

static inline int job_rank(void) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static inline int job_size(void) {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/** Collective: the test fails on all ranks if it does on one. */
__attribute__((format(printf, 2, 3))) static inline void all_fine(bool fine, const char *format, ...) {
    int first = fine ? job_size() : job_rank();
    char words[600];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == job_size())
        return;
    MPI_Bcast(words, sizeof words, MPI_CHAR, first, MPI_COMM_WORLD);
    fail_msg("rank %d of %d: %s", first, job_size(), words);
}

/** What a meddler does to the first thing that it can do it to. */
typedef enum harm { NO_HARM, HARM_FIRST_MARK, HARM_PAYLOAD } harm;

#define SHORT 64 /* bytes; no more than that announce a payload. A length that is wrong ends in the deadline */

/** A transport in front of another one. */
typedef struct meddler {
    frug_transport inner;
    void *ctx;
    harm harm;
    bool done;
    int sums; /* calls of allreduce */
} meddler;

/* The mark says which version this is in its last bytes; all that are sent share them. */
static inline frug_status meddle_post(void *ctx, frug_message *m) {
    meddler *it = ctx;
    if (it->harm == HARM_FIRST_MARK && !it->done && m->sending && m->tag == FRUGI_TAG_ALLGATHER && m->bytes) {
        ((unsigned char *)m->data)[m->bytes - 1] ^= 1;
        it->done = true;
    }
    return it->inner.post(it->ctx, m);
}

static inline void flip_a_bit(meddler *it, void *data, size_t bytes) {
    if (it->harm == HARM_PAYLOAD && !it->done && bytes) {
        ((unsigned char *)data)[bytes / 2] ^= 0x10;
        it->done = true;
    }
}

static inline frug_status meddle_test(void *ctx, frug_message *m) {
    meddler *it = ctx;
    frug_status status = it->inner.test(it->ctx, m);
    if (m->done && !m->sending && m->tag >= FRUGI_TAG_FIRST && m->bytes > SHORT)
        flip_a_bit(it, m->data, m->bytes);
    return status;
}

static inline frug_status meddle_wait(void *ctx, double seconds) {
    meddler *it = ctx;
    return it->inner.wait(it->ctx, seconds);
}

static inline frug_status meddle_allreduce(void *ctx, float *x, uint64_t n) {
    meddler *it = ctx;
    frug_status status = it->inner.allreduce(it->ctx, x, n);
    it->sums++;
    flip_a_bit(it, x, n * sizeof *x);
    return status;
}

static inline void meddle_abandon(void *ctx, frug_message *m) {
    meddler *it = ctx;
    it->inner.abandon(it->ctx, m);
}

static inline void meddle_destroy(void *ctx) {
    meddler *it = ctx;
    it->inner.destroy(it->ctx);
}

/** Put a meddler, which must outlive the group, in front of a group over MPI. */
static inline void meddle(frug_comm *comm, meddler *it, harm what) {
    *it = (meddler){.inner = comm->transport, .ctx = comm->ctx, .harm = what};
    comm->transport.post = meddle_post;
    comm->transport.test = meddle_test;
    comm->transport.wait = meddle_wait;
    comm->transport.allreduce = meddle_allreduce;
    comm->transport.abandon = meddle_abandon;
    comm->transport.destroy = meddle_destroy;
    comm->ctx = it;
}

#endif

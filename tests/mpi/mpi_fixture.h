/*
 * mpi_fixture.h - for tests whose ranks are processes: assertions on all ranks, and a transport that damages data.
 *
 * If an assertion failed on one rank only, the others would wait for it. So ranks exchange the results of assertions,
 * and all fail with the message of the lowest failing rank.
 */
#ifndef FRUGRAD_TESTS_MPI_FIXTURE_H
#define FRUGRAD_TESTS_MPI_FIXTURE_H

#include "comm/comm.h"
#include "frugrad/mpi.h"
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

/** Collective: the test fails on all ranks if `ok` is false on one. */
__attribute__((format(printf, 2, 3))) static inline void assert_on_all_ranks(bool ok, const char *format, ...) {
    int first = ok ? job_size() : job_rank();
    char message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == job_size())
        return;
    MPI_Bcast(message, sizeof message, MPI_CHAR, first, MPI_COMM_WORLD);
    fail_msg("rank %d of %d: %s", first, job_size(), message);
}

/** What is damaged, once. */
typedef enum damage { NO_DAMAGE, DAMAGE_FIRST_RECORD, DAMAGE_PAYLOAD } damage;

/* Longer messages are payloads. Headers are not damaged: a wrong length ends in a timeout. */
#define MAX_HEADER_BYTES 64

/** A transport that forwards to another one. */
typedef struct damaging_transport {
    frug_transport inner;
    void *ctx;
    damage damage;
    bool done;
    int allreduce_calls;
} damaging_transport;

/* The last bytes of the first sync record are the hash of the version; all sends share one buffer. */
static inline frug_status damaging_post(void *ctx, frug_message *m) {
    damaging_transport *t = ctx;
    if (t->damage == DAMAGE_FIRST_RECORD && !t->done && m->sending && m->tag == FRUGI_TAG_ALLGATHER && m->bytes) {
        ((unsigned char *)m->data)[m->bytes - 1] ^= 1;
        t->done = true;
    }
    return t->inner.post(t->ctx, m);
}

static inline void flip_bit(damaging_transport *t, void *data, size_t bytes) {
    if (t->damage == DAMAGE_PAYLOAD && !t->done && bytes) {
        ((unsigned char *)data)[bytes / 2] ^= 0x10;
        t->done = true;
    }
}

static inline frug_status damaging_test(void *ctx, frug_message *m) {
    damaging_transport *t = ctx;
    frug_status status = t->inner.test(t->ctx, m);
    if (m->done && !m->sending && m->tag >= FRUGI_TAG_FIRST && m->bytes > MAX_HEADER_BYTES)
        flip_bit(t, m->data, m->bytes);
    return status;
}

static inline frug_status damaging_wait(void *ctx, double seconds) {
    damaging_transport *t = ctx;
    return t->inner.wait(t->ctx, seconds);
}

static inline frug_status damaging_allreduce(void *ctx, float *x, uint64_t n) {
    damaging_transport *t = ctx;
    frug_status status = t->inner.allreduce(t->ctx, x, n);
    t->allreduce_calls++;
    flip_bit(t, x, n * sizeof *x);
    return status;
}

static inline void damaging_abandon(void *ctx, frug_message *m) {
    damaging_transport *t = ctx;
    t->inner.abandon(t->ctx, m);
}

static inline void damaging_destroy(void *ctx) {
    damaging_transport *t = ctx;
    t->inner.destroy(t->ctx);
}

/** Put a damaging transport, which must outlive the group, in front of an MPI group. */
static inline void wrap_transport(frug_comm *comm, damaging_transport *t, damage what) {
    *t = (damaging_transport){.inner = comm->transport, .ctx = comm->ctx, .damage = what};
    comm->transport.post = damaging_post;
    comm->transport.test = damaging_test;
    comm->transport.wait = damaging_wait;
    comm->transport.allreduce = damaging_allreduce;
    comm->transport.abandon = damaging_abandon;
    comm->transport.destroy = damaging_destroy;
    comm->ctx = t;
}

#endif

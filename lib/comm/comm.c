/* comm.c - groups over any transport: wait, all-gather, all-reduce. */
#include "comm/comm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/struct_size.h"

#include <string.h>
#include <time.h>

#define DEFAULT_DEADLINE 60.0   /* seconds */
#define SLEEP_MIN        20e-6  /* seconds */
#define SLEEP_MAX        500e-6 /* seconds */
#define MAX_RANKS        (1 << 20)

frug_status frug_comm_create(const frug_transport *transport, void *ctx, int rank, int size, frug_comm **comm) {
    FRUG_FAIL_IF(!comm || !frugi_struct_valid(transport), FRUG_ERR_ARG,
                 "comm: transport or result is NULL, or struct_size is not set");
    frug_transport table = {.struct_size = sizeof table};
    frugi_struct_read(&table, transport);
    FRUG_FAIL_IF(!table.name || (!table.exchange && (!table.post || !table.test)), FRUG_ERR_ARG,
                 "comm: a transport needs name, and post and test or exchange");
    FRUG_FAIL_IF(size < 1 || size > MAX_RANKS || rank < 0 || rank >= size, FRUG_ERR_ARG, "comm: invalid rank %d of %d",
                 rank, size);
    frug_comm *made = frugi_calloc(1, sizeof *made);
    FRUG_FAIL_IF(!made, FRUG_ERR_MEMORY, "comm: out of memory");
    *made = (frug_comm){.transport = table,
                        .ctx = ctx,
                        .rank = rank,
                        .size = size,
                        .world_rank = rank,
                        .deadline = DEFAULT_DEADLINE,
                        .poll_seconds = FRUGI_POLL_SECONDS};
    *comm = made;
    return FRUG_OK;
}

void frug_comm_destroy(frug_comm *comm) {
    if (!comm)
        return;
    if (comm->transport.destroy)
        comm->transport.destroy(comm->ctx);
    frugi_free(comm->message);
    frugi_free(comm);
}

int frug_comm_rank(const frug_comm *comm) {
    return comm ? comm->rank : -1;
}

int frug_comm_size(const frug_comm *comm) {
    return comm ? comm->size : 0;
}

const char *frug_comm_transport(const frug_comm *comm) {
    return comm ? comm->transport.name : NULL;
}

frug_status frug_comm_set_timeout(frug_comm *comm, double seconds) {
    FRUG_FAIL_IF(!comm || !(seconds > 0), FRUG_ERR_ARG,
                 "comm: comm is NULL, or the deadline of %g seconds is not positive", seconds);
    comm->deadline = seconds;
    return FRUG_OK;
}

static frug_status transport_error(const frug_comm *comm, const frug_message *m, frug_status status) {
    return frugi_fail(status, "comm: rank %d failed to %s rank %d over %s: %s", comm->world_rank,
                      m->sending ? "send to" : "receive from", m->peer, comm->transport.name, frug_status_text(status));
}

frug_status frugi_comm_post(frug_comm *comm, frug_message *m) {
    FRUG_FAIL_IF(!comm->transport.post, FRUG_ERR_ARG, "comm: %s cannot start a message without waiting for it",
                 comm->transport.name);
    m->done = 0;
    m->handle = NULL;
    frug_status status = comm->transport.post(comm->ctx, m);
    if (status == FRUG_OK)
        return FRUG_OK;
    m->done = 1; /* not posted: nothing to abandon */
    return transport_error(comm, m, status);
}

frug_status frugi_comm_test(frug_comm *comm, frug_message *messages, size_t n, size_t *done) {
    size_t count = 0;
    FRUG_FAIL_IF(!comm->transport.test, FRUG_ERR_ARG, "comm: %s cannot test a message without waiting for it",
                 comm->transport.name);
    for (size_t i = 0; i < n; i++) {
        frug_message *m = &messages[i];
        frug_status status = m->done ? FRUG_OK : comm->transport.test(comm->ctx, m);
        if (status != FRUG_OK)
            return transport_error(comm, m, status);
        count += m->done != 0;
    }
    *done = count;
    return FRUG_OK;
}

void frugi_comm_abandon(frug_comm *comm, frug_message *messages, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!messages[i].done && comm->transport.abandon) {
            comm->transport.abandon(comm->ctx, &messages[i]);
            messages[i].done = 1;
        }
}

/* Sleep, each time twice as long; or wait in the transport where it can. */
static frug_status back_off(frug_comm *comm, double *seconds) {
    if (comm->transport.wait)
        return comm->transport.wait(comm->ctx, 50e-3); /* it has set the error text */
    struct timespec t = {.tv_nsec = (long)(*seconds * 1e9)};
    nanosleep(&t, NULL);
    *seconds = *seconds * 2 < SLEEP_MAX ? *seconds * 2 : SLEEP_MAX;
    return FRUG_OK;
}

frug_status frugi_comm_timeout_error(const frug_comm *comm, int peer) {
    return frugi_fail(
        FRUG_ERR_COMM,
        "comm: timeout: rank %d received nothing from rank %d for %g seconds; it may have ended or be stopped",
        comm->world_rank, peer, comm->deadline);
}

static frug_status timeout_error(const frug_comm *comm, const frug_message *messages, size_t n) {
    size_t i = 0;
    while (i + 1 < n && messages[i].done)
        i++;
    return frugi_comm_timeout_error(comm, messages[i].peer);
}

frug_status frugi_comm_wait_some(frug_comm *comm, frug_message *messages, size_t n, size_t enough) {
    double start = frugi_clock(), progress = start, sleep_seconds = SLEEP_MIN;
    size_t done = 0, before = 0;
    frug_status status = frugi_comm_test(comm, messages, n, &done);
    while (status == FRUG_OK && done < enough) {
        double now = frugi_clock();
        if (done > before) {
            before = done;
            progress = now;
            sleep_seconds = SLEEP_MIN;
        }
        if (now - progress > comm->deadline)
            status = timeout_error(comm, messages, n);
        else if (now - progress > comm->poll_seconds)
            status = back_off(comm, &sleep_seconds);
        if (status == FRUG_OK)
            status = frugi_comm_test(comm, messages, n, &done);
    }
    if (status != FRUG_OK)
        frugi_comm_abandon(comm, messages, n);
    return status;
}

/* By a transport that blocks. It has set the error text: frug_set_last_error(). */
static frug_status exchange_blocking(frug_comm *comm, frug_message *messages, size_t n) {
    FRUG_TRY(n ? comm->transport.exchange(comm->ctx, messages, n) : FRUG_OK);
    for (size_t i = 0; i < n; i++)
        messages[i].done = 1;
    return FRUG_OK;
}

frug_status frugi_comm_wait(frug_comm *comm, frug_message *messages, size_t n) {
    if (!comm->transport.test)
        return exchange_blocking(comm, messages, n);
    return frugi_comm_wait_some(comm, messages, n, n);
}

frug_status frugi_comm_exchange(frug_comm *comm, frug_message *messages, size_t n) {
    for (size_t i = 0; comm->transport.exchange && i < n; i++) {
        messages[i].done = 0;
        messages[i].handle = NULL;
    }
    if (comm->transport.exchange)
        return exchange_blocking(comm, messages, n);
    for (size_t i = 0; i < n; i++) {
        frug_status status = frugi_comm_post(comm, &messages[i]);
        if (status != FRUG_OK) {
            frugi_comm_abandon(comm, messages, i);
            return status;
        }
    }
    return frugi_comm_wait(comm, messages, n);
}

/* Up to FRUGI_SHORT_MAX bytes by the transport's own all-gather, if it has one; else every rank sends to every rank. */
static frug_status allgather(frug_comm *comm, int tag, const void *mine, size_t bytes, void *all,
                             frug_message *messages) {
    unsigned char *to = all;
    size_t n = 0;
    if (comm->short_allgather && bytes <= FRUGI_SHORT_MAX)
        return comm->short_allgather(comm->ctx, comm, tag, mine, bytes, all);
    memcpy(to + (size_t)comm->rank * bytes, mine, bytes);
    for (int i = 1; i < comm->size; i++) {
        int peer = (comm->rank + i) % comm->size;
        messages[n++] = (frug_message){.peer = peer, .tag = tag, .data = to + (size_t)peer * bytes, .bytes = bytes};
    }
    for (int i = 1; i < comm->size; i++)
        messages[n++] = (frug_message){.peer = (comm->rank + comm->size - i) % comm->size,
                                       .tag = tag,
                                       .sending = 1,
                                       .data = to + (size_t)comm->rank * bytes,
                                       .bytes = bytes};
    return frugi_comm_exchange(comm, messages, n);
}

frug_status frugi_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all, frug_message *messages) {
    return allgather(comm, FRUGI_TAG_ALLGATHER, mine, bytes, all, messages);
}

frug_status frug_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all) {
    static const char empty_send = 0; /* transports get a valid pointer even for 0 bytes */
    char empty_recv = 0;
    FRUG_FAIL_IF(!comm || (bytes && (!mine || !all)), FRUG_ERR_ARG,
                 "gather: comm, send buffer or receive buffer is NULL");
    FRUG_FAIL_IF(bytes > SIZE_MAX / (size_t)comm->size, FRUG_ERR_ARG,
                 "gather: %zu bytes from each of %d ranks overflow", bytes, comm->size);
    if (!comm->message)
        comm->message = frugi_calloc(2 * (size_t)comm->size, sizeof *comm->message);
    FRUG_FAIL_IF(!comm->message, FRUG_ERR_MEMORY, "gather: out of memory for %d messages", 2 * comm->size);
    return allgather(comm, FRUGI_TAG_CALLER_ALLGATHER, bytes ? mine : &empty_send, bytes, bytes ? all : &empty_recv,
                     comm->message);
}

/* Send or receive one message and wait for it. */
static frug_status transfer(frug_comm *comm, int peer, int sending, void *data, size_t bytes) {
    const char *what = sending ? "send" : "receive";
    FRUG_FAIL_IF(!comm || (bytes && !data), FRUG_ERR_ARG, "%s: comm or data is NULL", what);
    FRUG_FAIL_IF(peer < 0 || peer >= comm->size || peer == comm->rank, FRUG_ERR_ARG,
                 "%s: rank %d has no peer %d in a group of size %d", what, comm->rank, peer, comm->size);
    frug_message m = {.peer = peer, .tag = FRUGI_TAG_CALLER_MESSAGE, .sending = sending, .data = data, .bytes = bytes};
    return frugi_comm_exchange(comm, &m, 1);
}

frug_status frug_comm_send(frug_comm *comm, int peer, const void *data, size_t bytes) {
    return transfer(comm, peer, 1, (void *)(uintptr_t)data, bytes);
}

frug_status frug_comm_receive(frug_comm *comm, int peer, void *data, size_t bytes) {
    return transfer(comm, peer, 0, data, bytes);
}

frug_status frug_comm_post(frug_comm *comm, frug_message *m) {
    FRUG_FAIL_IF(!comm || !m || (m->bytes && !m->data), FRUG_ERR_ARG, "post: comm, message or data is NULL");
    FRUG_FAIL_IF(m->peer < 0 || m->peer >= comm->size || m->peer == comm->rank, FRUG_ERR_ARG,
                 "post: rank %d has no peer %d in a group of size %d", comm->rank, m->peer, comm->size);
    FRUG_FAIL_IF(m->tag < 0 || m->tag >= FRUGI_TAG_FIRST - FRUGI_TAG_CALLER_POSTED, FRUG_ERR_ARG,
                 "post: the tag %d is not 0 to %d", m->tag, FRUGI_TAG_FIRST - FRUGI_TAG_CALLER_POSTED - 1);
    m->tag += FRUGI_TAG_CALLER_POSTED;
    return frugi_comm_post(comm, m);
}

frug_status frug_comm_wait(frug_comm *comm, frug_message *messages, size_t n) {
    FRUG_FAIL_IF(!comm || (n && !messages), FRUG_ERR_ARG, "wait: comm or messages are NULL");
    return frugi_comm_wait(comm, messages, n);
}

/* First element of chunk i: the ring divides n elements into `size` chunks that differ by at most one. */
static uint64_t chunk_begin(uint64_t n, int size, int i) {
    return n / (uint64_t)size * (uint64_t)i + ((uint64_t)i < n % (uint64_t)size ? (uint64_t)i : n % (uint64_t)size);
}

/* Send chunk `out` to the next rank and receive chunk `in` from the previous one into `to`. */
static frug_status ring_shift(frug_comm *comm, float *x, uint64_t n, int out, int in, float *to) {
    int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    uint64_t o = chunk_begin(n, comm->size, out), i = chunk_begin(n, comm->size, in);
    frug_message m[2] = {{.peer = before, .tag = FRUGI_TAG_RING, .data = to},
                         {.peer = next, .tag = FRUGI_TAG_RING, .sending = 1, .data = x + o}};
    m[0].bytes = (chunk_begin(n, comm->size, in + 1) - i) * sizeof *x;
    m[1].bytes = (chunk_begin(n, comm->size, out + 1) - o) * sizeof *x;
    return frugi_comm_exchange(comm, m, 2);
}

static frug_status ring_allreduce(frug_comm *comm, float *x, uint64_t n, float *scratch) {
    int size = comm->size, rank = comm->rank;
    /* Reduce-scatter: after size - 1 steps each rank has the sum of one chunk. */
    for (int s = 0; s + 1 < size; s++) {
        int out = (rank + size - s) % size, in = (rank + 2 * size - s - 1) % size;
        FRUG_TRY(ring_shift(comm, x, n, out, in, scratch));
        uint64_t first = chunk_begin(n, size, in), length = chunk_begin(n, size, in + 1) - first;
        for (uint64_t i = 0; i < length; i++)
            x[first + i] = scratch[i] + x[first + i];
    }
    /* All-gather of the summed chunks. */
    for (int s = 0; s + 1 < size; s++) {
        int out = (rank + 1 + size - s) % size, in = (rank + size - s) % size;
        FRUG_TRY(ring_shift(comm, x, n, out, in, x + chunk_begin(n, size, in)));
    }
    return FRUG_OK;
}

frug_status frugi_comm_allreduce(frug_comm *comm, float *x, uint64_t n, float *scratch) {
    if (comm->size == 1)
        return FRUG_OK;
    if (!comm->transport.allreduce)
        return ring_allreduce(comm, x, n, scratch);
    FRUG_FAIL_IF(comm->transport.allreduce(comm->ctx, x, n) != FRUG_OK, FRUG_ERR_COMM,
                 "comm: all-reduce over %s failed on rank %d", comm->transport.name, comm->rank);
    return FRUG_OK;
}

/*
 * comm.h - a group of workers: point-to-point messages, all-gather and all-reduce over any transport.
 *
 * A wait polls for a short time and then sleeps, because workers often share cores. It ends with FRUG_ERR_COMM when no
 * message completes for longer than the deadline.
 */
#ifndef FRUGI_COMM_H
#define FRUGI_COMM_H

#include "frugrad.h"

struct frug_comm {
    frug_transport transport;
    void *ctx;
    int rank, size;
    int world_rank;        /* for error messages: the rank in the outermost group */
    double deadline;       /* seconds without progress after which a wait fails */
    double poll_seconds;   /* polling before the first sleep */
    frug_message *message; /* 2 * size, for frug_comm_allgather(); NULL until its first call */
    /* The transport's all-gather of up to FRUGI_SHORT_MAX bytes per rank, or NULL. */
    frug_status (*short_allgather)(void *ctx, const frug_comm *comm, int tag, const void *mine, size_t bytes,
                                   void *all);
};

#define FRUGI_POLL_SECONDS 50e-6 /* default of poll_seconds, for one core per worker */
#define FRUGI_SHORT_MAX    240u  /* bytes */

/** Post a send or receive. */
frug_status frugi_comm_post(frug_comm *comm, frug_message *message);

/** Set *done to the number of completed messages among n posted ones. Never blocks. */
frug_status frugi_comm_test(frug_comm *comm, frug_message *messages, size_t n, size_t *done);

/** Wait until all n posted messages have completed. On an error the incomplete ones are abandoned. */
frug_status frugi_comm_wait(frug_comm *comm, frug_message *messages, size_t n);

/** Wait until at least `enough` of n posted messages have completed. On an error the incomplete ones are abandoned. */
frug_status frugi_comm_wait_some(frug_comm *comm, frug_message *messages, size_t n, size_t enough);

/** Post n messages and wait for all of them. */
frug_status frugi_comm_exchange(frug_comm *comm, frug_message *messages, size_t n);

/** Set the error of a wait for `peer` that has passed the deadline; returns FRUG_ERR_COMM. */
frug_status frugi_comm_timeout_error(const frug_comm *comm, int peer);

/** Abandon the posted messages that have not completed. */
void frugi_comm_abandon(frug_comm *comm, frug_message *messages, size_t n);

#define FRUGI_TAG_ALLGATHER        1 /* tags below 16 belong to lib/comm */
#define FRUGI_TAG_RING             2
#define FRUGI_TAG_CALLER_MESSAGE   3 /* frug_comm_send() and frug_comm_receive() */
#define FRUGI_TAG_CALLER_ALLGATHER 4 /* frug_comm_allgather() */
#define FRUGI_TAG_CALLER_POSTED    8 /* to 15: frug_comm_post() */
#define FRUGI_TAG_FIRST            16

/**
 * All-gather of `bytes` bytes per rank, in rank order: all has size * bytes. One round in which every rank sends to
 * every other, so it is for short data.
 *
 *   messages   scratch for 2 * (size - 1)
 */
frug_status frugi_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all, frug_message *messages);

/**
 * All-reduce (sum) in place: by the transport's own all-reduce, or by a ring.
 *
 *   scratch   n / size + 1 floats, for the ring
 *
 * The ring sums each chunk in one fixed order and then distributes the result, so all ranks get the same bits.
 */
frug_status frugi_comm_allreduce(frug_comm *comm, float *x, uint64_t n, float *scratch);

#endif

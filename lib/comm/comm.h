/*
 * comm.h - a group of workers: messages between them, and the few collective operations that everything else is made
 * of.
 *
 * Whoever waits does so politely: a moment of polling, then sleep, because workers often share cores. Whoever waits
 * longer than the deadline gives up with FRUG_ERR_COMM.
 */
#ifndef FRUGI_COMM_H
#define FRUGI_COMM_H

#include "frugrad.h"

struct frug_comm {
    frug_transport transport;
    void *ctx;
    int rank, size;
    int known_as;          /* the rank that error messages name: in a part of a group, that in the whole */
    double deadline;       /* seconds */
    double eager;          /* seconds of polling before the first sleep */
    frug_message *message; /* room for frug_comm_gather(); NULL until its first call */
    /* A shorter way to gather at most FRUGI_SHORT bytes of each; or NULL. */
    frug_status (*gather)(void *ctx, const frug_comm *comm, int tag, const void *mine, size_t bytes, void *all);
};

#define FRUGI_EAGER 50e-6 /* seconds: what `eager` is where each worker has a core */
#define FRUGI_SHORT 240u  /* bytes */

/** Start a message. */
frug_status frugi_comm_post(frug_comm *comm, frug_message *message);

/** Set *done to how many of some started messages are done. Never blocks. */
frug_status frugi_comm_test(frug_comm *comm, frug_message *messages, size_t n, size_t *done);

/** Wait for all of some started messages. On an error those not done are abandoned. */
frug_status frugi_comm_wait(frug_comm *comm, frug_message *messages, size_t n);

/** Wait until at least `enough` of some started messages are done; otherwise the same. */
frug_status frugi_comm_wait_for(frug_comm *comm, frug_message *messages, size_t n, size_t enough);

/** Start some messages and wait for all of them. */
frug_status frugi_comm_exchange(frug_comm *comm, frug_message *messages, size_t n);

/** The error of a rank that has waited for another longer than the deadline. */
frug_status frugi_comm_too_late(const frug_comm *comm, int peer);

/** Abandon those of some started messages that are not done. */
void frugi_comm_abandon(frug_comm *comm, frug_message *messages, size_t n);

#define FRUGI_TAG_GATHER 1 /* tags below 16 are the collective operations' own */
#define FRUGI_TAG_RING   2
#define FRUGI_TAG_CALLER 3 /* frug_comm_send() and frug_comm_receive() */
#define FRUGI_TAG_MEET   4 /* frug_comm_gather() */
#define FRUGI_TAG_FIRST  16

/**
 * Everyone gets everyone's `bytes` bytes, in rank order: all has size * bytes. For short pieces: everyone sends to
 * everyone, in one round.
 *
 *   messages   room for 2 * (size - 1)
 */
frug_status frugi_comm_gather(frug_comm *comm, const void *mine, size_t bytes, void *all, frug_message *messages);

/**
 * x becomes the sum of all workers' x: by the transport's own means, or in a ring.
 *
 *   scratch   n / size + 1 floats, for the ring
 *
 * In a ring each part is summed by one worker after the other and then handed round, so all workers get the same bits.
 */
frug_status frugi_comm_allreduce(frug_comm *comm, float *x, uint64_t n, float *scratch);

#endif

/*
 * thread_allgather.h - all-gather of short data among the threads of a group, over shared memory.
 */
#ifndef FRUGI_THREAD_ALLGATHER_H
#define FRUGI_THREAD_ALLGATHER_H

#include "comm/comm.h"

typedef struct frugi_thread_allgather frugi_thread_allgather;

/** Returns NULL if out of memory. */
frugi_thread_allgather *frugi_thread_allgather_create(int size);
void frugi_thread_allgather_destroy(frugi_thread_allgather *allgather);

/**
 * As frugi_comm_allgather(), for at most FRUGI_SHORT_MAX bytes. A rank that waits longer than the group's deadline
 * fails with an error that names a missing rank.
 *
 *   tag   FRUGI_TAG_ALLGATHER or FRUGI_TAG_CALLER_ALLGATHER; calls with different tags do not match
 */
frug_status frugi_thread_allgather_run(frugi_thread_allgather *allgather, const frug_comm *comm, int tag,
                                       const void *mine, size_t bytes, void *all);

#endif

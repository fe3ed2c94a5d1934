/*
 * thread_allgather.h - an all-gather of short pieces among the threads of a group, over memory that all of them can
 * read.
 */
#ifndef FRUGI_THREAD_ALLGATHER_H
#define FRUGI_THREAD_ALLGATHER_H

#include "comm/comm.h"

typedef struct frugi_meeting frugi_meeting;

/** For so many ranks; NULL where memory is short. */
frugi_meeting *frugi_meeting_create(int size);
void frugi_meeting_destroy(frugi_meeting *meeting);

/**
 * As frugi_comm_gather(), for at most FRUGI_SHORT bytes. A rank that waits longer than the group's deadline withdraws
 * with an error that names one that did not arrive.
 *
 *   tag   FRUGI_TAG_GATHER or FRUGI_TAG_MEET: ranks of different tags do not meet
 */
frug_status frugi_meeting_gather(frugi_meeting *meeting, const frug_comm *comm, int tag, const void *mine, size_t bytes,
                                 void *all);

#endif

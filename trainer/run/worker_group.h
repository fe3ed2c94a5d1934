/*
 * worker_group.h - the workers of a run: threads of this process, or the processes of a distributed job of which this
 * process is one worker.
 *
 * fgt_group_join() makes this process a worker of a distributed job; it is process-wide and called once, by main(). The
 * functions below that take no comm then use that job; without it the process is alone.
 */
#ifndef FGT_WORKER_GROUP_H
#define FGT_WORKER_GROUP_H

#include "frugrad.h"

/** Makes this process one worker of a distributed job. The comm must outlive all that runs on it. */
void fgt_group_join(frug_comm *comm);

/** Whether fgt_group_join() was called: the number of workers is then that of the job. */
int fgt_group_is_joined(void);

/** Timeout in seconds of a receive. The default must cover: a step of a large model on a loaded machine, a dense
 * gradient over a slow link, different times to read the data. Checkpoints need no longer timeout: workers synchronize
 * every 64 MiB. */
#define FGT_GROUP_TIMEOUT 600.0
void fgt_group_set_timeout(double seconds);

/** Workers of the job, or `fallback` where this process is alone. */
int fgt_group_size(int fallback);

/** Workers of the job on this machine, or `fallback` where this process is alone. */
int fgt_group_local_size(int fallback);

/** All-gathers the bytes of every process in rank order; alone: its own. Collective. Returns an exit status. */
int fgt_group_gather(const void *mine, size_t bytes, void *all);

/** Rank of this process in the job; 0 where it is alone. */
int fgt_group_rank(void);

/** All-gathers the exit status of the workers: all return the worst. Of the messages that they have held back
 * (io/error.h) the first worker that failed prints its own, or worker 0 where none did; after a failure the others go
 * on holding back what follows from it. Collective; returns FGIO_EXIT_FAIL when the exchange fails. */
int fgt_group_agree(frug_comm *comm, int status);

/** The same over the distributed job of this process; where it is alone it prints its messages and returns its own
 * status. */
int fgt_group_agree_joined(int status);

/** The function of one worker. Returns an exit status, after an error message. */
typedef int fgt_group_fn(frug_comm *comm, void *shared);

/** Runs the function on this many threads, or on this process as one worker of its job. Returns the worst exit status.
 */
int fgt_group_run(int workers, fgt_group_fn *work, void *shared);

#endif

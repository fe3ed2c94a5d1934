/*
 * worker_group.h - the workers that measure an exchange: threads of this program, or the processes of a job that this
 * one is part of.
 */
#ifndef FGT_WORKER_GROUP_H
#define FGT_WORKER_GROUP_H

#include "frugrad.h"

/** Say that this process is one worker of a group. The comm must outlive all that is run on it. */
void fgt_team_join(frug_comm *comm);

/** Whether fgt_team_join() was called: how many workers there are is then not ours to say. */
int fgt_team_joined(void);

/**
 * Seconds that a worker waits for a message of another before it gives up. What the default must not cut short: a step
 * of a large model on a loaded machine, a dense gradient over a slow link, the reading of data that differs in time
 * between machines. Checkpoints are no matter: workers meet every 64 MiB.
 */
#define FGT_GROUP_TIMEOUT 600.0
void fgt_group_set_timeout(double seconds);

/** Workers of the group, or `fallback` where this process is alone. */
int fgt_team_size(int fallback);

/** Workers of the group on this machine, or `fallback` where this process is alone. */
int fgt_team_local(int fallback);

/** Bytes of every process of the group, in the order of their numbers; alone, its own. Collective. Returns an exit
 * status. */
int fgt_group_gather(const void *mine, size_t bytes, void *all);

/** This process's number in the group; 0 where it is alone. */
int fgt_team_rank(void);

/**
 * Hear how the workers of a group do: all get the worst exit status. Of what they have held back (io/error.h) the first
 * that failed prints its own, or worker 0 where none did. Collective; returns FGIO_EXIT_FAIL when they do not meet.
 */
int fgt_group_agree(frug_comm *comm, int status);

/** The same over the group that this process has joined; where it is alone its own status, printed. */
int fgt_group_agree_joined(int status);

/** What one worker does. Returns an exit status, after a line on stderr. */
typedef int fgt_group_fn(frug_comm *comm, void *shared);

/** Let the team work: as many threads as said, or this process as its one worker. Returns the worst exit status. */
int fgt_team_run(int workers, fgt_group_fn *work, void *shared);

#endif

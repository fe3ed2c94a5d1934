/*
 * team.h - the workers that measure an exchange: threads of this program, or the processes of a job that this one is
 * part of.
 */
#ifndef FRUGI_TEAM_H
#define FRUGI_TEAM_H

#include "frugrad.h"

/** Say that this process is one worker of a group. The comm must outlive all that is run on it. */
void frugi_team_join(frug_comm *comm);

/** Whether frugi_team_join() was called: how many workers there are is then not ours to say. */
int frugi_team_joined(void);

/** Workers of the group, or `fallback` where this process is alone. */
int frugi_team_size(int fallback);

/** What one worker does. Returns an exit status, after a line on stderr. */
typedef int frugi_team_fn(frug_comm *comm, void *shared);

/** Let the team work: as many threads as said, or this process as its one worker. Returns the worst exit status. */
int frugi_team_run(int workers, frugi_team_fn *work, void *shared);

/** Numbers from every worker to every worker. */
typedef struct frugi_share {
    frug_comm *comm;
    frug_reducer *reducer;
    size_t each; /* numbers from one worker */
    float *mine; /* size * each: all but this worker's are 0 */
    float *all;  /* size * each: those of worker i at i * each */
} frugi_share;

/** Collective. Returns an exit status, after a line on stderr. Close it in either case. */
int frugi_share_open(frugi_share *share, frug_comm *comm, size_t each);
void frugi_share_close(frugi_share *share);

/** Hand round `each` finite numbers; afterwards all workers have share->all. Collective, so it makes workers meet. */
int frugi_share_round(frugi_share *share, const float *numbers);

#endif

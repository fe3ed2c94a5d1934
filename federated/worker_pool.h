/*
 * worker_pool.h - threads for work that would hold up the thread of the connections: checking updates, closing rounds.
 *
 * That thread submits jobs and collects those that are done, when the pool's descriptor can be read.
 */
#ifndef FGF_WORKER_POOL_H
#define FGF_WORKER_POOL_H

#include <stddef.h>

/** One job; the first member of the caller's own struct. It belongs to the pool until it is collected. */
typedef struct fgf_pool_job {
    void (*run)(struct fgf_pool_job *job, int thread);   /* on a thread of the pool, numbered from 0 */
    void (*finish)(struct fgf_pool_job *job, void *ctx); /* on the thread that collects */
    struct fgf_pool_job *next;
} fgf_pool_job;

typedef struct fgf_pool fgf_pool;

/** NULL without memory, threads or descriptors. */
fgf_pool *fgf_pool_create(int threads);

/** Waits for running jobs, drops those that have not begun, and those that were not collected. */
void fgf_pool_destroy(fgf_pool *pool);

void fgf_pool_submit(fgf_pool *pool, fgf_pool_job *job);

/** Readable when a job is done. */
int fgf_pool_fd(const fgf_pool *pool);

/** Calls finish() of all jobs that are done. */
void fgf_pool_collect(fgf_pool *pool, void *ctx);

#endif

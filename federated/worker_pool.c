/* worker_pool.c - a queue of jobs, some threads, and an eventfd that announces jobs that are done. */
#include "federated/worker_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/** Jobs in the order in which they were added. */
typedef struct queue {
    fgf_pool_job *first, *last;
} queue;

typedef struct pool_thread {
    fgf_pool *pool;
    pthread_t id;
    int number;
} pool_thread;

struct fgf_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    queue waiting, done;
    bool ending;
    int event, threads;
    pool_thread *thread;
};

static void add_job(queue *q, fgf_pool_job *job) {
    job->next = NULL;
    if (q->last)
        q->last->next = job;
    else
        q->first = job;
    q->last = job;
}

static fgf_pool_job *take_job(queue *q) {
    fgf_pool_job *job = q->first;
    if (job) {
        q->first = job->next;
        q->last = q->first ? q->last : NULL;
    }
    return job;
}

static void *work(void *arg) {
    pool_thread *me = arg;
    fgf_pool *pool = me->pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        fgf_pool_job *job = pool->ending ? NULL : take_job(&pool->waiting);
        if (job) {
            pthread_mutex_unlock(&pool->lock);
            job->run(job, me->number);
            pthread_mutex_lock(&pool->lock);
            add_job(&pool->done, job);
            eventfd_write(pool->event, 1);
        } else if (pool->ending) {
            break;
        } else {
            pthread_cond_wait(&pool->changed, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

fgf_pool *fgf_pool_create(int threads) {
    fgf_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pool->thread = calloc((size_t)threads, sizeof *pool->thread);
    for (int i = 0; pool->thread && i < threads; i++) {
        pool->thread[i] = (pool_thread){.pool = pool, .number = i};
        if (pthread_create(&pool->thread[i].id, NULL, work, &pool->thread[i]) != 0)
            break;
        pool->threads++;
    }
    if (pool->event >= 0 && pool->threads == threads)
        return pool;
    fgf_pool_destroy(pool);
    return NULL;
}

void fgf_pool_destroy(fgf_pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads; i++)
        pthread_join(pool->thread[i].id, NULL);
    if (pool->event >= 0)
        close(pool->event);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->changed);
    free(pool->thread);
    free(pool);
}

void fgf_pool_submit(fgf_pool *pool, fgf_pool_job *job) {
    pthread_mutex_lock(&pool->lock);
    add_job(&pool->waiting, job);
    pthread_cond_signal(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

int fgf_pool_fd(const fgf_pool *pool) {
    return pool->event;
}

void fgf_pool_collect(fgf_pool *pool, void *ctx) {
    eventfd_t ignored;
    eventfd_read(pool->event, &ignored);
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        fgf_pool_job *job = take_job(&pool->done);
        pthread_mutex_unlock(&pool->lock);
        if (!job)
            return;
        job->finish(job, ctx);
    }
}

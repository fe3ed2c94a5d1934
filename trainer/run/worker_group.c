/*
 * worker_group.c - starting workers: threads that begin together, or this process as one worker of a distributed job.
 *
 * A process is a member of at most one distributed job, for its whole life, as with MPI_COMM_WORLD. So the communicator
 * of the job is a process-wide setting, `process_comm`: main() sets it once, before any other call. NULL: this process
 * is alone, and its workers are threads.
 */
#include "trainer/run/worker_group.h"

#include "io/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static frug_comm *process_comm;
static double timeout = FGT_GROUP_TIMEOUT;

void fgt_group_join(frug_comm *comm) {
    process_comm = comm;
}

void fgt_group_set_timeout(double seconds) {
    timeout = seconds;
}

int fgt_group_is_joined(void) {
    return process_comm != NULL;
}

int fgt_group_size(int fallback) {
    return process_comm ? frug_comm_size(process_comm) : fallback;
}

int fgt_group_local_size(int fallback) {
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    local = local != NULL ? local : getenv("MPI_LOCALNRANKS");
    local = local != NULL ? local : getenv("SLURM_STEP_TASKS_PER_NODE"); /* as 4(x2): of the first node */
    int count = local != NULL ? atoi(local) : 0;
    return !process_comm ? fallback : count > 0 ? count : frug_comm_size(process_comm);
}

int fgt_group_gather(const void *mine, size_t bytes, void *all) {
    if (process_comm)
        return frug_comm_allgather(process_comm, mine, bytes, all) == FRUG_OK ? FGIO_EXIT_OK
                                                                              : fgio_library_error("workers");
    memcpy(all, mine, bytes);
    return FGIO_EXIT_OK;
}

int fgt_group_rank(void) {
    return process_comm ? frug_comm_rank(process_comm) : 0;
}

int fgt_group_agree(frug_comm *comm, int status) {
    int size = frug_comm_size(comm), first = 0, worst = FGIO_EXIT_OK, *all = calloc((size_t)size, sizeof *all);
    frug_status gathered = all ? frug_comm_allgather(comm, &status, sizeof status, all) : FRUG_ERR_MEMORY;
    for (int i = size - 1; gathered == FRUG_OK && i >= 0; i--) {
        worst = all[i] > worst ? all[i] : worst;
        first = all[i] != FGIO_EXIT_OK ? i : first;
    }
    free(all);
    fgio_errors_flush(gathered != FRUG_OK || frug_comm_rank(comm) == first);
    if (worst != FGIO_EXIT_OK && frug_comm_rank(comm) != first)
        fgio_errors_defer(); /* the error is printed, and so are its hints by the worker that printed it */
    return gathered == FRUG_OK ? worst : fgio_library_error("workers");
}

int fgt_group_agree_joined(int status) {
    if (process_comm) {
        frug_comm_set_timeout(process_comm, timeout);
        return fgt_group_agree(process_comm, status);
    }
    fgio_errors_flush(1);
    return status;
}

/** The threads begin together, or not at all when one cannot be started: the others would wait for it. */
typedef struct start_gate {
    pthread_mutex_t lock; /* held until all threads are started */
    int open;
} start_gate;

typedef struct group_thread {
    pthread_t thread;
    start_gate *start_gate;
    frug_comm *comm;
    fgt_group_fn *work;
    void *shared;
    int status;
} group_thread;

static void *run_thread(void *arg) {
    group_thread *m = arg;
    pthread_mutex_lock(&m->start_gate->lock);
    int open = m->start_gate->open;
    pthread_mutex_unlock(&m->start_gate->lock);
    if (open)
        m->status = m->work(m->comm, m->shared);
    return NULL;
}

static int run_threads(int workers, frug_comm **comm, group_thread *m, fgt_group_fn *work, void *shared) {
    start_gate g = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int started = 0;
    pthread_mutex_lock(&g.lock);
    for (; started < workers; started++) {
        m[started] = (group_thread){.start_gate = &g, .comm = comm[started], .work = work, .shared = shared};
        frug_comm_set_timeout(comm[started], timeout);
        if (pthread_create(&m[started].thread, NULL, run_thread, &m[started]) != 0)
            break;
    }
    g.open = started == workers;
    pthread_mutex_unlock(&g.lock);
    int status = FGIO_EXIT_OK;
    if (!g.open) {
        status = fgio_error("cannot start %d worker threads, only %d: out of memory, or too many for this user",
                            workers, started);
        fgio_hint("ulimit -v and ulimit -u show the limits; fewer --workers need less");
    }
    for (int i = 0; i < started; i++) {
        pthread_join(m[i].thread, NULL);
        status = m[i].status > status ? m[i].status : status;
    }
    pthread_mutex_destroy(&g.lock);
    return status;
}

int fgt_group_run(int workers, fgt_group_fn *work, void *shared) {
    if (process_comm) {
        frug_comm_set_timeout(process_comm, timeout);
        return work(process_comm, shared);
    }
    frug_comm **comm = calloc((size_t)workers, sizeof(frug_comm *));
    group_thread *m = calloc((size_t)workers, sizeof *m);
    int status = FGIO_EXIT_FAIL;
    if (!comm || !m)
        fgio_error("not enough memory for %d workers", workers);
    else if (frug_comm_threads(workers, comm) != FRUG_OK)
        fgio_library_error("workers");
    else {
        status = run_threads(workers, comm, m, work, shared);
        for (int i = 0; i < workers; i++)
            frug_comm_destroy(comm[i]);
    }
    free(comm);
    free(m);
    return status;
}

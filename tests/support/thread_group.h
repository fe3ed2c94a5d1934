/* thread_group.h - several workers in one process: each is a thread with its own communicator. */
#ifndef FRUG_TEST_THREAD_GROUP_H
#define FRUG_TEST_THREAD_GROUP_H

#include "support/assertions.h"

#include <pthread.h>

#define THREAD_WORKERS_MAX 16

/** What one worker does; a worker must not fail a cmocka assertion (it is not the test's thread) but return a status.
 */
typedef frug_status worker_fn(frug_comm *comm, void *shared);

typedef struct thread_worker {
    pthread_t thread;
    frug_comm *comm;
    worker_fn *work;
    void *shared;
    frug_status status;
    char error[512];
} thread_worker;

static inline void *worker_thread_main(void *arg) {
    thread_worker *m = arg;
    m->status = m->work(m->comm, m->shared);
    strncpy(m->error, frug_last_error(), sizeof m->error - 1);
    return NULL;
}

/** Run `work` in `size` threads and wait; status and error of each are in member[] afterwards. */
static inline void run_workers(int size, worker_fn *work, void *shared, double deadline, thread_worker *member) {
    frug_comm *comm[THREAD_WORKERS_MAX];
    OK(frug_comm_threads(size, comm));
    for (int i = 0; i < size; i++) {
        member[i] = (thread_worker){.comm = comm[i], .work = work, .shared = shared};
        OK(frug_comm_set_timeout(comm[i], deadline));
        assert_int_equal(pthread_create(&member[i].thread, NULL, worker_thread_main, &member[i]), 0);
    }
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_join(member[i].thread, NULL), 0);
    for (int i = 0; i < size; i++)
        frug_comm_destroy(comm[i]);
}

static inline void assert_workers_ok(const char *what, const thread_worker *member, int size) {
    for (int i = 0; i < size; i++)
        if (member[i].status != FRUG_OK)
            fail_msg("%s, rank %d of %d: status %d, %s", what, i, size, member[i].status, member[i].error);
}

/** Create the reducer of a worker with this number of threads; 0: the default of the library. */
static inline frug_status create_worker_reducer(const char *text, const frug_layout *layout, int threads,
                                                frug_comm *comm, frug_reducer **r) {
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = threads;
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, &options, comm, r);
    frug_config_destroy(config);
    return status;
}

#endif

/* server_group.h - fixture for parameter servers: workers and servers as threads of one process. */
#ifndef FRUG_TEST_SERVER_GROUP_H
#define FRUG_TEST_SERVER_GROUP_H

#include "frugrad/experimental.h"
#include "support/test_clock.h"
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define STEPS    5u
#define RATE     0.25f
#define DECAY    0.01f
#define DEADLINE 20.0 /* seconds */

/** What worker 1 does differently. */
typedef enum fault { NO_FAULT, PUSH_TWICE, STOP_SILENTLY, REJOIN, REJOIN_OLD_EPOCH, OTHER_CONFIG, OTHER_RATE } fault;

typedef struct server_fixture {
    const char *config;
    const frug_layout *layout;
    size_t n;
    int servers, workers;
    fault fault;
    float *grad[THREAD_WORKERS_MAX][STEPS];
    float *weights[THREAD_WORKERS_MAX];                     /* one per rank */
    float *residual[THREAD_WORKERS_MAX];                    /* one per worker */
    atomic_uint_least64_t pushes_begun[THREAD_WORKERS_MAX]; /* by each worker */
    atomic_int lead;                                        /* most steps that a worker was ahead of another */
    atomic_int workers_done;
    atomic_bool staleness_exceeded;
    uint64_t staleness;
    pthread_barrier_t *all_pushed; /* or NULL */
} server_fixture;

static inline frug_status make_client(server_fixture *t, frug_comm *comm, uint64_t epoch, frug_client **client) {
    int rank = frug_comm_rank(comm), self = rank - t->servers;
    char text[256];
    snprintf(text, sizeof text, "%s,servers=%d%s", t->config, t->servers,
             self == 1 && t->fault == OTHER_CONFIG ? ",seed=5" : "");
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_client_create(config, t->layout, &options, comm, epoch, t->weights[rank], client);
    frug_config_destroy(config);
    return status;
}

/* No worker may complete a pull that is ahead of another worker's pushes by more than the staleness. */
static inline void check_staleness(server_fixture *t, int self, uint64_t step) {
    for (int i = 0; i < t->workers; i++) {
        uint64_t pushes_begun = atomic_load(&t->pushes_begun[i]);
        if (i != self && step + 1 > pushes_begun && (int)(step + 1 - pushes_begun) > atomic_load(&t->lead))
            atomic_store(&t->lead, (int)(step + 1 - pushes_begun));
        if (step + 1 > pushes_begun + t->staleness)
            atomic_store(&t->staleness_exceeded, true);
    }
}

static inline frug_status rejoin(server_fixture *t, frug_comm *comm, frug_client **client, uint64_t *step) {
    frug_client_destroy(*client);
    *client = NULL;
    for (size_t i = 0; i < t->n; i++) /* its weights are lost */
        t->weights[frug_comm_rank(comm)][i] = -1e30f;
    frug_status status = make_client(t, comm, t->fault == REJOIN ? 1 : 0, client);
    if (status == FRUG_OK)
        *step = frug_client_start(*client);
    return status;
}

static inline frug_status push(server_fixture *t, frug_client *client, int self, uint64_t step) {
    float rate = self == 1 && t->fault == OTHER_RATE && step == 2 ? 2 * RATE : RATE;
    frug_status status = frug_client_push(client, step, t->grad[self][step], rate, DECAY);
    if (status == FRUG_OK && self == 1 && t->fault == PUSH_TWICE)
        status = frug_client_push(client, step, t->grad[self][step], rate, DECAY);
    return status;
}

/* Let the deadline of a worker that stopped pass, in steps so that workers that wait are not late, too. */
static inline void pass_deadline(server_fixture *t) {
    turned_clock_turn(0); /* from now on only the others read it */
    while (atomic_load(&t->workers_done) < t->workers - 1) {
        if (turned_clock_readers() >= t->servers + t->workers - 1)
            turned_clock_turn(DEADLINE / 6);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Until another worker is ahead of this one; at most 20 seconds. */
static inline void await_lead(server_fixture *t) {
    for (int i = 0; i < 20000 && atomic_load(&t->lead) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static inline frug_status run_worker(server_fixture *t, frug_comm *comm) {
    int rank = frug_comm_rank(comm), self = rank - t->servers;
    frug_client *client = NULL;
    bool rejoined = false;
    frug_status status = make_client(t, comm, 0, &client);
    if (t->all_pushed && t->staleness) /* workers that have not joined do not hold back others */
        pthread_barrier_wait(t->all_pushed);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        if (self == 1 && step == 2 && t->fault == STOP_SILENTLY)
            break;
        if (self == 1 && step == 2 && (t->fault == REJOIN || t->fault == REJOIN_OLD_EPOCH) && !rejoined) {
            rejoined = true;
            status = rejoin(t, comm, &client, &step);
            if (status != FRUG_OK)
                break;
        }
        if (self == 0 && t->staleness)
            await_lead(t);
        atomic_fetch_add(&t->pushes_begun[self], 1);
        status = push(t, client, self, step);
        if (status == FRUG_OK)
            status = frug_client_pull(client, t->weights[rank]);
        if (status == FRUG_OK)
            check_staleness(t, self, step);
    }
    if (status == FRUG_OK && t->residual[self])
        status = frug_compressor_get_residual(frug_client_compressor(client), (frug_range){0, t->n}, t->residual[self]);
    if (t->all_pushed)
        pthread_barrier_wait(t->all_pushed);
    if (status == FRUG_OK && !(self == 1 && t->fault == STOP_SILENTLY))
        status = frug_client_leave(client);
    frug_client_destroy(client);
    if (self == 1 && t->fault == STOP_SILENTLY)
        pass_deadline(t);
    atomic_fetch_add(&t->workers_done, 1);
    return status;
}

static inline frug_status run_rank(frug_comm *comm, void *shared) {
    server_fixture *t = shared;
    int rank = frug_comm_rank(comm);
    if (rank >= t->servers)
        return run_worker(t, comm);
    char text[256];
    snprintf(text, sizeof text, "%s,servers=%d", t->config, t->servers);
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_server_run(config, t->layout, &options, comm, t->weights[rank]);
    frug_config_destroy(config);
    return status;
}

/* All servers start with the same weights, workers with zeros. */
static inline server_fixture create_fixture(const char *config, const frug_layout *layout, int servers, int workers) {
    server_fixture t = {.config = config, .layout = layout, .n = frug_layout_elements(layout)};
    t.servers = servers;
    t.workers = workers;
    for (int i = 0; i < servers + workers; i++)
        t.weights[i] = i < servers ? make_test_gradient(layout, 999) : test_calloc(t.n + 1, sizeof(float));
    for (int i = 0; i < workers; i++)
        for (uint64_t step = 0; step < STEPS; step++)
            t.grad[i][step] = make_test_gradient(layout, 100 * (uint64_t)i + step + 1);
    return t;
}

static inline void free_fixture(server_fixture *t) {
    for (int i = 0; i < t->servers + t->workers; i++)
        test_free(t->weights[i]);
    for (int i = 0; i < t->workers; i++)
        for (uint64_t step = 0; step < STEPS; step++)
            test_free(t->grad[i][step]);
    for (int i = 0; i < t->workers; i++)
        if (t->residual[i])
            test_free(t->residual[i]);
}

/** Run all ranks; all but `except` must succeed. */
static inline void run_fixture(server_fixture *t, double deadline, int except, thread_worker *member) {
    run_workers(t->servers + t->workers, run_rank, t, deadline, member);
    for (int i = 0; i < t->servers + t->workers; i++)
        if (member[i].status != FRUG_OK && i != except)
            fail_msg("%s, %d servers, %d workers, rank %d: %s", t->config, t->servers, t->workers, i, member[i].error);
}

#endif

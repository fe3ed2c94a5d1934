/* server_group.h - what the tests of parameter servers share: workers and servers as threads of one process. */
#ifndef FRUG_TEST_SERVER_GROUP_H
#define FRUG_TEST_SERVER_GROUP_H

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

/** What worker 1 does in addition. */
typedef enum odd_job { NOTHING, PUSH_TWICE, VANISH, COME_BACK, COME_BACK_OLD, OTHER_CONFIG, OTHER_RATE } odd_job;

typedef struct service {
    const char *config;
    const frug_layout *layout;
    size_t n;
    int servers, workers;
    odd_job what;
    float *grad[CREW_MOST][STEPS];
    float *weights[CREW_MOST];              /* one per rank */
    float *left[CREW_MOST];                 /* one per worker: what it has not sent */
    atomic_uint_least64_t begun[CREW_MOST]; /* pushes that each worker has begun */
    atomic_int lead;                        /* the most that one was ahead of another */
    atomic_bool too_far;
    uint64_t staleness;
    pthread_barrier_t *all_pushed; /* or NULL */
} service;

static inline frug_status make_client(service *t, frug_comm *comm, uint64_t epoch, frug_client **client) {
    int rank = frug_comm_rank(comm), me = rank - t->servers;
    char text[256];
    snprintf(text, sizeof text, "%s,servers=%d%s", t->config, t->servers,
             me == 1 && t->what == OTHER_CONFIG ? ",seed=5" : "");
    frug_config *config = NULL;
    frug_options options = FRUG_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_client_create(config, t->layout, &options, comm, epoch, t->weights[rank], client);
    frug_config_destroy(config);
    return status;
}

/* Nobody may be past a pull while another has not begun what the bound asks for. */
static inline void watch(service *t, int me, uint64_t step) {
    for (int i = 0; i < t->workers; i++) {
        uint64_t begun = atomic_load(&t->begun[i]);
        if (i != me && step + 1 > begun && (int)(step + 1 - begun) > atomic_load(&t->lead))
            atomic_store(&t->lead, (int)(step + 1 - begun));
        if (step + 1 > begun + t->staleness)
            atomic_store(&t->too_far, true);
    }
}

static inline frug_status come_back(service *t, frug_comm *comm, frug_client **client, uint64_t *step) {
    frug_client_destroy(*client);
    *client = NULL;
    for (size_t i = 0; i < t->n; i++) /* what it had is lost */
        t->weights[frug_comm_rank(comm)][i] = -1e30f;
    frug_status status = make_client(t, comm, t->what == COME_BACK ? 1 : 0, client);
    if (status == FRUG_OK)
        *step = frug_client_start(*client);
    return status;
}

static inline frug_status push(service *t, frug_client *client, int me, uint64_t step) {
    float rate = me == 1 && t->what == OTHER_RATE && step == 2 ? 2 * RATE : RATE;
    frug_status status = frug_client_push(client, step, t->grad[me][step], rate, DECAY);
    if (status == FRUG_OK && me == 1 && t->what == PUSH_TWICE)
        status = frug_client_push(client, step, t->grad[me][step], rate, DECAY);
    return status;
}

static inline frug_status work(service *t, frug_comm *comm) {
    int rank = frug_comm_rank(comm), me = rank - t->servers;
    frug_client *client = NULL;
    bool back = false;
    frug_status status = make_client(t, comm, 0, &client);
    if (t->all_pushed && t->staleness) /* nobody is ahead of one who has not come yet */
        pthread_barrier_wait(t->all_pushed);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        if (me == 1 && step == 2 && t->what == VANISH)
            break;
        if (me == 1 && step == 2 && (t->what == COME_BACK || t->what == COME_BACK_OLD) && !back) {
            back = true;
            status = come_back(t, comm, &client, &step);
            if (status != FRUG_OK)
                break;
        }
        if (me == 0 && t->staleness)
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        atomic_fetch_add(&t->begun[me], 1);
        status = push(t, client, me, step);
        if (status == FRUG_OK)
            status = frug_client_pull(client, t->weights[rank]);
        if (status == FRUG_OK)
            watch(t, me, step);
    }
    if (status == FRUG_OK && t->left[me])
        status = frug_compressor_residual(frug_client_compressor(client), 0, t->n, t->left[me]);
    if (t->all_pushed)
        pthread_barrier_wait(t->all_pushed);
    if (status == FRUG_OK && !(me == 1 && t->what == VANISH))
        status = frug_client_leave(client);
    frug_client_destroy(client);
    return status;
}

static inline frug_status take_part(frug_comm *comm, void *shared) {
    service *t = shared;
    int rank = frug_comm_rank(comm);
    if (rank >= t->servers)
        return work(t, comm);
    char text[256];
    snprintf(text, sizeof text, "%s,servers=%d", t->config, t->servers);
    frug_config *config = NULL;
    frug_options options = FRUG_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_server_run(config, t->layout, &options, comm, t->weights[rank]);
    frug_config_destroy(config);
    return status;
}

/* Servers start from the same weights, workers from nothing. */
static inline service make_service(const char *config, const frug_layout *layout, int servers, int workers) {
    service t = {.config = config, .layout = layout, .n = frug_layout_elements(layout)};
    t.servers = servers;
    t.workers = workers;
    for (int i = 0; i < servers + workers; i++)
        t.weights[i] = i < servers ? zoo_gradient(layout, 999) : test_calloc(t.n + 1, sizeof(float));
    for (int i = 0; i < workers; i++)
        for (uint64_t step = 0; step < STEPS; step++)
            t.grad[i][step] = zoo_gradient(layout, 100 * (uint64_t)i + step + 1);
    return t;
}

static inline void end_service(service *t) {
    for (int i = 0; i < t->servers + t->workers; i++)
        test_free(t->weights[i]);
    for (int i = 0; i < t->workers; i++)
        for (uint64_t step = 0; step < STEPS; step++)
            test_free(t->grad[i][step]);
    for (int i = 0; i < t->workers; i++)
        if (t->left[i])
            test_free(t->left[i]);
}

/** Everyone but the one named must have come through. */
static inline void run_service(service *t, double deadline, int but, crew_member *member) {
    crew(t->servers + t->workers, take_part, t, deadline, member);
    for (int i = 0; i < t->servers + t->workers; i++)
        if (member[i].status != FRUG_OK && i != but)
            fail_msg("%s, %d servers, %d workers, rank %d: %s", t->config, t->servers, t->workers, i, member[i].error);
}

#endif

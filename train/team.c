/*
 * team.c - start workers and let them tell each other numbers. The numbers travel by the library's own uncompressed
 * sum: every worker puts its own in its own places and zeros elsewhere.
 */
#include "team.h"

#include "say.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE 600.0 /* seconds: the slowest links take a minute for a dense gradient */

static frug_comm *joined;

void frugi_team_join(frug_comm *comm) {
    joined = comm;
}

int frugi_team_joined(void) {
    return joined != NULL;
}

int frugi_team_size(int fallback) {
    return joined ? frug_comm_size(joined) : fallback;
}

/** The threads set out together, or not at all when one cannot be started: the others would wait for it. */
typedef struct gate {
    pthread_mutex_t lock; /* held until all stand at the gate */
    int open;
} gate;

typedef struct member {
    pthread_t thread;
    gate *gate;
    frug_comm *comm;
    frugi_team_fn *work;
    void *shared;
    int status;
} member;

static void *run_member(void *arg) {
    member *m = arg;
    pthread_mutex_lock(&m->gate->lock);
    int open = m->gate->open;
    pthread_mutex_unlock(&m->gate->lock);
    if (open)
        m->status = m->work(m->comm, m->shared);
    return NULL;
}

static int run_threads(int workers, frug_comm **comm, member *m, frugi_team_fn *work, void *shared) {
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int started = 0;
    pthread_mutex_lock(&g.lock);
    for (; started < workers; started++) {
        m[started] = (member){.gate = &g, .comm = comm[started], .work = work, .shared = shared};
        frug_comm_set_deadline(comm[started], DEADLINE);
        if (pthread_create(&m[started].thread, NULL, run_member, &m[started]) != 0)
            break;
    }
    g.open = started == workers;
    pthread_mutex_unlock(&g.lock);
    int status = g.open ? FRUGI_EXIT_OK : frugi_error("cannot start %d threads", workers);
    for (int i = 0; i < started; i++) {
        pthread_join(m[i].thread, NULL);
        status = m[i].status > status ? m[i].status : status;
    }
    pthread_mutex_destroy(&g.lock);
    return status;
}

int frugi_team_run(int workers, frugi_team_fn *work, void *shared) {
    if (joined) {
        frug_comm_set_deadline(joined, DEADLINE);
        return work(joined, shared);
    }
    frug_comm **comm = calloc((size_t)workers, sizeof(frug_comm *));
    member *m = calloc((size_t)workers, sizeof *m);
    int status = FRUGI_EXIT_FAIL;
    if (!comm || !m)
        frugi_error("no memory for %d workers", workers);
    else if (frug_comm_threads(workers, comm) != FRUG_OK)
        frugi_library_error("workers");
    else {
        status = run_threads(workers, comm, m, work, shared);
        for (int i = 0; i < workers; i++)
            frug_comm_destroy(comm[i]);
    }
    free(comm);
    free(m);
    return status;
}

int frugi_share_open(frugi_share *share, frug_comm *comm, size_t each) {
    size_t n = (size_t)frug_comm_size(comm) * each;
    *share =
        (frugi_share){.comm = comm, .each = each, .mine = calloc(n, sizeof(float)), .all = calloc(n, sizeof(float))};
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    if (!share->mine || !share->all)
        return frugi_error("no memory for %zu numbers", n);
    int failed = frug_config_create("reduce=dense", &config) != FRUG_OK || frug_layout_flat(n, &layout) != FRUG_OK ||
                 frug_reducer_create(config, layout, NULL, comm, &share->reducer) != FRUG_OK;
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    return failed ? frugi_library_error("workers") : FRUGI_EXIT_OK;
}

void frugi_share_close(frugi_share *share) {
    frug_reducer_destroy(share->reducer);
    free(share->mine);
    free(share->all);
    *share = (frugi_share){0};
}

int frugi_share_round(frugi_share *share, const float *numbers) {
    size_t n = (size_t)frug_comm_size(share->comm) * share->each;
    memcpy(share->mine + (size_t)frug_comm_rank(share->comm) * share->each, numbers, share->each * sizeof *numbers);
    memset(share->all, 0, n * sizeof *share->all);
    if (frug_reduce_add(share->reducer, 0, 0, n, share->mine, 1.0f, share->all) != FRUG_OK)
        return frugi_library_error("workers");
    return FRUGI_EXIT_OK;
}

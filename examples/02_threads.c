/*
 * 02_threads.c - data-parallel descent with four threads, sending 6 % of each gradient.
 *
 * Each worker has its own noisy gradient of f(w) = |w - target|^2 / 2. All workers apply the same sum, so their weights
 * stay equal bit for bit.
 *
 *   cc 02_threads.c $(pkg-config --cflags --libs frugrad) -pthread -lm -o 02_threads && ./02_threads
 */
#include <frugrad.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, N = 1 << 16, STEPS = 200 };

static float target[N], weights[WORKERS][N];
static frug_comm *comms[WORKERS];
static frug_config *config;
static frug_layout *layout;
static int failures[WORKERS];

static int train(frug_comm *comm, float *w) {
    frug_reducer *reducer = NULL;
    float *grad = malloc(N * sizeof *grad);
    unsigned seed = (unsigned)frug_comm_rank(comm);
    int failed = !grad || frug_reducer_create(config, layout, NULL, comm, &reducer);
    for (uint64_t step = 0; step < STEPS && !failed; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = w[i] - target[i] + 0.1f * ((float)rand_r(&seed) / (float)RAND_MAX - 0.5f);
        failed = frug_reducer_apply(reducer, step, (frug_range){0, N}, grad, 0.1 / WORKERS, 0, w) != FRUG_OK;
    }
    if (failed)
        fprintf(stderr, "02_threads: %s\n", frug_last_error());
    frug_reducer_destroy(reducer);
    free(grad);
    return failed;
}

static void *worker(void *comm) {
    int rank = frug_comm_rank(comm);
    failures[rank] = train(comm, weights[rank]);
    return NULL;
}

int main(void) {
    pthread_t threads[WORKERS];
    for (int i = 0; i < N; i++)
        target[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    if (frug_config_create("frugrad", &config) || frug_layout_flat(N, &layout) || frug_comm_threads(WORKERS, comms)) {
        fprintf(stderr, "02_threads: %s\n", frug_last_error());
        return 1;
    }
    for (int r = 0; r < WORKERS; r++)
        if (pthread_create(&threads[r], NULL, worker, comms[r]))
            abort();
    int failed = 0;
    for (int r = 0; r < WORKERS; r++) {
        pthread_join(threads[r], NULL);
        failed |= failures[r] || memcmp(weights[r], weights[0], sizeof weights[0]) != 0;
    }
    double error = 0, start = 0;
    for (int i = 0; i < N; i++) {
        error += pow((double)weights[0][i] - (double)target[i], 2);
        start += pow((double)target[i], 2);
    }
    printf("distance to the target fell to %.1f %%; weights of all workers are %s\n", 100 * sqrt(error / start),
           failed ? "NOT equal" : "equal");
    for (int r = 0; r < WORKERS; r++)
        frug_comm_destroy(comms[r]);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return failed || sqrt(error / start) > 0.1;
}

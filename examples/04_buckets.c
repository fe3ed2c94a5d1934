/*
 * 04_buckets.c - exchange buckets in the background while the backward pass continues.
 *
 * The backward pass computes gradients from the last layer to the first. Each finished bucket is submitted at once;
 * compression, exchange and the update of its weights overlap with the rest of the pass.
 *
 *   cc 04_buckets.c $(pkg-config --cflags --libs frugrad) -pthread -o 04_buckets && ./04_buckets
 */
#include <frugrad.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 2, BUCKETS = 8, LENGTH = 1 << 14, N = BUCKETS * LENGTH, STEPS = 50 };

static float weights[WORKERS][N], grads[WORKERS][N];
static frug_comm *comms[WORKERS];
static frug_config *config;
static frug_layout *layout;
static int failures[WORKERS];

/* Stands for the backward pass of one layer: the gradient of (w - 1)^2 / 2, different on each rank. */
static void backward(int rank, int bucket) {
    for (int i = bucket * LENGTH; i < (bucket + 1) * LENGTH; i++)
        grads[rank][i] = weights[rank][i] - 1.0f + (rank == 0 ? 0.1f : -0.1f);
}

static int train(int rank) {
    frug_reducer *reducer = NULL;
    int failed = frug_reducer_create(config, layout, NULL, comms[rank], &reducer) != FRUG_OK;
    for (uint64_t step = 0; step < STEPS && !failed; step++) {
        for (int b = BUCKETS - 1; b >= 0 && !failed; b--) {
            backward(rank, b);
            frug_bucket bucket = FRUG_BUCKET_INIT;
            bucket.step = step;
            bucket.range = (frug_range){(uint64_t)b * LENGTH, LENGTH};
            bucket.grad = grads[rank] + b * LENGTH;
            bucket.weights = weights[rank] + b * LENGTH;
            bucket.rate = 0.1 / WORKERS;
            failed = frug_reducer_submit(reducer, &bucket) != FRUG_OK;
        }
        failed = failed || frug_reducer_finish(reducer);
    }
    frug_reduce_stats stats = {.struct_size = sizeof stats};
    failed = failed || frug_reducer_stats(reducer, &stats);
    if (failed)
        fprintf(stderr, "04_buckets: rank %d: %s\n", rank, frug_last_error());
    else if (rank == 0)
        printf("%llu buckets; the backward pass was blocked for %.1f %% of the exchange\n",
               (unsigned long long)stats.calls, 100 * stats.seconds_blocked / stats.seconds_total);
    frug_reducer_destroy(reducer);
    return failed;
}

static void *worker(void *comm) {
    int rank = frug_comm_rank(comm);
    failures[rank] = train(rank);
    return NULL;
}

int main(void) {
    pthread_t threads[WORKERS];
    if (frug_config_create("frugrad", &config) || frug_layout_flat(N, &layout) || frug_comm_threads(WORKERS, comms)) {
        fprintf(stderr, "04_buckets: %s\n", frug_last_error());
        return 1;
    }
    for (int r = 0; r < WORKERS; r++)
        if (pthread_create(&threads[r], NULL, worker, comms[r]))
            abort();
    for (int r = 0; r < WORKERS; r++)
        pthread_join(threads[r], NULL);
    int failed = failures[0] || failures[1] || memcmp(weights[0], weights[1], sizeof weights[0]) != 0;
    for (int r = 0; r < WORKERS; r++)
        frug_comm_destroy(comms[r]);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return failed;
}

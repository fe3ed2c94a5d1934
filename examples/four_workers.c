/*
 * four_workers.c - data-parallel descent with four workers in one process, sending 6 % of each gradient.
 *
 * Each worker sees its own noisy gradient of f(w) = |w - target|^2 / 2. The "exchange" is an array of
 * pointers here; with MPI it would be one MPI_Allgather of the frames.
 *
 *   cc four_workers.c $(pkg-config --cflags --libs frugrad) -lm -o four_workers && ./four_workers
 */
#include <frugrad.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { P = 4, N = 1 << 16, STEPS = 200 };

static float noise(void) {
    return (float)rand() / (float)RAND_MAX - 0.5f;
}

static int run(frug_compressor **worker, float *w, const float *target, float *grad, unsigned char **frame,
               size_t room) {
    const void *frames[P];
    size_t len[P];
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int r = 0; r < P; r++) {
            for (int i = 0; i < N; i++)
                grad[i] = w[i] - target[i] + 0.1f * noise();
            if (frug_compress(worker[r], step, 0, N, grad, frame[r], room, &len[r]))
                return -1;
            frames[r] = frame[r];
        }
        if (frug_apply(worker[0], frames, len, P, 0.1f / P, 0, 0, N, w))
            return -1;
    }
    return 0;
}

int main(void) {
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_compressor *worker[P] = {NULL};
    unsigned char *frame[P] = {NULL};
    float *w = calloc(N, sizeof *w), *target = calloc(N, sizeof *target), *grad = calloc(N, sizeof *grad);
    size_t room = 0;
    int failed = !w || !target || !grad || frug_config_create("frugrad", &config) || frug_layout_flat(N, &layout);
    for (int r = 0; r < P && !failed; r++) {
        frug_options options = FRUG_OPTIONS_INIT;
        options.source = (uint32_t)r;
        failed = frug_compressor_create(config, layout, &options, &worker[r]) ||
                 frug_compressor_bound(worker[r], 0, N, &room) || !(frame[r] = malloc(room));
    }
    for (int i = 0; i < N && !failed; i++)
        target[i] = noise();
    failed = failed || run(worker, w, target, grad, frame, room);
    if (failed) {
        fprintf(stderr, "four_workers: %s\n", frug_last_error());
    } else {
        double error = 0, start = 0;
        for (int i = 0; i < N; i++) {
            error += (double)(w[i] - target[i]) * (double)(w[i] - target[i]);
            start += (double)target[i] * (double)target[i];
        }
        frug_stats stats = {.struct_size = sizeof stats};
        frug_compressor_stats(worker[0], &stats);
        printf("sent %.1f %% of the dense bytes; distance to the target fell to %.1f %%\n",
               100 * (double)stats.bytes_sent / (double)stats.bytes_dense, 100 * sqrt(error / start));
        failed = sqrt(error / start) > 0.1;
    }
    for (int r = 0; r < P; r++) {
        frug_compressor_destroy(worker[r]);
        free(frame[r]);
    }
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    free(w);
    free(target);
    free(grad);
    return failed;
}

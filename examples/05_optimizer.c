/*
 * 05_optimizer.c - an optimizer of the library on the sum, with its state saved and restored.
 *
 * adam-merged needs no first moment: the residual of the compressor holds it. "frugrad" becomes frugrad-adam, the
 * preset for this optimizer.
 *
 *   cc 05_optimizer.c $(pkg-config --cflags --libs frugrad) -lm -o 05_optimizer && ./05_optimizer
 */
#include <frugrad.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 16, STEPS = 300 };

static float weights[N], grad[N], target[N];

static int steps(frug_reducer *reducer, frug_optimizer *optimizer, uint64_t from, uint64_t to) {
    frug_range all = {0, N};
    int failed = 0;
    for (uint64_t step = from; step < to && !failed; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = weights[i] - target[i];
        failed = frug_reducer_sum(reducer, step, all, grad, 1.0) ||
                 frug_optimizer_step(optimizer, step, all, grad, 0.01, weights);
    }
    return failed;
}

int main(void) {
    const char *text = "adam-merged";
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_comm *comm = NULL;
    frug_reducer *reducer = NULL;
    frug_optimizer *optimizer = NULL, *restored = NULL;
    size_t len = 0;
    for (int i = 0; i < N; i++)
        target[i] = (float)rand() / (float)RAND_MAX - 0.5f;

    int failed = frug_config_create_for("frugrad", text, &config) || frug_layout_flat(N, &layout) ||
                 frug_comm_self(&comm) || frug_reducer_create(config, layout, NULL, comm, &reducer) ||
                 frug_optimizer_create(text, layout, frug_reducer_compressor(reducer), &optimizer) ||
                 steps(reducer, optimizer, 0, STEPS / 2);
    size_t room = failed ? 0 : frug_optimizer_state_size(optimizer);
    void *state = malloc(room);
    failed = failed || !state || frug_optimizer_save(optimizer, state, room, &len) ||
             frug_optimizer_create(text, layout, frug_reducer_compressor(reducer), &restored) ||
             frug_optimizer_restore(restored, state, len) || steps(reducer, restored, STEPS / 2, STEPS);
    if (failed) {
        fprintf(stderr, "05_optimizer: %s\n", frug_last_error());
    } else {
        double error = 0, start = 0;
        for (int i = 0; i < N; i++) {
            error += pow((double)weights[i] - (double)target[i], 2);
            start += pow((double)target[i], 2);
        }
        printf("config option feedback is %s; distance to the target fell to %.1f %%\n",
               frug_config_get(config, "feedback"), 100 * sqrt(error / start));
        failed = sqrt(error / start) > 0.3;
    }
    free(state);
    frug_optimizer_destroy(restored);
    frug_optimizer_destroy(optimizer);
    frug_reducer_destroy(reducer);
    frug_comm_destroy(comm);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return failed;
}

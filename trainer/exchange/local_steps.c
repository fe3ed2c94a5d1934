/* local_steps.c - exchange of the differences after local steps: two passes over the weights, and one exchange. */
#include "trainer/exchange/local_steps.h"

#include "io/error.h"
#include "trainer/base/counted_alloc.h"

#include <stdlib.h>
#include <string.h>

struct fgt_local {
    frug_reducer *reducer;
    fgt_local_options options;
    double scale; /* from the sum over all workers to the mean */
    uint64_t count;
    float *weights, *shared, *difference;
    float *momentum; /* NULL: none */
};

fgt_local_options fgt_local_options_of(const frug_config *config) {
    return (fgt_local_options){.every = strtoull(frug_config_get(config, "local"), NULL, 10),
                               .outer = strtod(frug_config_get(config, "outer"), NULL),
                               .momentum = strtod(frug_config_get(config, "outer_momentum"), NULL)};
}

uint64_t fgt_local_rounds(uint64_t every, uint64_t steps) {
    return steps / every + (steps % every != 0);
}

int fgt_local_create(frug_reducer *reducer, const fgt_local_options *options, int workers, float *weights,
                     uint64_t count, fgt_local **local) {
    fgt_local *l = calloc(1, sizeof *l);
    if (!l)
        return fgio_error("not enough memory");
    *l = (fgt_local){.reducer = reducer,
                     .options = *options,
                     .scale = 1.0 / workers,
                     .count = count,
                     .weights = weights,
                     .shared = fgt_counted_alloc(FGT_USE_WEIGHTS, count * sizeof *weights),
                     .difference = fgt_counted_alloc(FGT_USE_GRADIENTS, count * sizeof *weights)};
    if (options->momentum > 0)
        l->momentum = fgt_counted_alloc(FGT_USE_WEIGHTS, count * sizeof *weights);
    if (!l->shared || !l->difference || (options->momentum > 0 && !l->momentum)) {
        fgt_local_destroy(l);
        return fgio_error("not enough memory for the weights that workers share");
    }
    fgt_local_restart(l);
    *local = l;
    return FGIO_EXIT_OK;
}

void fgt_local_destroy(fgt_local *l) {
    if (!l)
        return;
    fgt_counted_free(l->shared);
    fgt_counted_free(l->difference);
    fgt_counted_free(l->momentum);
    free(l);
}

float *fgt_local_momentum(const fgt_local *l) {
    return l ? l->momentum : NULL;
}

void fgt_local_restart(fgt_local *l) {
    memcpy(l->shared, l->weights, l->count * sizeof *l->shared);
}

bool fgt_local_is_due(const fgt_local *l, uint64_t step, uint64_t steps) {
    return step % l->options.every == 0 || step == steps;
}

uint64_t fgt_local_since(const fgt_local *l, uint64_t step) {
    return step % l->options.every ? step % l->options.every : l->options.every;
}

/* SGD with Nesterov momentum, on the mean difference. */
static void outer_step(fgt_local *l) {
    const float rate = (float)l->options.outer, mu = (float)l->options.momentum;
    for (uint64_t i = 0; i < l->count; i++) {
        float step = l->difference[i];
        if (l->momentum) {
            l->momentum[i] = mu * l->momentum[i] + l->difference[i];
            step += mu * l->momentum[i];
        }
        l->shared[i] -= rate * step;
    }
}

frug_status fgt_local_exchange(fgt_local *l, uint64_t step) {
    for (uint64_t i = 0; i < l->count; i++)
        l->difference[i] = l->shared[i] - l->weights[i];
    frug_status status = frug_reducer_sum(l->reducer, (step - 1) / l->options.every, (frug_range){0, l->count},
                                          l->difference, l->scale);
    if (status != FRUG_OK)
        return status;
    outer_step(l);
    memcpy(l->weights, l->shared, l->count * sizeof *l->shared);
    return FRUG_OK;
}

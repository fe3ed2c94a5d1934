/* local_steps.c - exchange of the differences after local steps: two passes over the weights, and one exchange. */
#include "trainer/exchange/local_steps.h"

#include "io/error.h"
#include "trainer/base/counted_alloc.h"

#include <stdlib.h>
#include <string.h>

struct fgt_local {
    frug_reducer *reducer;
    uint64_t every;
    double rate; /* of the sum over all workers */
    uint64_t count;
    float *weights, *shared, *difference;
};

uint64_t fgt_local_options(const frug_config *config, double *outer) {
    *outer = strtod(frug_config_get(config, "outer"), NULL);
    return strtoull(frug_config_get(config, "local"), NULL, 10);
}

uint64_t fgt_local_rounds(uint64_t every, uint64_t steps) {
    return steps / every + (steps % every != 0);
}

int fgt_local_create(frug_reducer *reducer, uint64_t every, double outer, int workers, float *weights, uint64_t count,
                     fgt_local **local) {
    fgt_local *l = calloc(1, sizeof *l);
    if (!l)
        return fgio_error("not enough memory");
    *l = (fgt_local){.reducer = reducer,
                     .every = every,
                     .rate = outer / workers,
                     .count = count,
                     .weights = weights,
                     .shared = fgt_counted_alloc(FGT_USE_WEIGHTS, count * sizeof *weights),
                     .difference = fgt_counted_alloc(FGT_USE_GRADIENTS, count * sizeof *weights)};
    if (!l->shared || !l->difference) {
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
    free(l);
}

void fgt_local_restart(fgt_local *l) {
    memcpy(l->shared, l->weights, l->count * sizeof *l->shared);
}

bool fgt_local_is_due(const fgt_local *l, uint64_t step, uint64_t steps) {
    return step % l->every == 0 || step == steps;
}

uint64_t fgt_local_since(const fgt_local *l, uint64_t step) {
    return step % l->every ? step % l->every : l->every;
}

frug_status fgt_local_exchange(fgt_local *l, uint64_t step) {
    for (uint64_t i = 0; i < l->count; i++)
        l->difference[i] = l->shared[i] - l->weights[i];
    frug_status status = frug_reducer_apply(l->reducer, (step - 1) / l->every, (frug_range){0, l->count}, l->difference,
                                            l->rate, 0, l->shared);
    if (status == FRUG_OK)
        memcpy(l->weights, l->shared, l->count * sizeof *l->shared);
    return status;
}

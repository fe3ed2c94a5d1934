/*
 * layer_density.c - density of each tensor as the compressor plans it: schedule, roles, rounding to whole units. Where
 * tensors compete for one budget, or the data decides, it is the compressor's target density.
 */
#include "trainer/run/layer_density.h"

#include "io/error.h"

#include <stdlib.h>

enum { REPORTS = 16 };

bool fgt_layer_density_due(uint64_t step, uint64_t steps) {
    uint64_t every = steps / REPORTS ? steps / REPORTS : 1;
    return step == 1 || step == steps || step % every == 0;
}

static double density_of(const frug_compressor *c, uint64_t step, size_t i) {
    frug_tensor_plan plan = {.struct_size = sizeof plan};
    if (frug_compressor_plan(c, step, i, &plan) != FRUG_OK)
        return 0;
    if (plan.dense)
        return 1;
    return plan.segments > 0 && plan.selected > 0 ? (double)plan.selected / (double)plan.units : plan.density;
}

void fgt_layer_density_report(const fgt_worker *w) {
    const fgt_job_callbacks *callbacks = w->run->callbacks;
    const frug_compressor *compressor = w->reducer  ? frug_reducer_compressor(w->reducer)
                                        : w->gossip ? frug_gossip_compressor(w->gossip)
                                                    : NULL;
    if (callbacks == NULL || callbacks->layers == NULL || compressor == NULL ||
        !fgt_layer_density_due(w->step, w->steps))
        return;
    uint64_t every = fgt_local_options_of(w->run->config).every;
    uint64_t step = every ? (w->step - 1) / every : w->step - 1;
    const frug_layout *layout = w->joined ? w->joined : w->layout;
    size_t count = frug_layout_count(layout);
    double *share = malloc((count ? count : 1) * sizeof *share);
    const char **name = malloc((count ? count : 1) * sizeof *name);
    for (size_t i = 0; share != NULL && name != NULL && i < count; i++) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_layout_get(layout, i, &tensor);
        name[i] = tensor.name != NULL ? tensor.name : "";
        share[i] = density_of(compressor, step, i);
    }
    if (share != NULL && name != NULL)
        callbacks->layers(callbacks->ctx, w->step, name, share, count);
    free(share);
    free(name);
}

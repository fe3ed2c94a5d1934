/* calibrate.c - cutoffs of the inputs of linear layers, from the first batches of the training split. Every worker
 * computes all of them: they must be equal. */
#include "trainer/run/worker.h"

#include "io/error.h"
#include "trainer/nn/input_cutoff.h"

enum { BATCHES = 8 };

int fgt_worker_calibrate(fgt_worker *w) {
    const fgt_data_info *info = fgt_data_get_info(w->run->data);
    const uint64_t count = info->count[FGT_TRAIN];
    const uint32_t n = w->run->batch;
    int status = FGIO_EXIT_OK;
    if (count == 0)
        return fgio_error("%s: --activations needs a training split", info->name);
    if (!fgt_cutoffs_measure(w->graph))
        return fgio_error("not enough memory for the counts of inputs");
    for (uint64_t i = 0; i < BATCHES && i * n < count && status == FGIO_EXIT_OK; i++) {
        uint32_t samples = count - i * n < n ? (uint32_t)(count - i * n) : n;
        status = fgt_data_batch(w->run->data, FGT_TRAIN, 0, i * n, samples, &w->batch);
        for (uint32_t at = 0; at < samples && status == FGIO_EXIT_OK; at += w->graph->batch_max) {
            uint32_t some = samples - at < w->graph->batch_max ? samples - at : w->graph->batch_max;
            fgt_batch part = fgt_batch_part(info, &w->batch, at, some);
            fgt_graph_forward(w->graph, &part, false);
        }
    }
    fgt_cutoffs_set(w->graph, w->run->job->activations);
    return status;
}

/* data_subset.c - shares of the training samples. */
#include "trainer/data/data_subset.h"

#include "io/error.h"
#include "trainer/data/data_source.h"
#include "trainer/data/epoch_order.h"

#include <stdatomic.h>
#include <stdlib.h>

void fgt_subset_free(fgt_subset *subset) {
    free(subset->index);
    *subset = (fgt_subset){0};
}

int fgt_subset_share(const fgt_data *data, uint64_t part, uint64_t parts, fgt_subset *subset) {
    uint64_t all = data->info.count[FGT_TRAIN], count = all / parts + (part < all % parts);
    if (count == 0)
        return fgio_error("%llu training samples are too few for %llu shares", (unsigned long long)all,
                          (unsigned long long)parts);
    subset->index = malloc(count * sizeof *subset->index);
    if (!subset->index)
        return fgio_error("not enough memory for the share of a client");
    subset->count = count;
    for (uint64_t i = 0; i < count; i++)
        subset->index[i] = part + i * parts;
    return FGIO_EXIT_OK;
}

int fgt_subset_batch(const fgt_data *data, const fgt_subset *subset, uint64_t epoch, uint64_t first, uint32_t n,
                     fgt_batch *batch) {
    atomic_store(&batch->failed, 0);
    batch->n = n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = fgt_epoch_order(data->seed, epoch, subset->count, (first + i) % subset->count);
        fgt_sample_id id = {.split = FGT_TRAIN, .epoch = epoch, .index = subset->index[at]};
        data->source->sample(data, id, batch, i);
    }
    return atomic_load(&batch->failed) ? FGIO_EXIT_FAIL : FGIO_EXIT_OK;
}

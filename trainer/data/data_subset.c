/* data_subset.c - shares of the training samples. */
#include "trainer/data/data_subset.h"

#include "io/error.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/data_source.h"
#include "trainer/data/epoch_order.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
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

/* ---- shares by class ---- */

/** Draws of one generator, one after the other. */
typedef struct draws {
    uint64_t seed, count;
} draws;

/* Uniform in (0, 1). */
static double draw_uniform(draws *d) {
    return ((double)(fgt_random(d->seed, FGT_STREAM_SHARE, d->count++) >> 11) + 0.5) * 0x1p-53;
}

static double draw_normal(draws *d) {
    double radius = sqrt(-2 * log(draw_uniform(d)));
    return radius * cos(2 * 3.14159265358979323846 * draw_uniform(d));
}

/* A gamma variate by Marsaglia and Tsang (2000); below 1 by that of alpha + 1 times U^(1 / alpha). */
static double draw_gamma(draws *d, double alpha) {
    double boost = alpha < 1 ? pow(draw_uniform(d), 1 / alpha) : 1;
    double a = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * a);
    for (;;) {
        double x = draw_normal(d), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(draw_uniform(d)) < 0.5 * x * x + a - a * v + a * log(v))
            return boost * a * v;
    }
}

/* For every class, the ends of the parts as shares of its samples: classes x parts, ascending to 1. */
static void draw_shares(double alpha, uint64_t seed, uint64_t classes, uint64_t parts, double *ends) {
    draws d = {seed, 0};
    for (uint64_t c = 0; c < classes; c++) {
        double sum = 0, *end = ends + c * parts;
        for (uint64_t i = 0; i < parts; i++)
            end[i] = sum += draw_gamma(&d, alpha) + 1e-300;
        for (uint64_t i = 0; i < parts; i++)
            end[i] /= sum;
    }
}

/* The class of every training sample. */
static int read_classes(const fgt_data *data, uint32_t *class_of, uint64_t *count_of) {
    fgt_batch one = {0};
    int status = fgt_batch_create(&data->info, 1, &one);
    for (uint64_t i = 0; i < data->info.count[FGT_TRAIN] && status == FGIO_EXIT_OK; i++) {
        one.n = 1;
        data->source->sample(data, (fgt_sample_id){.split = FGT_TRAIN, .index = i, .is_validation = 1}, &one, 0);
        status = atomic_load(&one.failed) ? FGIO_EXIT_FAIL : FGIO_EXIT_OK;
        class_of[i] = (uint32_t)one.targets[0];
        if (status == FGIO_EXIT_OK)
            count_of[class_of[i]]++;
    }
    fgt_batch_destroy(&one);
    return status;
}

/* Sample k of n of a class is in the part whose range of shares has (k + 1/2) / n. */
static uint64_t part_of(const double *ends, uint64_t parts, uint64_t k, uint64_t n) {
    double at = ((double)k + 0.5) / (double)n;
    uint64_t i = 0;
    while (i + 1 < parts && ends[i] <= at)
        i++;
    return i;
}

static int select_part(const fgt_data *data, const uint32_t *class_of, const uint64_t *count_of, uint64_t *seen,
                       const double *ends, uint64_t part, uint64_t parts, fgt_subset *subset) {
    uint64_t all = data->info.count[FGT_TRAIN];
    subset->index = malloc(all * sizeof *subset->index);
    if (!subset->index)
        return fgio_error("not enough memory for the share of a client");
    for (uint64_t i = 0; i < all; i++) {
        uint32_t c = class_of[i];
        if (part_of(ends + c * parts, parts, seen[c]++, count_of[c]) == part)
            subset->index[subset->count++] = i;
    }
    return subset->count ? FGIO_EXIT_OK
                         : fgio_error("share %llu of %llu has no samples; use fewer shares or a larger alpha",
                                      (unsigned long long)part + 1, (unsigned long long)parts);
}

int fgt_subset_dirichlet(const fgt_data *data, double alpha, uint64_t seed, uint64_t part, uint64_t parts,
                         fgt_subset *subset) {
    bool classes =
        (data->info.task == FGT_TASK_IMAGES || data->info.task == FGT_TASK_SENTENCES) && data->info.classes > 1;
    if (!classes)
        return fgio_error("%s: its samples have no class by which they could be divided", data->info.name);
    uint64_t count = data->info.classes;
    uint32_t *class_of = malloc(data->info.count[FGT_TRAIN] * sizeof *class_of);
    uint64_t *count_of = calloc(2 * count, sizeof *count_of);
    double *ends = calloc(count * parts, sizeof *ends);
    int status = class_of && count_of && ends ? read_classes(data, class_of, count_of)
                                              : fgio_error("not enough memory for the share of a client");
    if (status == FGIO_EXIT_OK) {
        draw_shares(alpha, seed, count, parts, ends);
        status = select_part(data, class_of, count_of, count_of + count, ends, part, parts, subset);
    }
    free(class_of);
    free(count_of);
    free(ends);
    return status;
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

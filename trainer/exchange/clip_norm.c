/*
 * clip_norm.c - a running mean of gradient norms, with bias correction. Each update moves the mean by a share of its
 * distance to the new norm; the share begins at 1 and falls to 1 - smooth, so the mean is unbiased from the second step
 * on, and constant norms leave it unchanged.
 */
#include "trainer/exchange/clip_norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

fgt_clip fgt_clip_init(double limit, double smooth) {
    return (fgt_clip){.limit = limit, .smooth = smooth};
}

double fgt_clip_factor(const fgt_clip *clip) {
    return clip->limit > 0 && clip->norm > clip->limit ? clip->limit / clip->norm : 1.0;
}

void fgt_clip_update(fgt_clip *clip, double norm) {
    if (!isfinite(norm) || norm < 0)
        return;
    clip->weight = clip->smooth * clip->weight + (1 - clip->smooth);
    clip->norm += (norm - clip->norm) * ((1 - clip->smooth) / clip->weight);
}

void fgt_clip_save(const fgt_clip *clip, double state[2]) {
    state[0] = clip->norm;
    state[1] = clip->weight;
}

int fgt_clip_restore(fgt_clip *clip, const double state[2]) {
    int valid = isfinite(state[0]) && state[0] >= 0 && state[1] >= 0 && state[1] <= 1;
    if (!valid || (state[1] == 0 && state[0] != 0))
        return 0;
    clip->norm = state[0];
    clip->weight = state[1];
    return 1;
}

int fgt_norm_limits_create(size_t count, fgt_norm_limits *limits) {
    *limits = (fgt_norm_limits){.count = count, .mean = calloc(count ? count : 1, sizeof *limits->mean)};
    return limits->mean != NULL;
}

void fgt_norm_limits_destroy(fgt_norm_limits *limits) {
    free(limits->mean);
    *limits = (fgt_norm_limits){0};
}

double fgt_norm_limits_factor(const fgt_norm_limits *limits, size_t i, double norm) {
    double limit = FGT_LIMIT_RATIO * limits->mean[i];
    return limit > 0 && isfinite(norm) && norm > limit ? limit / norm : 1.0;
}

void fgt_norm_limits_update(fgt_norm_limits *limits, const double *norm) {
    limits->weight = FGT_LIMIT_SMOOTH * limits->weight + (1 - FGT_LIMIT_SMOOTH);
    for (size_t i = 0; i < limits->count; i++)
        if (isfinite(norm[i]) && norm[i] >= 0)
            limits->mean[i] += (norm[i] - limits->mean[i]) * ((1 - FGT_LIMIT_SMOOTH) / limits->weight);
}

int fgt_norm_limits_restore(fgt_norm_limits *limits, double weight, const double *mean) {
    int valid = weight >= 0 && weight <= 1;
    for (size_t i = 0; i < limits->count; i++)
        valid = valid && isfinite(mean[i]) && mean[i] >= 0;
    if (!valid)
        return 0;
    limits->weight = weight;
    memcpy(limits->mean, mean, limits->count * sizeof *mean);
    return 1;
}

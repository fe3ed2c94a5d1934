/*
 * clip_norm.h - clipping by the norm of a gradient that never exists as a whole.
 *
 * Layers submit their gradients as they are computed, so the norm of a step is known only when most of them have been
 * sent. So the factor of a step comes from the steps before: min(1, limit / mean norm). With constant norms this is the
 * usual clipping; a sudden rise is not clipped at once but in the steps after.
 */
#ifndef FGT_CLIP_NORM_H
#define FGT_CLIP_NORM_H

#include <stddef.h>

typedef struct fgt_clip {
    double limit;  /* 0: never clip */
    double smooth; /* weight of the earlier norms in an update, 0 to below 1 */
    /* State: */
    double norm;   /* weighted mean of the norms so far */
    double weight; /* 1 - smooth^updates */
} fgt_clip;

#define FGT_CLIP_SMOOTH 0.9 /* about ten steps */

/** A clip without any norm yet. */
fgt_clip fgt_clip_init(double limit, double smooth);

/** The factor for the gradients of this step. Before the first update it is 1: for an exact first step compute the norm
 * in an extra backward pass, update, and run the step again. */
double fgt_clip_factor(const fgt_clip *clip);

/** Adds the norm of a step's gradients, not scaled, the same on all workers. A norm that is not finite is ignored. */
void fgt_clip_update(fgt_clip *clip, double norm);

/** The state as two numbers, and back. The numbers are not trusted: returns 1, or 0 and changes nothing. */
void fgt_clip_save(const fgt_clip *clip, double state[2]);
int fgt_clip_restore(fgt_clip *clip, const double state[2]);

/** Limits from the running norms (--clip auto): a range of the gradient (a bucket, or all of it) is scaled down to
 * FGT_LIMIT_RATIO times the running mean of its own earlier norms. The mean is over norms after limiting, so that a
 * run whose norms explode raises its limit by at most some percent per step. */
typedef struct fgt_norm_limits {
    size_t count;  /* ranges */
    double weight; /* 1 - smooth^updates; 0: no norm yet, nothing is limited */
    double *mean;  /* of each range */
} fgt_norm_limits;

#define FGT_LIMIT_RATIO  2.0
#define FGT_LIMIT_SMOOTH 0.98 /* about fifty steps */

/** Returns 1, or 0 without memory. */
int fgt_norm_limits_create(size_t count, fgt_norm_limits *limits);
void fgt_norm_limits_destroy(fgt_norm_limits *limits);

/** The factor for range i with the given norm; 1: within its limit. */
double fgt_norm_limits_factor(const fgt_norm_limits *limits, size_t i, double norm);

/** Adds the norms of all ranges after limiting, the same on all workers. A norm that is not finite changes nothing. */
void fgt_norm_limits_update(fgt_norm_limits *limits, const double *norm);

/** Restores the state: `count` means and a weight, not trusted. Returns 1, or 0 and changes nothing. */
int fgt_norm_limits_restore(fgt_norm_limits *limits, double weight, const double *mean);

#endif

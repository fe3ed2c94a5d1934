/*
 * clip_norm.h - clipping by the norm of gradients that are never there as a whole.
 *
 * Layers hand their gradients over as they are computed, so the norm of a step is known only when most of them have
 * left. What a step is scaled by comes from the steps before: min(1, limit / mean norm). With norms that stay the same
 * this is clipping as usual; a sudden rise is let through once and felt in the steps after.
 */
#ifndef FGT_CLIP_NORM_H
#define FGT_CLIP_NORM_H

#include <stddef.h>

typedef struct fgt_clip {
    double limit;  /* 0: never clip */
    double smooth; /* weight of what is known when a norm is told, 0 to below 1 */
    /* State: */
    double norm;   /* weighted mean of the norms told */
    double weight; /* 1 - smooth^(norms told) */
} fgt_clip;

#define FGT_CLIP_SMOOTH 0.9 /* about ten steps */

/** A clip that has been told nothing yet. */
fgt_clip fgt_clip_init(double limit, double smooth);

/**
 * What to multiply the gradients of this step by. Before anything was told it is 1: whoever wants the first step exact
 * goes through it once to learn its norm, tells it, and goes through it again.
 */
double fgt_clip_factor(const fgt_clip *clip);

/** Tell the norm of a step's gradients, not scaled, the same on all workers. One that is not finite is not heard. */
void fgt_clip_update(fgt_clip *clip, double norm);

/** The state as two numbers, and back. The numbers are untrusted: returns 1, or 0 and changes nothing. */
void fgt_clip_save(const fgt_clip *clip, double state[2]);
int fgt_clip_restore(fgt_clip *clip, const double state[2]);

/**
 * Limits that follow the norms themselves, for those who name none: a part of the gradient (a bucket, or all of it) is
 * scaled down to FGT_LIMIT_RATIO times the running mean of its own earlier norms. The mean is over norms after
 * limiting, so that a run whose norms explode raises its limit by at most some percent a step.
 */
typedef struct fgt_norm_limits {
    size_t count;  /* parts */
    double weight; /* 1 - smooth^(steps told); 0: nothing is known, and nothing is limited */
    double *mean;  /* of each part */
} fgt_norm_limits;

#define FGT_LIMIT_RATIO  2.0
#define FGT_LIMIT_SMOOTH 0.98 /* about fifty steps */

/** Returns 1, or 0 without memory. */
int fgt_norm_limits_create(size_t count, fgt_norm_limits *limits);
void fgt_norm_limits_destroy(fgt_norm_limits *limits);

/** What to multiply part i by whose norm is given; 1: it is within its limit. */
double fgt_norm_limits_factor(const fgt_norm_limits *limits, size_t i, double norm);

/** Tell the norms of all parts after limiting, the same on all workers. One that is not finite changes nothing. */
void fgt_norm_limits_update(fgt_norm_limits *limits, const double *norm);

/** State from outside: `count` means and a weight. Returns 1, or 0 and changes nothing. */
int fgt_norm_limits_restore(fgt_norm_limits *limits, double weight, const double *mean);

#endif

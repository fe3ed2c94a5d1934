/*
 * clip_norm.h - clipping by the norm of gradients that are never there as a whole.
 *
 * Layers hand their gradients over as they are computed, so the norm of a step is known only when most of them have
 * left. What a step is scaled by comes from the steps before: min(1, limit / mean norm). With norms that stay the same
 * this is clipping as usual; a sudden rise is let through once and felt in the steps after.
 */
#ifndef FRUGI_CLIP_NORM_H
#define FRUGI_CLIP_NORM_H

#include <stddef.h>

typedef struct frugi_clip {
    double limit;  /* 0: never clip */
    double smooth; /* weight of what is known when a norm is told, 0 to below 1 */
    /* State: */
    double norm;   /* weighted mean of the norms told */
    double weight; /* 1 - smooth^(norms told) */
} frugi_clip;

#define FRUGI_CLIP_SMOOTH 0.9 /* about ten steps */

/** A clip that has been told nothing yet. */
frugi_clip frugi_clip_make(double limit, double smooth);

/**
 * What to multiply the gradients of this step by. Before anything was told it is 1: whoever wants the first step exact
 * goes through it once to learn its norm, tells it, and goes through it again.
 */
double frugi_clip_factor(const frugi_clip *clip);

/** Tell the norm of a step's gradients, not scaled, the same on all workers. One that is not finite is not heard. */
void frugi_clip_tell(frugi_clip *clip, double norm);

/** The state as two numbers, and back. The numbers are untrusted: returns 1, or 0 and changes nothing. */
void frugi_clip_save(const frugi_clip *clip, double state[2]);
int frugi_clip_restore(frugi_clip *clip, const double state[2]);

/**
 * Limits that follow the norms themselves, for those who name none: a part of the gradient (a bucket, or all of it) is
 * scaled down to FRUGI_LIMIT_RATIO times the running mean of its own earlier norms. The mean is over norms after
 * limiting, so that a run whose norms explode raises its limit by at most some percent a step.
 */
typedef struct frugi_limits {
    size_t count;  /* parts */
    double weight; /* 1 - smooth^(steps told); 0: nothing is known, and nothing is limited */
    double *mean;  /* of each part */
} frugi_limits;

#define FRUGI_LIMIT_RATIO  2.0
#define FRUGI_LIMIT_SMOOTH 0.98 /* about fifty steps */

/** Returns 1, or 0 without memory. */
int frugi_limits_create(size_t count, frugi_limits *limits);
void frugi_limits_destroy(frugi_limits *limits);

/** What to multiply part i by whose norm is given; 1: it is within its limit. */
double frugi_limits_factor(const frugi_limits *limits, size_t i, double norm);

/** Tell the norms of all parts after limiting, the same on all workers. One that is not finite changes nothing. */
void frugi_limits_tell(frugi_limits *limits, const double *norm);

/** State from outside: `count` means and a weight. Returns 1, or 0 and changes nothing. */
int frugi_limits_restore(frugi_limits *limits, double weight, const double *mean);

#endif

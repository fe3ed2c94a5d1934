/*
 * clip.h - clipping by the norm of gradients that are never there as a whole.
 *
 * Layers hand their gradients over as they are computed, so the norm of a step is known only when most of them have
 * left. What a step is scaled by comes from the steps before: min(1, limit / mean norm). With norms that stay the same
 * this is clipping as usual; a sudden rise is let through once and felt in the steps after.
 */
#ifndef FRUGI_CLIP_H
#define FRUGI_CLIP_H

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

#endif

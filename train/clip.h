/*
 * clip.h - clipping by the norm of earlier steps, because a gradient that leaves bucket by bucket has no norm yet
 * when its first bucket leaves.
 */
#ifndef FRUGI_CLIP_H
#define FRUGI_CLIP_H

#include <stdbool.h>

typedef struct frugi_clip {
    double limit; /* 0: none */
    double norm;  /* of earlier steps, smoothed */
    double told;  /* how many have been told */
} frugi_clip;

/** Whether a norm is known. */
bool frugi_clip_ready(const frugi_clip *clip);

/** What to multiply the gradient of this step by: at most 1. */
double frugi_clip_factor(const frugi_clip *clip);

/** The norm that a step had before clipping; one that is not finite is passed over. */
void frugi_clip_tell(frugi_clip *clip, double norm);

/** All that a later run needs. */
void frugi_clip_save(const frugi_clip *clip, double state[2]);
void frugi_clip_restore(frugi_clip *clip, const double state[2]);

#endif

/* demo.h - what the two parts of `frugrad demo` share. */
#ifndef FRUGI_DEMO_H
#define FRUGI_DEMO_H

#include "bench.h"
#include "bench_check.h"

typedef struct frugi_demo {
    uint64_t n;
    uint64_t steps;
    const char *config;
    float *grad;     /* n: of the step at hand */
    float *restored; /* n: the sum of all that arrived */
    int colour;
    int broken; /* whether some promise was */
} frugi_demo;

/** The gradient of a step, in demo->grad. */
const float *frugi_demo_gradient(frugi_demo *demo, uint64_t step);

/** Print a promise with a tick, or with why it does not hold. */
void frugi_demo_tell(frugi_demo *demo, const char *why, const char *promise);

/** Try the promises that the steps alone do not show (demo_trials.c). Returns an exit status when a trial could not
 * run; a broken promise is told. */
int frugi_demo_damage(frugi_demo *demo);
int frugi_demo_restart(frugi_demo *demo);
int frugi_demo_same_bytes(frugi_demo *demo);

#endif

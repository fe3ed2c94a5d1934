/* clock.h - monotonic clock for statistics. */
#ifndef FRUGI_CLOCK_H
#define FRUGI_CLOCK_H

#include <time.h>

/** Seconds of the monotonic clock. */
static inline double frugi_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif

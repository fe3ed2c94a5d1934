/* clock.h - seconds since some moment, never going back. */
#ifndef FGIO_CLOCK_H
#define FGIO_CLOCK_H

#include <time.h>

static inline double fgio_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif

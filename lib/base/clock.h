/* clock.h - monotonic clock for statistics and timeouts. */
#ifndef FRUGI_CLOCK_H
#define FRUGI_CLOCK_H

#include <time.h>

/** For tests: replaces the monotonic clock. NULL, the default: it is not replaced. Set it while no other thread runs.
 */
extern double (*frugi_clock_source)(void);

/** Seconds of the monotonic clock. */
static inline double frugi_clock(void) {
    struct timespec t;
    if (frugi_clock_source)
        return frugi_clock_source();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif

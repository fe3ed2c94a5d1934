/* clock.c - the clock that a test may put in place of the monotonic one. */
#include "base/clock.h"

double (*frugi_clock_source)(void);

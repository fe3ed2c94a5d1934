/* parallel_ranges.h - equal ranges of work for the threads of a graph. */
#ifndef FGT_PARALLEL_RANGES_H
#define FGT_PARALLEL_RANGES_H

#include <stddef.h>

/** Begin of the range of thread i of `threads` when `count` items are divided; the range of i + 1 begins at its end. */
static inline size_t fgt_range_begin(size_t count, int i, int threads) {
    return count * (size_t)i / (size_t)threads;
}

#endif

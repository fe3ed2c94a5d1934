/* parallel_ranges.h - how operations share their work among the threads of a graph: even ranges, one for each thread.
 */
#ifndef FGT_PARALLEL_RANGES_H
#define FGT_PARALLEL_RANGES_H

#include <stddef.h>

/** Where the range of thread i of `threads` begins when `count` things are shared out; that of i + 1 is its end. */
static inline size_t fgt_range_begin(size_t count, int i, int threads) {
    return count * (size_t)i / (size_t)threads;
}

#endif

/* threads.c - how many threads a call uses. */
#include "compress/threads.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#define ELEMENTS_PER_THREAD 65536u /* with fewer, starting a thread costs more than it saves */
#define MAX_THREADS         1024

int frugi_thread_count(int wanted) {
#ifdef _OPENMP
    int threads = wanted > 0 ? wanted : omp_get_max_threads();
    return threads > MAX_THREADS ? MAX_THREADS : threads;
#else
    (void)wanted;
    return 1;
#endif
}

int frugi_threads_for(int threads, uint64_t elements) {
    uint64_t worth = elements / ELEMENTS_PER_THREAD + 1;
    return worth < (uint64_t)threads ? (int)worth : threads;
}

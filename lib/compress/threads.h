/* threads.h - how many threads a call uses. */
#ifndef FRUGI_THREADS_H
#define FRUGI_THREADS_H

#include <stdint.h>

/** The number of threads for an option `threads`; 0 stands for as many as OpenMP has. */
int frugi_thread_count(int wanted);

/** How many of at most `threads` threads a number of elements is worth. */
int frugi_threads_for(int threads, uint64_t elements);

#endif

/*
 * alloc_faults.h - make the n-th allocation of this thread, or of the process, fail. The program is linked with --wrap
 * for these functions, so every call from our own objects comes here; those inside shared libraries (libc, BLAS) do
 * not. Jansson's do once its allocator is set to the malloc() of a test.
 */
#ifndef FRUG_TEST_ALLOC_FAULTS_H
#define FRUG_TEST_ALLOC_FAULTS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local long faults_left; /* allocations until one fails; 0: none fails */
static _Thread_local bool fault_fired;
static _Thread_local size_t fault_least; /* smaller allocations are not counted */

/** Let the n-th allocation of this thread from now on fail, once. 0 turns it off. */
static inline void fault_arm(long n) {
    faults_left = n;
    fault_fired = false;
    fault_least = 0;
}

/** The same of allocations of at least `bytes`. */
static inline void fault_arm_large(long n, size_t bytes) {
    fault_arm(n);
    fault_least = bytes;
}

static atomic_long process_fault; /* which allocation of the process fails; 0: none, and none is counted */
static atomic_long fault_count;   /* allocations of all threads since fault_arm_process() */

/** Let the n-th allocation of the process from now on fail, once. */
static inline void fault_arm_process(long n) {
    atomic_store(&fault_count, 0);
    atomic_store(&process_fault, n);
}

/** Turn it off. Returns what was armed. */
static inline long fault_disarm_process(void) {
    return atomic_exchange(&process_fault, 0);
}

static inline bool fault_due(size_t bytes) {
    long armed = atomic_load(&process_fault);
    if (armed == 0 || atomic_fetch_add(&fault_count, 1) + 1 != armed) {
        if (faults_left == 0 || bytes < fault_least || --faults_left > 0)
            return false;
        fault_fired = true;
    }
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **p, size_t alignment, size_t bytes);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);

void *__wrap_malloc(size_t bytes) {
    return fault_due(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    return fault_due(n * bytes) ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes) {
    return fault_due(bytes) ? NULL : __real_realloc(p, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fault_due(bytes) ? NULL : __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes) {
    return fault_due(bytes) ? ENOMEM : __real_posix_memalign(p, alignment, bytes);
}

char *__wrap_strdup(const char *s) {
    return fault_due(strlen(s) + 1) ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n) {
    return fault_due(n) ? NULL : __real_strndup(s, n);
}

#endif

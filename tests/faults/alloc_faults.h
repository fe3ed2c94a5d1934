/*
 * alloc_faults.h - make the n-th allocation of this thread fail. The program is linked with --wrap for these functions,
 * so every call from our own objects comes here; those inside shared libraries (libc, BLAS, jansson) do not.
 */
#ifndef FRUG_TEST_ALLOC_FAULTS_H
#define FRUG_TEST_ALLOC_FAULTS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local long faults_left; /* allocations until one fails; 0: none fails */
static _Thread_local bool fault_fired;

/** Let the n-th allocation of this thread from now on fail, once. 0 turns it off. */
static inline void fault_arm(long n) {
    faults_left = n;
    fault_fired = false;
}

static inline bool fault_due(void) {
    if (faults_left == 0 || --faults_left > 0)
        return false;
    fault_fired = true;
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
    return fault_due() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    return fault_due() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes) {
    return fault_due() ? NULL : __real_realloc(p, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fault_due() ? NULL : __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes) {
    return fault_due() ? 12 /* ENOMEM */ : __real_posix_memalign(p, alignment, bytes);
}

char *__wrap_strdup(const char *s) {
    return fault_due() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n) {
    return fault_due() ? NULL : __real_strndup(s, n);
}

#endif

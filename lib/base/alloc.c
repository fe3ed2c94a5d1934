/*
 * alloc.c - the C library's allocator with two counters: bytes held now, and the most so far. A block counts with the
 * size that the allocator gave it, which it can be asked for again when the block goes, so nothing is stored beside it.
 */
#include "base/alloc.h"

#include "frugrad.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__APPLE__)
#include <malloc/malloc.h>
#define SIZE_OF(p) malloc_size(p)
#else
#include <malloc.h>
#define SIZE_OF(p) malloc_usable_size(p)
#endif

static atomic_uint_fast64_t held, most;

static void *count(void *p) {
    if (!p)
        return NULL;
    uint_fast64_t bytes = SIZE_OF(p);
    uint_fast64_t now = atomic_fetch_add_explicit(&held, bytes, memory_order_relaxed) + bytes;
    uint_fast64_t seen = atomic_load_explicit(&most, memory_order_relaxed);
    while (now > seen &&
           !atomic_compare_exchange_weak_explicit(&most, &seen, now, memory_order_relaxed, memory_order_relaxed))
        ;
    return p;
}

static void forget(size_t bytes) {
    atomic_fetch_sub_explicit(&held, bytes, memory_order_relaxed);
}

void *frugi_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - 2 * FRUGI_LINE)
        return NULL;
    size_t rounded = (bytes / FRUGI_LINE + 1) * FRUGI_LINE;
    void *p = count(aligned_alloc(FRUGI_LINE, rounded));
    return p ? memset(p, 0, rounded) : NULL;
}

void *frugi_malloc(size_t bytes) {
    return count(malloc(bytes));
}

void *frugi_calloc(size_t n, size_t bytes) {
    return count(calloc(n, bytes));
}

void *frugi_realloc(void *p, size_t bytes) {
    size_t before = p ? SIZE_OF(p) : 0;
    void *grown = realloc(p, bytes);
    if (grown)
        forget(before);
    return count(grown);
}

char *frugi_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = frugi_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void frugi_free(void *p) {
    if (!p)
        return;
    forget(SIZE_OF(p));
    free(p);
}

void frug_memory(uint64_t *now, uint64_t *peak) {
    if (now)
        *now = atomic_load_explicit(&held, memory_order_relaxed);
    if (peak)
        *peak = atomic_load_explicit(&most, memory_order_relaxed);
}

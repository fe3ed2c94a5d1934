/*
 * alloc.c - the C library's allocator with two counters: bytes in use, and their peak.
 *
 * A block counts with its usable size (malloc_usable_size), which is the same at allocation and at free, so no header
 * is stored with the block.
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

static atomic_uint_fast64_t bytes_in_use, peak_bytes;

static void *count_block(void *p) {
    if (!p)
        return NULL;
    uint_fast64_t bytes = SIZE_OF(p);
    uint_fast64_t now = atomic_fetch_add_explicit(&bytes_in_use, bytes, memory_order_relaxed) + bytes;
    uint_fast64_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (now > peak &&
           !atomic_compare_exchange_weak_explicit(&peak_bytes, &peak, now, memory_order_relaxed, memory_order_relaxed))
        ;
    return p;
}

static void uncount_bytes(size_t bytes) {
    atomic_fetch_sub_explicit(&bytes_in_use, bytes, memory_order_relaxed);
}

void *frugi_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - 2 * FRUGI_CACHE_LINE)
        return NULL;
    size_t rounded = (bytes / FRUGI_CACHE_LINE + 1) * FRUGI_CACHE_LINE;
    void *p = count_block(aligned_alloc(FRUGI_CACHE_LINE, rounded));
    return p ? memset(p, 0, rounded) : NULL;
}

void *frugi_malloc(size_t bytes) {
    return count_block(malloc(bytes));
}

void *frugi_calloc(size_t n, size_t bytes) {
    return count_block(calloc(n, bytes));
}

void *frugi_realloc(void *p, size_t bytes) {
    size_t before = p ? SIZE_OF(p) : 0;
    void *grown = realloc(p, bytes);
    if (grown)
        uncount_bytes(before);
    return count_block(grown);
}

char *frugi_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = frugi_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void frugi_free(void *p) {
    if (!p)
        return;
    uncount_bytes(SIZE_OF(p));
    free(p);
}

void frug_memory(uint64_t *now, uint64_t *peak) {
    if (now)
        *now = atomic_load_explicit(&bytes_in_use, memory_order_relaxed);
    if (peak)
        *peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
}

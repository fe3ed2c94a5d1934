/*
 * alloc.h - the allocator of the library. It counts, so that frug_memory() can report bytes in use and their peak.
 *
 * Every function returns NULL when memory is exhausted. frugi_free() frees what any of them returned.
 */
#ifndef FRUGI_ALLOC_H
#define FRUGI_ALLOC_H

#include <stddef.h>

#define FRUGI_CACHE_LINE 64u

/** Allocate at least `bytes` bytes, zeroed and aligned to a cache line. */
void *frugi_alloc(size_t bytes);

/** As the functions of the C library, but counted. */
void *frugi_malloc(size_t bytes);
void *frugi_calloc(size_t count, size_t bytes);
void *frugi_realloc(void *p, size_t bytes);
char *frugi_strdup(const char *text);
void frugi_free(void *p);

#endif

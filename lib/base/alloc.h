/*
 * alloc.h - all memory of the library comes from here and goes back here, so that frug_memory() can say how much there
 * is. Each returns NULL where there is none; frugi_free() takes what any of them gave.
 */
#ifndef FRUGI_ALLOC_H
#define FRUGI_ALLOC_H

#include <stddef.h>

#define FRUGI_LINE 64u

/** At least bytes zero bytes, aligned to a cache line. */
void *frugi_alloc(size_t bytes);

/** As the C library's, but counted. */
void *frugi_malloc(size_t bytes);
void *frugi_calloc(size_t count, size_t bytes);
void *frugi_realloc(void *p, size_t bytes);
char *frugi_strdup(const char *text);
void frugi_free(void *p);

#endif

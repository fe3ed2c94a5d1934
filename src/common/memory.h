/* memory.h - zeroed memory on cache lines of its own. */
#ifndef FRUGI_MEMORY_H
#define FRUGI_MEMORY_H

#include <stdlib.h>
#include <string.h>

#define FRUGI_LINE 64u

/** At least bytes zero bytes, aligned to a cache line, or NULL; freed by free(). */
static inline void *frugi_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - 2 * FRUGI_LINE)
        return NULL;
    size_t rounded = (bytes / FRUGI_LINE + 1) * FRUGI_LINE;
    void *p = aligned_alloc(FRUGI_LINE, rounded);
    return p ? memset(p, 0, rounded) : NULL;
}

#endif

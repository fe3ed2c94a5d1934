/*
 * struct_size.h - public structs that begin with struct_size, the sizeof that the caller was compiled with. A caller of
 * an older release has a shorter struct: only its fields are read and written, the others have their defaults.
 */
#ifndef FRUGI_STRUCT_SIZE_H
#define FRUGI_STRUCT_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/** Whether a caller's struct is there and its size is set. */
static inline bool frugi_struct_valid(const void *theirs) {
    return theirs && *(const size_t *)theirs >= sizeof(size_t);
}

/** Copy a caller's struct over ours, which holds the defaults and its own size. */
static inline void frugi_struct_read(void *ours, const void *theirs) {
    size_t size = *(size_t *)ours, caller = *(const size_t *)theirs;
    memcpy(ours, theirs, caller < size ? caller : size);
    *(size_t *)ours = size;
}

/** Copy our struct over a caller's, as far as that reaches. */
static inline void frugi_struct_write(void *theirs, const void *ours) {
    size_t size = *(const size_t *)ours, caller = *(size_t *)theirs;
    memcpy(theirs, ours, caller < size ? caller : size);
    *(size_t *)theirs = caller;
}

#endif

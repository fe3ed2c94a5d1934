/* counted_alloc.c - every block is preceded by a header of one cache line with its size and its use. */
#include "trainer/base/counted_alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u

typedef struct block_header {
    size_t bytes;
    fgt_use use;
} block_header;

static _Atomic uint64_t current[FGT_USES], peak[FGT_USES];

void *fgt_counted_alloc(fgt_use use, size_t bytes) {
    if (bytes > SIZE_MAX - 3 * ALIGNMENT)
        return NULL;
    size_t rounded = (bytes / ALIGNMENT + 2) * ALIGNMENT;
    unsigned char *p = aligned_alloc(ALIGNMENT, rounded);
    if (!p)
        return NULL;
    memset(p, 0, rounded);
    block_header h = {rounded, use};
    memcpy(p, &h, sizeof h);
    uint64_t bytes_now = atomic_fetch_add(&current[use], rounded) + rounded, high = atomic_load(&peak[use]);
    while (bytes_now > high && !atomic_compare_exchange_weak(&peak[use], &high, bytes_now)) {
    }
    return p + ALIGNMENT;
}

void fgt_counted_free(void *memory) {
    if (!memory)
        return;
    unsigned char *p = (unsigned char *)memory - ALIGNMENT;
    block_header h;
    memcpy(&h, p, sizeof h);
    atomic_fetch_sub(&current[h.use], h.bytes);
    free(p);
}

uint64_t fgt_counted_bytes(fgt_use use) {
    return atomic_load(&current[use]);
}

uint64_t fgt_counted_peak(fgt_use use) {
    return atomic_load(&peak[use]);
}

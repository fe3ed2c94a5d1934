/*
 * counted_alloc.c - every block is preceded by a header of one cache line with its size and its use. Large blocks ask
 * for huge pages: operations on images and matrices jump from plane to plane and from row to row, each on a page of its
 * own.
 */
#include "trainer/base/counted_alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT 64u
#define PAGE      4096u             /* or less than a page: then the request fails, without harm */
#define LARGE     ((size_t)4 << 20) /* bytes: two huge pages */

typedef struct block_header {
    size_t bytes;
    fgt_use use;
} block_header;

static _Atomic uint64_t current[FGT_USES], peak[FGT_USES];

static void ask_for_huge_pages(unsigned char *p, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    size_t before = (PAGE - (uintptr_t)p % PAGE) % PAGE;
    if (bytes >= LARGE)
        (void)madvise(p + before, (bytes - before) / PAGE * PAGE, MADV_HUGEPAGE);
#endif
}

void *fgt_counted_alloc(fgt_use use, size_t bytes) {
    if (bytes > SIZE_MAX - 3 * ALIGNMENT)
        return NULL;
    size_t rounded = (bytes / ALIGNMENT + 2) * ALIGNMENT;
    unsigned char *p = aligned_alloc(ALIGNMENT, rounded);
    if (!p)
        return NULL;
    ask_for_huge_pages(p, rounded);
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

/* counted_alloc.c - each piece of memory is preceded by a line that says how long it is and what it is for. */
#include "trainer/base/counted_alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64u

typedef struct head {
    size_t bytes;
    fgt_use use;
} head;

static _Atomic uint64_t now[FGT_USES], most[FGT_USES];

void *fgt_hold(fgt_use use, size_t bytes) {
    if (bytes > SIZE_MAX - 3 * LINE)
        return NULL;
    size_t rounded = (bytes / LINE + 2) * LINE;
    unsigned char *p = aligned_alloc(LINE, rounded);
    if (!p)
        return NULL;
    memset(p, 0, rounded);
    head h = {rounded, use};
    memcpy(p, &h, sizeof h);
    uint64_t held = atomic_fetch_add(&now[use], rounded) + rounded, high = atomic_load(&most[use]);
    while (held > high && !atomic_compare_exchange_weak(&most[use], &high, held)) {
    }
    return p + LINE;
}

void fgt_let_go(void *memory) {
    if (!memory)
        return;
    unsigned char *p = (unsigned char *)memory - LINE;
    head h;
    memcpy(&h, p, sizeof h);
    atomic_fetch_sub(&now[h.use], h.bytes);
    free(p);
}

uint64_t fgt_held(fgt_use use) {
    return atomic_load(&now[use]);
}

uint64_t fgt_held_most(fgt_use use) {
    return atomic_load(&most[use]);
}

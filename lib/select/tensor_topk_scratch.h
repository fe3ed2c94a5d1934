/* tensor_topk_scratch.h - what tensor_topk.c and probabilistic.c work in, and how they share elements out among
 * threads. */
#ifndef FRUGI_TENSOR_TOPK_SCRATCH_H
#define FRUGI_TENSOR_TOPK_SCRATCH_H

#include "select/tensor_topk.h"
#include "select/tensor_topk_kernel.h"

#define FRUGI_WHOLE_BINS ((uint32_t)1 << 15)
#define FRUGI_WHOLE_ROOM ((uint64_t)1 << 20) /* keys collected by all threads together */

/** What a thread finds out about its share. */
typedef struct frugi_whole_share {
    uint64_t *bin;             /* FRUGI_WHOLE_BINS */
    uint64_t below, inside;    /* of a bracket; probabilistic.c: sure ones, sum of chances */
    int full;                  /* not all of those inside were kept */
    uint64_t allowance, first; /* ties to take; where its winners start */
    unsigned char pad[16];     /* to a cache line */
} frugi_whole_share;

struct frugi_whole {
    int threads;
    const frugi_whole_kernel *kernel;
    frugi_whole_share *share;
    uint64_t *bins;   /* those of all threads */
    uint32_t *key;    /* FRUGI_WHOLE_ROOM */
    uint64_t *totals; /* two per bin: how many, and the sum of their lower halves */
};

/** Stretches of a run of elements that may go over several spans. */
typedef struct frugi_whole_walk {
    const frugi_span *span;
    uint64_t skip, left;
} frugi_whole_walk;

/** The part of a run of n elements from all spans that thread t of `threads` takes. */
static inline frugi_whole_walk frugi_whole_walk_share(const frugi_span *span, uint64_t n, int t, int threads) {
    uint64_t part = n / (uint64_t)threads, more = n % (uint64_t)threads, i = (uint64_t)t;
    return (frugi_whole_walk){span, i * part + (i < more ? i : more), part + (i < more)};
}

/** The next stretch, at most FRUGI_WHOLE_PIECE long; n is 0 at the end. */
static inline frugi_span frugi_whole_walk_next(frugi_whole_walk *walk) {
    if (!walk->left)
        return (frugi_span){0};
    while (walk->skip >= walk->span->n)
        walk->skip -= walk->span++->n;
    uint64_t n = walk->span->n - walk->skip;
    n = n < walk->left ? n : walk->left;
    n = n < FRUGI_WHOLE_PIECE ? n : FRUGI_WHOLE_PIECE;
    frugi_span piece = {walk->span->x + walk->skip, n};
    walk->skip += n;
    walk->left -= n;
    return piece;
}

static inline uint64_t frugi_whole_elements(const frugi_span *span, size_t spans) {
    uint64_t n = 0;
    for (size_t s = 0; s < spans; s++)
        n += span[s].n;
    return n;
}

/** No more threads than there is scratch for, nor than n elements are worth. */
static inline int frugi_whole_threads(const frugi_whole *whole, int threads, uint64_t n) {
    uint64_t worth = n / (16 * FRUGI_WHOLE_CHUNK) + 1;
    threads = threads < whole->threads ? threads : whole->threads;
    threads = threads > 1 ? threads : 1;
    return (uint64_t)threads < worth ? threads : (int)worth;
}

#endif

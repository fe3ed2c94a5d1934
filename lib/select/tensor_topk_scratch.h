/* tensor_topk_scratch.h - scratch memory of tensor_topk.c and probabilistic.c, and how they divide elements among
 * threads. */
#ifndef FRUGI_TENSOR_TOPK_SCRATCH_H
#define FRUGI_TENSOR_TOPK_SCRATCH_H

#include "select/tensor_topk.h"
#include "select/tensor_topk_kernel.h"

#define FRUGI_TOPK_BINS ((uint32_t)1 << 15)
#define FRUGI_TOPK_ROOM ((uint64_t)1 << 20) /* keys collected by all threads together */

/** Results of one thread. */
typedef struct frugi_topk_share {
    uint64_t *bin;             /* FRUGI_TOPK_BINS */
    uint64_t below, inside;    /* of a bracket; probabilistic.c: entries with p = 1, sum of the other probabilities */
    int full;                  /* the keys inside did not all fit */
    uint64_t allowance, first; /* ties to select; position of its first entry in the list */
    unsigned char pad[16];     /* to a cache line */
} frugi_topk_share;

/** Keys from .. from + width - 1, which include the k-th largest; `above` keys are larger than all of them. */
typedef struct frugi_topk_bracket {
    uint32_t from, width;
    uint64_t above, inside;
} frugi_topk_bracket;

/** A search that began before the arrays were written; n is 0 if there is none. */
typedef struct frugi_topk_watched {
    uint64_t n, k;
    int threads;
    frugi_topk_bracket bracket;
} frugi_topk_watched;

struct frugi_topk {
    int threads;
    frugi_topk_watched watched;
    const frugi_topk_kernel *kernel;
    frugi_topk_share *share;
    uint64_t *bins;   /* those of all threads */
    uint32_t *key;    /* FRUGI_TOPK_ROOM */
    uint64_t *totals; /* two per bin: count, and sum of lower halves */
};

/** An iterator over elements that may extend over several arrays. */
typedef struct frugi_topk_walk {
    const frugi_float_array *span;
    uint64_t skip, left;
} frugi_topk_walk;

/** The elements, of n in all arrays, that thread t of `threads` processes. */
static inline frugi_topk_walk frugi_topk_walk_share(const frugi_float_array *span, uint64_t n, int t, int threads) {
    uint64_t part = n / (uint64_t)threads, more = n % (uint64_t)threads, i = (uint64_t)t;
    return (frugi_topk_walk){span, i * part + (i < more ? i : more), part + (i < more)};
}

/** The next range, at most FRUGI_TOPK_PIECE long; n is 0 at the end. */
static inline frugi_float_array frugi_topk_walk_next(frugi_topk_walk *walk) {
    if (!walk->left)
        return (frugi_float_array){0};
    while (walk->skip >= walk->span->n)
        walk->skip -= walk->span++->n;
    uint64_t n = walk->span->n - walk->skip;
    n = n < walk->left ? n : walk->left;
    n = n < FRUGI_TOPK_PIECE ? n : FRUGI_TOPK_PIECE;
    frugi_float_array piece = {walk->span->x + walk->skip, n};
    walk->skip += n;
    walk->left -= n;
    return piece;
}

static inline uint64_t frugi_topk_elements(const frugi_float_array *span, size_t spans) {
    uint64_t n = 0;
    for (size_t s = 0; s < spans; s++)
        n += span[s].n;
    return n;
}

/** The number of threads to use: limited by the scratch memory, and by n. */
static inline int frugi_topk_threads(const frugi_topk *whole, int threads, uint64_t n) {
    uint64_t worth = n / (16 * FRUGI_TOPK_CHUNK) + 1;
    threads = threads < whole->threads ? threads : whole->threads;
    threads = threads > 1 ? threads : 1;
    return (uint64_t)threads < worth ? threads : (int)worth;
}

#endif

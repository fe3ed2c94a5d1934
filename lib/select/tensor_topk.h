/*
 * tensor_topk.h - exact top-k over one or several large arrays, without sorting.
 *
 * Magnitudes are compared as integers (frugi_magnitude()). A cutoff defines the selection: everything above `key`, and
 * the first `ties` entries that equal it, counted from the first array on; almost always these are all of them. So the
 * result is exact, ties go to the lower index, and threads may emit their ranges in parallel.
 */
#ifndef FRUGI_TENSOR_TOPK_H
#define FRUGI_TENSOR_TOPK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRUGI_TOPK_SHORT 1024u

typedef struct frugi_float_array {
    const float *x; /* finite */
    uint64_t n;
} frugi_float_array;

#define FRUGI_ALL_TIES UINT64_MAX

typedef struct frugi_cutoff {
    uint32_t key;
    uint64_t ties; /* FRUGI_ALL_TIES: all entries that equal key are selected */
} frugi_cutoff;

/** Scratch memory, allocated once. */
typedef struct frugi_topk frugi_topk;
frugi_topk *frugi_topk_create(int threads); /* NULL: no memory */
void frugi_topk_destroy(frugi_topk *whole);

/**
 * The cutoff that selects exactly k entries of all arrays together; 1 <= k <= all of them.
 *
 * Deterministic: the result does not depend on threads. Allocates: never. Cost: about two passes over the data.
 */
frugi_cutoff frugi_topk_cutoff(frugi_topk *whole, const frugi_float_array *span, size_t spans, uint64_t k, int threads);

/** Number of entries with magnitudes of at least key, in all arrays. */
uint64_t frugi_topk_count(frugi_topk *whole, const frugi_float_array *span, size_t spans, uint32_t key, int threads);

/**
 * Indices of the selected entries of one array, ascending: all magnitudes above cut->key and the first cut->ties that
 * equal it. cut->ties, unless it is FRUGI_ALL_TIES, is reduced by the number of ties selected. Returns the number of
 * entries. span->n < 2^32.
 *
 *   values   receives the selected values, while they are still in the cache; may be NULL
 */
uint64_t frugi_topk_emit(frugi_topk *whole, const frugi_float_array *span, frugi_cutoff *cut, uint32_t *list,
                         float *values, int threads);

/**
 * The same into arrays of any alignment.
 *
 *   clear   the array itself, if selected entries are to be set to 0; else NULL
 */
uint64_t frugi_topk_emit_to(frugi_topk *whole, const frugi_float_array *span, frugi_cutoff *cut, float *clear,
                            unsigned char *list, unsigned char *values, int threads);

/**
 * The k largest of n <= FRUGI_TOPK_SHORT elements, by the bits of `mask` of their magnitudes, ties to the lower index;
 * found fast if they are about those that reach the key `near`. Returns whether they were found; k > 0.
 *
 *   base   added to the indices
 *   list, values   receive k entries
 */
bool frugi_topk_emit_near(const frugi_topk *whole, const float *x, uint32_t n, uint32_t k, uint32_t near, uint32_t mask,
                          uint32_t base, uint32_t *list, float *values);

/**
 * Indices and values of the elements, at most FRUGI_TOPK_SHORT, whose bits are set; bits after the last element are 0.
 * Returns their number.
 */
uint32_t frugi_topk_take(const frugi_topk *whole, const float *x, const uint64_t *bits, uint32_t count, uint32_t base,
                         uint32_t *list, float *values);

#endif

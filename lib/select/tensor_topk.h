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

/**
 * The search can begin while the arrays are still being written, which saves a pass over memory, where
 * frugi_topk_watch_pays():
 *
 *   1. Write the keys that frugi_topk_sample_size() elements will have to frugi_topk_sample(); element i of the sample
 *      is number frugi_topk_sample_index() of all arrays together. A wrong key costs only time.
 *   2. frugi_topk_watch(), for k of n elements in all.
 *   3. As soon as a range has its final values, frugi_topk_see(), once for every element, in any order, by threads
 *      0 .. threads - 1.
 *   4. frugi_topk_cutoff() for the same k and n.
 */
bool frugi_topk_watch_pays(const frugi_topk *whole);
uint64_t frugi_topk_sample_size(uint64_t n);
uint64_t frugi_topk_sample_index(uint64_t n, uint64_t i);
uint32_t *frugi_topk_sample(frugi_topk *whole);
void frugi_topk_watch(frugi_topk *whole, uint64_t n, uint64_t k, int threads);
void frugi_topk_see(frugi_topk *whole, int thread, const float *x, uint64_t n);

/** Abandon a search. */
void frugi_topk_forget(frugi_topk *whole);

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

/** What becomes of selected entries, while they are in the cache. */
typedef struct frugi_topk_rest {
    float *x;  /* the array itself, where they are replaced by what is not sent; NULL: they are left as they are */
    bool bf16; /* they are sent as bf16; else as f32 */
} frugi_topk_rest;

/** The same into arrays of any alignment. */
uint64_t frugi_topk_emit_to(frugi_topk *whole, const frugi_float_array *span, frugi_cutoff *cut, frugi_topk_rest rest,
                            unsigned char *list, unsigned char *values, int threads);

/**
 * The k largest of n <= FRUGI_TOPK_SHORT elements, by the bits of `mask` of their magnitudes, ties to the lower index;
 * found fast if they are about those that reach the key `near`. Returns whether they were found; k > 0.
 *
 *   base   added to the indices
 *   list, values   receive k entries
 *   rest   what becomes of them if they were found; rest.x is x
 */
bool frugi_topk_emit_near(const frugi_topk *whole, const float *x, uint32_t n, uint32_t k, uint32_t near, uint32_t mask,
                          uint32_t base, frugi_topk_rest rest, uint32_t *list, float *values);

/** Replace n entries of an array by what is not sent. */
void frugi_topk_leave_rest(frugi_topk_rest rest, const uint32_t *list, uint64_t n);

/**
 * Indices and values of the elements, at most FRUGI_TOPK_SHORT, whose bits are set; bits after the last element are 0.
 * Returns their number. `list` and `values` have room for 2 * FRUGI_TOPK_SHORT: some more may be overwritten.
 */
uint32_t frugi_topk_take(const frugi_topk *whole, const float *x, const uint64_t *bits, uint32_t count, uint32_t base,
                         uint32_t *list, float *values);

#endif

/* partition.h - the tensors of a layout as ranges of the flat buffer, and an iterator over them. */
#ifndef FRUGI_PARTITION_H
#define FRUGI_PARTITION_H

#include "layout/layout.h"
#include "layout/tile_grid.h"

#include <stdbool.h>

#define FRUGI_MAX_BLOCK 4096u /* elements of the largest block */

/** View of a tensor with at least one element. */
typedef struct frugi_tensor_view {
    uint64_t begin, count;
    uint32_t tensor; /* index in the layout */
    bool absent;     /* in no range */
    /* Set by a compressor. */
    bool dense;            /* sent whole, as f32 */
    uint64_t first_number; /* number of its first block among all compressed blocks */
    uint64_t first_block;  /* the same among those that are stored; undefined for others */
    /* Compressed tensors only. */
    size_t number;       /* index among compressed tensors */
    frugi_grid grid;     /* its units */
    size_t select_group; /* selection group of its units */
} frugi_tensor_view;

/** The tensors of a layout. A compressor and its decoder share one. */
typedef struct frugi_partition {
    frugi_tensor_view *view; /* in the order of the flat buffer */
    size_t views;
    uint64_t blocks;        /* of compressed tensors, as far as they are stored; set by a compressor */
    uint64_t blocks_before; /* of absent tensors before these; likewise */
    bool any_absent;
    size_t tensors;    /* of the layout, with those that have no elements */
    uint64_t elements; /* of the flat buffer */
} frugi_partition;

/** Make a view of every tensor that has elements. Returns FRUG_ERR_MEMORY. */
frug_status frugi_partition_create(const frug_layout *layout, frugi_partition *partition);
void frugi_partition_destroy(frugi_partition *partition);

/** Check that a range lies inside the layout and has no element of an absent tensor. */
frug_status frugi_check_range(const frugi_partition *partition, uint64_t begin, uint64_t count);

/** Index of the first tensor view that ends after an element. */
size_t frugi_view_at(const frugi_partition *partition, uint64_t element);

/**
 * Iterator over the tensors that overlap a range of the flat buffer, in order. Gaps between tensors are left out.
 *
 *   frugi_range_iter it = frugi_range_start(partition, begin, end);
 *   while (frugi_range_next(&it))
 *       use(it.view, it.from, it.to);
 */
typedef struct frugi_range_iter {
    const frugi_tensor_view *view; /* current tensor */
    uint64_t from, to;             /* the elements of it that lie in the range, as positions in the flat buffer */
    uint64_t begin, end;           /* the range */
    const frugi_tensor_view *next, *last;
} frugi_range_iter;

static inline frugi_range_iter frugi_range_start(const frugi_partition *p, uint64_t begin, uint64_t end) {
    return (frugi_range_iter){
        .begin = begin, .end = end, .next = p->view + frugi_view_at(p, begin), .last = p->view + p->views};
}

/** Go to the next tensor; false at the end. An empty range inside a tensor gives that tensor with from == to. */
static inline bool frugi_range_next(frugi_range_iter *it) {
    if (it->next == it->last || it->next->begin >= it->end)
        return false;
    it->view = it->next++;
    uint64_t end = it->view->begin + it->view->count;
    it->from = it->view->begin > it->begin ? it->view->begin : it->begin;
    it->to = end < it->end ? end : it->end;
    return true;
}

#endif

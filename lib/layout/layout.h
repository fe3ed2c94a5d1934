/* layout.h - the tensors of a flat parameter buffer: internal representation. */
#ifndef FRUGI_LAYOUT_H
#define FRUGI_LAYOUT_H

#include "frugrad.h"

struct frug_layout {
    frug_tensor *tensor; /* owns the names; offsets are ascending */
    size_t count, capacity;
};

/** Number of elements of a tensor that a layout has accepted. */
uint64_t frugi_tensor_elements(const frug_tensor *tensor);

/** Copy a layout with its names. */
frug_status frugi_layout_copy(const frug_layout *layout, frug_layout **copy);

#endif

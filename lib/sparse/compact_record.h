/*
 * compact_record.h - the bytes of a record of a compact file around its body, and the parts of the body.
 * docs/compact-format.md defines them.
 */
#ifndef FRUGI_COMPACT_RECORD_H
#define FRUGI_COMPACT_RECORD_H

#include "frugrad/compact.h"

#include <stdbool.h>

/** Where the parts of a body begin, and its length. A part that a code does not have is empty. */
typedef struct frugi_compact_body {
    uint64_t bitmap, values, len; /* scales are at 0 */
    uint64_t row_marks;           /* bytes of a row of the bitmap */
    uint32_t width;               /* bytes of a value */
} frugi_compact_body;

static inline bool frugi_compact_is_int8(frug_compact_code code) {
    return code == FRUG_COMPACT_INT8 || code == FRUG_COMPACT_SPARSE_INT8;
}

static inline bool frugi_compact_is_sparse(frug_compact_code code) {
    return code == FRUG_COMPACT_SPARSE_F32 || code == FRUG_COMPACT_SPARSE_INT8;
}

/** The body of a tensor; code, rows, cols and entries are set. */
frugi_compact_body frugi_compact_layout(const frug_compact_info *info);

/** Set count, rows and cols from the shape. Returns false for shapes that are refused. */
bool frugi_compact_set_sizes(frug_compact_info *info);

/** Write everything around the body, which is in place. Returns the bytes of the record. */
size_t frugi_compact_seal(const frug_compact_info *info, unsigned char *record);

/** Bytes from the beginning of a record to its body, and of all of it. */
size_t frugi_compact_body_offset(uint32_t ndim, size_t name_len);
size_t frugi_compact_record_bytes(size_t body_offset, uint64_t body_len);

#endif

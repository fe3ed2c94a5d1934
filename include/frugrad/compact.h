/*
 * compact.h - the compact file: weights of which many are zero, or that are int8, in few bytes.
 *
 * A file is a sequence of records: one per tensor, and a last one that ends it. docs/compact-format.md defines the
 * bytes. Same input, same bytes, on any CPU.
 *
 *   writer   frug_compact_write() for every tensor, then frug_compact_end()
 *   reader   frug_compact_check() on all of the file; then for every record frug_compact_read(), and
 * frug_compact_decode() for dense weights or frug_compact_pack() for a packed matrix, which is never dense
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_COMPACT_H
#define FRUGRAD_COMPACT_H

#include <frugrad/sparse.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How the weights of a tensor are stored. Rows are outputs. */
typedef enum frug_compact_code {
    FRUG_COMPACT_F32 = 0,         /* all weights, every bit of them */
    FRUG_COMPACT_INT8 = 1,        /* all weights, int8 with a scale for each row */
    FRUG_COMPACT_SPARSE_F32 = 2,  /* a bitmap and the weights that are not zero */
    FRUG_COMPACT_SPARSE_INT8 = 3, /* the same as int8 */
    FRUG_COMPACT_END = 255        /* no tensor: the end of a file */
} frug_compact_code;

typedef struct frug_compact_tensor {
    size_t struct_size; /* sizeof(frug_compact_tensor), set by FRUG_COMPACT_TENSOR_INIT */
    const char *name;   /* 1 to 65535 bytes */
    frug_compact_code code;
    int input_first; /* rows are the last dimension instead of the first */
    uint32_t ndim;   /* 0 (a scalar) to FRUG_MAX_DIMS */
    uint64_t shape[FRUG_MAX_DIMS];
    const float *data; /* row-major in that shape */
} frug_compact_tensor;

#define FRUG_COMPACT_TENSOR_INIT                                                                                       \
    { sizeof(frug_compact_tensor), NULL, FRUG_COMPACT_F32, 0, 0, {0}, NULL }

/** A record as it was read. Pointers lead into the record. */
typedef struct frug_compact_info {
    size_t struct_size; /* sizeof(frug_compact_info), set by the caller */
    frug_compact_code code;
    int input_first;
    uint64_t bytes;   /* of the record; the next one follows */
    const char *name; /* name_len bytes, without a final zero */
    size_t name_len;
    uint32_t ndim;
    uint64_t shape[FRUG_MAX_DIMS];
    uint64_t count;      /* elements: the product of the shape */
    uint64_t rows, cols; /* as a matrix; a tensor of one dimension or none is one row */
    uint64_t entries;    /* weights that are stored; of an end: the number of records before it */
    uint64_t hash;       /* of the record's contents; of an end: of all records */
    const void *body;
    uint64_t body_len;
} frug_compact_info;

/** Upper bound of the bytes of a tensor's record; data may be NULL here. */
FRUG_CHECK frug_status frug_compact_bound(const frug_compact_tensor *tensor, size_t *bytes);

/** Write the record of a tensor. Codes other than FRUG_COMPACT_F32 need finite weights. Returns FRUG_ERR_ARG,
 *  FRUG_ERR_MEMORY, FRUG_ERR_SHORT_BUFFER (frug_compact_bound() bytes are always enough). */
FRUG_CHECK frug_status frug_compact_write(const frug_compact_tensor *tensor, void *dst, size_t cap, size_t *len);

/** Check the record at the beginning of len bytes, all of it. Returns FRUG_ERR_ARG, FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM,
 *  FRUG_ERR_VERSION. */
FRUG_CHECK frug_status frug_compact_read(const void *bytes, size_t len, frug_compact_info *info);

/** The weights of a record that frug_compact_read() accepted, row-major in the tensor's shape: info->count floats. */
FRUG_API void frug_compact_decode(const frug_compact_info *info, float *dst);

/** The same as a packed matrix of rows x cols, int8 if the record is. Returns as frug_sparse_create(). */
FRUG_CHECK frug_status frug_compact_pack(const frug_compact_info *info, frug_sparse **matrix);

/** What an end is made of. Begin with zeros. */
typedef struct frug_compact_totals {
    uint64_t records, hash;
} frug_compact_totals;

/** Add a record that frug_compact_read() accepted, in the order of the file. */
FRUG_API void frug_compact_add(frug_compact_totals *totals, const frug_compact_info *info);

#define FRUG_COMPACT_END_BYTES 64

/** Write the record that ends a file, FRUG_COMPACT_END_BYTES. A file has at most 65536 tensors. */
FRUG_CHECK frug_status frug_compact_end(const frug_compact_totals *totals, void *dst, size_t cap, size_t *len);

/** Whether a file that begins with these bytes is a compact one of any version; at least 4 are needed. */
FRUG_API int frug_compact_is(const void *bytes, size_t len);

/** Check a whole file: every record, that there are at most 65536 and no two have one name, and that the end is there
 *  and agrees with them. Returns as frug_compact_read(), or FRUG_ERR_MEMORY. */
FRUG_CHECK frug_status frug_compact_check(const void *file, size_t len, frug_compact_totals *totals);

#ifdef __cplusplus
}
#endif

#endif

/*
 * delta.h - the difference between two versions of the weights, as few bytes, without loss.
 *
 * A patch is a sequence of records: one per tensor, and a last one that ends it. It leads from one version of the
 * weights (the base) to another (the result) and back. docs/delta-format.md defines the bytes.
 *
 *   sender     frug_delta_make(&tensor, 0, dst, cap, &len) for every tensor, then frug_delta_end()
 *   receiver   frug_delta_apply_all(patch, len, tensors, count, 0), in place: all of the patch or nothing of it
 *
 * Elements are compared and restored as integers of `width` bytes, so that every number format keeps every bit. Hashes
 * of base and result detect a wrong base and damage, not attacks: see SECURITY.md. Same input, same bytes, for any
 * number of threads and on any CPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_DELTA_H
#define FRUGRAD_DELTA_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One tensor in two versions. */
typedef struct frug_delta_tensor {
    size_t struct_size; /* sizeof(frug_delta_tensor), set by FRUG_DELTA_TENSOR_INIT */
    const char *name;   /* 1 to 65535 bytes */
    const char *dtype;  /* name of the number format, 1 to 15 bytes, such as "BF16" */
    uint32_t width;     /* bytes of an element: 1, 2, 4 or 8 */
    uint32_t ndim;      /* 0 (a scalar) to FRUG_MAX_DIMS */
    uint64_t shape[FRUG_MAX_DIMS];
    const void *before; /* the base; NULL: the tensor is new */
    void *after;        /* the result; NULL: the tensor was removed. frug_delta_make() only reads it */
} frug_delta_tensor;

#define FRUG_DELTA_TENSOR_INIT                                                                                         \
    { sizeof(frug_delta_tensor), NULL, NULL, 0, 0, {0}, NULL, NULL }

/** What a record describes. */
typedef enum frug_delta_kind {
    FRUG_DELTA_CHANGE = 1,  /* a tensor of both versions: its changed elements */
    FRUG_DELTA_FULL = 2,    /* a tensor of the result only: all elements */
    FRUG_DELTA_REMOVED = 3, /* a tensor of the base only */
    FRUG_DELTA_HEADER = 4,  /* bytes of a file before its tensors */
    FRUG_DELTA_END = 5      /* the end of a patch */
} frug_delta_kind;

/** A record as it was read. Pointers lead into the record. */
typedef struct frug_delta_info {
    size_t struct_size; /* sizeof(frug_delta_info), set by the caller */
    frug_delta_kind kind;
    uint64_t bytes;   /* of the record; the next one follows */
    const char *name; /* name_len bytes, without a final zero */
    size_t name_len;
    char dtype[16]; /* with a final zero */
    uint32_t width, ndim;
    uint64_t shape[FRUG_MAX_DIMS];
    uint64_t count;        /* elements: the product of the shape */
    uint64_t entries;      /* changed elements; of an end: the number of records before it */
    uint64_t base, result; /* hashes of the tensor; of an end: of all weights */
    const void *body;
    uint64_t body_len;
} frug_delta_info;

typedef enum frug_delta_direction { FRUG_DELTA_FORWARD = 0, FRUG_DELTA_BACK = 1 } frug_delta_direction;

/** Upper bound of the bytes of the record of a tensor; before and after may be NULL here. About as many as the tensor
 *  has: memory that is not written costs nothing. */
FRUG_CHECK frug_status frug_delta_bound(const frug_delta_tensor *tensor, size_t *bytes);

/**
 * Write the record of one tensor. before and after may be any alignment.
 *
 *   threads   0: as many as OpenMP would use
 *   dst       frug_delta_bound() bytes are always enough
 *
 * Cost: one pass over both versions. Allocates 0.4 MB per thread. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG (FRUG_ISA),
 * FRUG_ERR_MEMORY, FRUG_ERR_SHORT_BUFFER.
 */
FRUG_CHECK frug_status frug_delta_make(const frug_delta_tensor *tensor, int threads, void *dst, size_t cap,
                                       size_t *len);

/** Write the record of the bytes of a file before its tensors. If they are the same in both versions, only their hash
 *  is kept. 64 bytes and after_len are enough. */
FRUG_CHECK frug_status frug_delta_header(const void *before, size_t before_len, const void *after, size_t after_len,
                                         void *dst, size_t cap, size_t *len);

/** Check the record at the beginning of len bytes: structure, lengths and checksum. What the chunks of a change hold is
 *  checked when it is applied. Returns FRUG_ERR_ARG, FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM, FRUG_ERR_VERSION. */
FRUG_CHECK frug_status frug_delta_read(const void *bytes, size_t len, frug_delta_info *info);

/** Bytes of the record that begins with these, without reading the rest of it; 0 if no record begins so. At least
 *  FRUG_DELTA_START bytes are needed. */
FRUG_API uint64_t frug_delta_length(const void *bytes, size_t len);

#define FRUG_DELTA_START 64

/** The sums over the records of a patch from which its end is made. Begin with zeros. */
typedef struct frug_delta_totals {
    uint64_t records, base, result;
} frug_delta_totals;

/** Add a record that frug_delta_read() accepted. */
FRUG_API void frug_delta_add(frug_delta_totals *totals, const frug_delta_info *info);

/** Write the record that ends a patch, FRUG_DELTA_START + 8 bytes. */
FRUG_CHECK frug_status frug_delta_end(const frug_delta_totals *totals, void *dst, size_t cap, size_t *len);

/** Check a whole patch: every record, and that the end is there and agrees with them. *totals: what the end holds;
 *  base and result name the versions of the weights. */
FRUG_CHECK frug_status frug_delta_check(const void *patch, size_t len, frug_delta_totals *totals);

/**
 * Apply a record of kind FRUG_DELTA_CHANGE: base to result, or back.
 *
 *   from    the tensor in the version that the record begins with
 *   bytes   of the tensor
 *   to      as many bytes; may be `from`. On an error it is then as before; otherwise it holds anything
 *
 * Returns FRUG_ERR_MISMATCH if `from` is another version, or the record of a tensor of another size, FRUG_ERR_FORMAT,
 * FRUG_ERR_CHECKSUM, and as frug_delta_make().
 */
FRUG_CHECK frug_status frug_delta_apply(const void *record, size_t len, frug_delta_direction direction, int threads,
                                        const void *from, size_t bytes, void *to);

/**
 * Apply a whole patch in place.
 *
 *   tensors   of each, name, dtype, width, shape and after, which points to the weights; in any order. Tensors that
 *             the patch does not name are left alone
 *
 * On an error all weights are as before. FRUG_ERR_MISMATCH if a tensor of the patch is missing, has another dtype or
 * shape, or is not the base, and for patches that add or remove tensors.
 */
FRUG_CHECK frug_status frug_delta_apply_all(const void *patch, size_t len, frug_delta_direction direction,
                                            const frug_delta_tensor *tensors, size_t count, int threads);

/** Write the indices of the changed elements of a record of kind FRUG_DELTA_CHANGE, ascending: info.entries of them. */
FRUG_CHECK frug_status frug_delta_indices(const void *record, size_t len, uint64_t *indices);

#ifdef __cplusplus
}
#endif

#endif

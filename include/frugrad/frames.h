/*
 * frames.h - check a frame and describe what it holds. docs/wire-format.md defines the bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_FRAMES_H
#define FRUGRAD_FRAMES_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frug_frame_info {
    size_t struct_size; /* sizeof(frug_frame_info), set by the caller */
    uint32_t version;
    uint32_t source;
    uint64_t step;
    uint64_t layout_hash;
    uint64_t bytes;
    frug_range range;  /* from the first to the last element covered */
    uint64_t entries;  /* gradient entries */
    uint32_t sections; /* frug_frame_section() takes 0 .. sections - 1 */
    uint32_t skipped;  /* blocks that the sender skipped */
} frug_frame_info;

#define FRUG_INDEX_CODES 8

typedef struct frug_section_info {
    size_t struct_size; /* sizeof(frug_section_info), set by the caller */
    const char *index;  /* "none", "local", "bitmap", "coo", "csr", "rle", "rice", "seeded" */
    const char *value;  /* "f32", "bf16", "f16", "int8", "int4", "sign", "two_bit", "qsgd", "onebit" */
    uint32_t block;     /* elements per block; 0 in a section of units */
    uint32_t tensor;    /* number of the (first) tensor in the layout */
    frug_range range;
    uint64_t entries;
    uint64_t bytes;           /* of the section with its header */
    double density;           /* of the schedule; in a section of units the share of entries sent */
    uint64_t unit_h, unit_w;  /* height and width of a unit in elements; 1 and 1 in a section of blocks */
    uint64_t units, selected; /* how many there are and how many were sent */
    /* Bytes of the same indices in each index code, in the order of frug_index_code_at(); UINT64_MAX: not possible. */
    uint64_t index_bytes[FRUG_INDEX_CODES];
} frug_section_info;

/** Name of the i-th index code ("none", "local", ...), or NULL past FRUG_INDEX_CODES. */
FRUG_API const char *frug_index_code_at(size_t i);

/** Check a frame completely (structure, lengths, checksum, indices) and describe it. Returns FRUG_ERR_ARG,
 *  FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM, FRUG_ERR_VERSION. */
FRUG_CHECK frug_status frug_frame_check(const void *frame, size_t len, frug_frame_info *info);

/** Describe section i of a frame that frug_frame_check() accepted. */
FRUG_API frug_status frug_frame_section(const void *frame, size_t len, uint32_t i, frug_section_info *info);

#ifdef __cplusplus
}
#endif

#endif

/*
 * delta_record.h - the bytes of a record around its body. docs/delta-format.md defines them.
 *
 *   64 bytes   magic, kind, width, ndim, length of dtype, bytes of the record, length of the name, checksum, hashes,
 *              entries, bytes of the body, zeros
 *   shape, dtype, name, zeros up to a multiple of 8
 *   body, at least FRUGI_DELTA_SLACK zeros up to a multiple of 8
 */
#ifndef FRUGI_DELTA_RECORD_H
#define FRUGI_DELTA_RECORD_H

#include "delta/delta_chunk.h"
#include "delta/delta_kernel.h"
#include "frugrad/delta.h"

#define FRUGI_DELTA_CODE_BYTES 8u /* of a chunk in the table at the beginning of the body of a change */

/** Check a tensor; *count: its elements. before and after are not looked at. */
frug_status frugi_delta_check_tensor(const frug_delta_tensor *tensor, uint64_t *count);

/** Bytes from the beginning of a record to its body. */
size_t frugi_delta_body_offset(uint32_t ndim, size_t dtype_len, size_t name_len);

/** Bytes of a record with a body of that many. */
size_t frugi_delta_record_bytes(size_t body_offset, uint64_t body_len);

/** Write everything around the body of a record: kind, hashes, entries and body_len are info's. tensor may be NULL.
 *  Returns the bytes of the record. */
size_t frugi_delta_seal(const frug_delta_tensor *tensor, const frug_delta_info *info, unsigned char *record);

/** Chunks of a tensor. */
static inline uint64_t frugi_delta_chunks(uint64_t count) {
    return (count + FRUGI_DELTA_CHUNK - 1) / FRUGI_DELTA_CHUNK;
}

/** Elements of chunk i of a tensor. */
static inline uint32_t frugi_delta_chunk_length(uint64_t count, uint64_t i) {
    uint64_t rest = count - i * FRUGI_DELTA_CHUNK;
    return (uint32_t)(rest < FRUGI_DELTA_CHUNK ? rest : FRUGI_DELTA_CHUNK);
}

/** Threads to use for that many chunks: given, or as many as OpenMP would use. */
int frugi_delta_threads(int given, uint64_t chunks);

/** The kernel in use; NULL, with the error set, if FRUG_ISA names none that runs here. */
frug_status frugi_delta_kernel_chosen(const frugi_delta_kernel **kernel);

#endif

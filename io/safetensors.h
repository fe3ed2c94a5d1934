/* safetensors.h - Hugging Face's safetensors files. */
#ifndef FGIO_SAFETENSORS_H
#define FGIO_SAFETENSORS_H

#include "io/files.h"
#include "io/file_tensors.h"

#include <jansson.h>

/** Size of the length field at the beginning of a file, in bytes. */
#define FGIO_SAFETENSORS_LENGTH 8

#define FGIO_SAFETENSORS_NO_MEMORY (-2)

typedef struct fgio_safetensors {
    fgio_tensor *item; /* in the order of their data */
    size_t count;
    json_t *metadata; /* the __metadata__ map, strings to strings; NULL when the file has none */
} fgio_safetensors;

/** Whether the bytes begin like a safetensors file. */
int fgio_safetensors_is(const unsigned char *bytes, size_t len);

/**
 * Read the header of a safetensors file held in memory; the items point into the bytes.
 *
 * The bytes are untrusted. Rejects duplicate names, text that is not UTF-8, shapes that do not match the offsets,
 * offsets that overlap, leave holes or exceed the file, and a header over 100 MB. Returns 0, or -1 with the reason.
 */
int fgio_safetensors_parse(const unsigned char *bytes, size_t len, fgio_safetensors *file, fgio_reason *why);

/**
 * The same with only the header in memory, for files that are read in chunks.
 *
 *   bytes, len   the beginning of the file; fgio_safetensors_head_bytes() gives the length needed
 *   file_len     of the whole file
 *
 * Returns FGIO_SAFETENSORS_NO_MEMORY if memory ran out: the file may be good.
 */
int fgio_safetensors_parse_head(const unsigned char *bytes, size_t len, uint64_t file_len, fgio_safetensors *file,
                                fgio_reason *why);

/** Bytes from the beginning of the file to the data, of which the first FGIO_SAFETENSORS_LENGTH are needed; 0 with the
 * reason if the length is invalid. */
uint64_t fgio_safetensors_head_bytes(const unsigned char *bytes, size_t len, uint64_t file_len, fgio_reason *why);

void fgio_safetensors_free(fgio_safetensors *file);

/** The item of that name, or NULL. */
const fgio_tensor *fgio_safetensors_find(const fgio_safetensors *file, const char *name);

/**
 * Encode everything before the data: the length and the header, padded so that the data is 8-byte aligned.
 *
 *   item       dtype F32 or U8, name, shape and count; the data must follow in this order
 *   metadata   or NULL
 *
 * Returns 0, or -1 with the reason.
 */
int fgio_safetensors_header(const fgio_tensor *item, size_t count, json_t *metadata, fgio_bytes *header,
                            fgio_reason *why);

#endif

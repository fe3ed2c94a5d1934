/* safetensors.h - Hugging Face's safetensors files. */
#ifndef FRUGI_SAFETENSORS_H
#define FRUGI_SAFETENSORS_H

#include "io/files.h"
#include "io/file_tensors.h"

#include <jansson.h>

/** Bytes that hold the length of the header. */
#define FRUGI_SAFETENSORS_LENGTH 8

typedef struct frugi_safetensors {
    frugi_item *item; /* in the order of their data */
    size_t count;
    json_t *metadata; /* the __metadata__ map, strings to strings; NULL when the file has none */
} frugi_safetensors;

/** Whether the bytes begin like a safetensors file. */
int frugi_safetensors_is(const unsigned char *bytes, size_t len);

/**
 * Read the header of a safetensors file held in memory; the items point into the bytes.
 *
 * The bytes are untrusted. Refuses duplicate names, text that is not UTF-8,
 * shapes that do not agree with the offsets, offsets that overlap, leave holes
 * or leave the file, and a header over 100 MB. Returns 0, or -1 with the reason.
 */
int frugi_safetensors_parse(const unsigned char *bytes, size_t len, frugi_safetensors *file, frugi_why *why);

/**
 * The same with the header alone in memory, for files that are read piece by piece.
 *
 *   bytes, len   the beginning of the file; FRUGI_SAFETENSORS_LENGTH bytes tell how much is needed
 *   file_len     of the whole file
 */
int frugi_safetensors_parse_head(const unsigned char *bytes, size_t len, uint64_t file_len, frugi_safetensors *file,
                                 frugi_why *why);

/** Bytes from the beginning of the file to the data; 0 with the reason where the header cannot be. */
uint64_t frugi_safetensors_head_bytes(const unsigned char *bytes, size_t len, uint64_t file_len, frugi_why *why);

void frugi_safetensors_free(frugi_safetensors *file);

/** The item of that name, or NULL. */
const frugi_item *frugi_safetensors_find(const frugi_safetensors *file, const char *name);

/**
 * Make everything that stands before the data: the length and the header, padded so that the data is 8-byte aligned.
 *
 *   item       dtype F32 or U8, name, shape and count; their data is to follow in this order
 *   metadata   or NULL
 *
 * Returns 0, or -1 with the reason.
 */
int frugi_safetensors_header(const frugi_item *item, size_t count, json_t *metadata, frugi_bytes *header,
                             frugi_why *why);

#endif

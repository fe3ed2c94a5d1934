/*
 * unpack_stream.h - reading a file that may be compressed from begin to end, in pieces: plain, .gz or .xz, by the
 * ending of the name. For files that unpack to more than should be in memory at once.
 */
#ifndef FGIO_UNPACK_STREAM_H
#define FGIO_UNPACK_STREAM_H

#include "io/error.h"

typedef struct fgio_stream fgio_stream;

/** Open a file. Returns an exit code, after an error message on stderr. */
int fgio_stream_open(const char *path, fgio_stream **stream);

/** Read the next n bytes; *got is less only at the end. Returns 0, or -1 and why: unreadable or damaged. */
int fgio_stream_read(fgio_stream *stream, void *dst, size_t n, size_t *got, fgio_reason *why);

/** Bytes of the file that have been read so far, and the size of the file. */
uint64_t fgio_stream_position(const fgio_stream *stream);
uint64_t fgio_stream_size(const fgio_stream *stream);

void fgio_stream_close(fgio_stream *stream);

#endif

/*
 * unpack_file.h - reading whole files that may be compressed: plain, .gz (zlib), .xz (liblzma), by the ending of the
 * name.
 *
 * Compressed files are untrusted: a few bytes can expand to gigabytes. Memory grows with the actual output, and the
 * caller sets the limit.
 */
#ifndef FGIO_UNPACK_FILE_H
#define FGIO_UNPACK_FILE_H

#include "io/files.h"
#include "io/error.h"

#include <stdint.h>

typedef enum fgio_packing { FGIO_PLAIN, FGIO_GZIP, FGIO_XZ } fgio_packing;

/** How a file is compressed, by the ending of its name. */
fgio_packing fgio_packing_of(const char *path);

/** Decompress bytes in memory into at most `limit` bytes. Returns 0, or -1 with the reason and the offset in the input.
 */
int fgio_unpack(fgio_packing packing, const fgio_bytes *packed, uint64_t limit, fgio_bytes *bytes, fgio_reason *why);

/** Read a file and decompress it. Returns an exit code, after an error message on stderr. */
int fgio_unpack_file(const char *path, uint64_t limit, fgio_bytes *bytes);

/** The first of dir/name, dir/name.xz and dir/name.gz that exists, or NULL. The caller frees it. */
char *fgio_unpack_find(const char *dir, const char *name);

#endif

/*
 * unpack_file.h - whole files into memory, packed or not: plain, .gz (zlib), .xz (liblzma), by the end of the name.
 *
 * Packed files are hostile by default: a few bytes can stand for gigabytes. Memory grows with what really comes out,
 * and the caller says how much that may be.
 */
#ifndef FGIO_UNPACK_FILE_H
#define FGIO_UNPACK_FILE_H

#include "io/files.h"
#include "io/error.h"

#include <stdint.h>

typedef enum fgio_packing { FGIO_PLAIN, FGIO_GZIP, FGIO_XZ } fgio_packing;

/** How a file is packed, by the end of its name. */
fgio_packing fgio_packing_of(const char *path);

/** Unpack bytes in memory into at most `limit` bytes. Returns 0, or -1 and why, with the offset in the packed bytes. */
int fgio_unpack(fgio_packing packing, const fgio_bytes *packed, uint64_t limit, fgio_bytes *bytes, fgio_why *why);

/** Read a file and unpack it. Returns an exit status, after one line on stderr. */
int fgio_unpack_file(const char *path, uint64_t limit, fgio_bytes *bytes);

/** Look for dir/name, dir/name.xz and dir/name.gz. Returns the first path that exists, the caller's to free, or NULL.
 */
char *fgio_unpack_find(const char *dir, const char *name);

#endif

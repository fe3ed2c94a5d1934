/*
 * unpack_file.h - whole files into memory, packed or not: plain, .gz (zlib), .xz (liblzma), by the end of the name.
 *
 * Packed files are hostile by default: a few bytes can stand for gigabytes. Memory grows with what really comes out,
 * and the caller says how much that may be.
 */
#ifndef FRUGI_UNPACK_FILE_H
#define FRUGI_UNPACK_FILE_H

#include "io/files.h"
#include "io/error.h"

#include <stdint.h>

typedef enum frugi_packing { FRUGI_PLAIN, FRUGI_GZIP, FRUGI_XZ } frugi_packing;

/** How a file is packed, by the end of its name. */
frugi_packing frugi_packing_of(const char *path);

/** Unpack bytes in memory into at most `limit` bytes. Returns 0, or -1 and why, with the offset in the packed bytes. */
int frugi_unpack(frugi_packing packing, const frugi_bytes *packed, uint64_t limit, frugi_bytes *bytes, frugi_why *why);

/** Read a file and unpack it. Returns an exit status, after one line on stderr. */
int frugi_unpack_file(const char *path, uint64_t limit, frugi_bytes *bytes);

/** Look for dir/name, dir/name.xz and dir/name.gz. Returns the first path that exists, the caller's to free, or NULL.
 */
char *frugi_unpack_find(const char *dir, const char *name);

#endif

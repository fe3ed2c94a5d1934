/*
 * tar.h - reading the files of a tar archive one after the other: POSIX (ustar, pax) and GNU.
 *
 * Archives are untrusted: headers are checked, names are only text (nothing is written), and memory is that of the
 * longest name.
 */
#ifndef FGIO_TAR_H
#define FGIO_TAR_H

#include "io/error.h"

enum { FGIO_TAR_NAME_MAX = 4096 };

/** Reads the next n bytes of the archive; *got is less only at its end. Returns 0, or -1 and why. */
typedef int fgio_tar_read_fn(void *ctx, void *dst, size_t n, size_t *got, fgio_reason *why);

/** An archive, and its current entry. */
typedef struct fgio_tar {
    fgio_tar_read_fn *read;
    void *ctx;
    uint64_t offset;                  /* of the next byte of the archive */
    uint64_t left, padding;           /* bytes of the entry that have not been read, and zeros after it */
    uint64_t size;                    /* of the entry */
    int is_file;                      /* whether it is a regular file */
    char name[FGIO_TAR_NAME_MAX + 1]; /* its path */
} fgio_tar;

void fgio_tar_open(fgio_tar *tar, fgio_tar_read_fn *read, void *ctx);

/** Goes to the next entry. Returns 1, 0 at the end of the archive, or -1 and why. */
int fgio_tar_next(fgio_tar *tar, fgio_reason *why);

/** Reads all of the entry, tar->size bytes. Once, directly after fgio_tar_next(). Returns 0, or -1 and why. */
int fgio_tar_content(fgio_tar *tar, void *dst, fgio_reason *why);

#endif

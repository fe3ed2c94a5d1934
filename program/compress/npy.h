/* npy.h - NumPy's .npy files. */
#ifndef FGP_NPY_H
#define FGP_NPY_H

#include "io/files.h"
#include "io/file_tensors.h"

/** Whether the bytes begin like a .npy file. */
int fgp_npy_is(const unsigned char *bytes, size_t len);

/**
 * Read the header of a .npy file (versions 1.0 to 3.0) held in memory; the item
 * points into the bytes, has no name, and its data is all that follows the header.
 *
 * Accepts little- and big-endian f2, f4 and f8 in C or Fortran order. The bytes are
 * untrusted. Returns 0, or -1 with the reason.
 */
int fgp_npy_parse(const unsigned char *bytes, size_t len, fgio_tensor *item, fgio_reason *why);

/** Upper bound of fgp_npy_header(). */
#define FGP_NPY_HEADER_MAX 320

/** Write the version 1.0 header of a C-order little-endian f32 array. Returns its length. */
size_t fgp_npy_header(uint32_t ndim, const uint64_t *shape, unsigned char dst[FGP_NPY_HEADER_MAX]);

#endif

/* patch_file.h - a patch of frugrad diff in memory, checked, with its records by name. */
#ifndef FGP_PATCH_FILE_H
#define FGP_PATCH_FILE_H

#include "frugrad.h"
#include "frugrad/delta.h"
#include "io/files.h"

typedef struct fgp_patch {
    const char *path;
    fgio_bytes bytes;
    frug_delta_totals totals;
    size_t count;
    frug_delta_info *record; /* without the end */
    size_t *offset;          /* of each record in the bytes */
} fgp_patch;

/** Read and check a patch. Prints the error and returns FGIO_EXIT_FAIL. */
int fgp_patch_read(const char *path, fgp_patch *patch);
void fgp_patch_free(fgp_patch *patch);

/** The number of the record that makes a tensor of the result, or that removes one of the base; patch->count if there
 * is none. */
size_t fgp_patch_find(const fgp_patch *patch, const char *name);

/** The header's record; NULL if the patch was not made from files. */
const frug_delta_info *fgp_patch_header(const fgp_patch *patch);

#endif

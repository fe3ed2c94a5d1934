/* patch_file.c - a patch in memory: all records are checked before the first is used. */
#include "program/delta/patch_file.h"

#include "io/error.h"

#include <stdlib.h>
#include <string.h>

static int read_records(fgp_patch *patch) {
    if (frug_delta_check(patch->bytes.data, patch->bytes.len, &patch->totals) != FRUG_OK)
        return fgio_library_error(fgio_input_name(patch->path));
    patch->record = calloc((size_t)patch->totals.records + 1, sizeof *patch->record);
    patch->offset = calloc((size_t)patch->totals.records + 1, sizeof *patch->offset);
    if (patch->record == NULL || patch->offset == NULL)
        return fgio_error("%s: not enough memory", patch->path);
    for (size_t at = 0; patch->count < patch->totals.records; patch->count++) {
        frug_delta_info *record = &patch->record[patch->count];
        record->struct_size = sizeof *record;
        if (frug_delta_read(patch->bytes.data + at, patch->bytes.len - at, record) != FRUG_OK)
            return fgio_library_error(patch->path);
        patch->offset[patch->count] = at;
        at += (size_t)record->bytes;
    }
    return FGIO_EXIT_OK;
}

int fgp_patch_read(const char *path, fgp_patch *patch) {
    *patch = (fgp_patch){.path = path};
    int code = fgio_file_read(path, &patch->bytes);
    return code == FGIO_EXIT_OK ? read_records(patch) : code;
}

void fgp_patch_free(fgp_patch *patch) {
    fgio_bytes_free(&patch->bytes);
    free(patch->record);
    free(patch->offset);
}

size_t fgp_patch_find(const fgp_patch *patch, const char *name) {
    size_t length = strlen(name), found = patch->count;
    for (size_t i = 0; i < patch->count; i++) {
        const frug_delta_info *record = &patch->record[i];
        if (record->name_len != length || memcmp(record->name, name, length) != 0)
            continue;
        found = i;
        if (record->kind != FRUG_DELTA_REMOVED) /* another of that name may follow a removed one */
            break;
    }
    return found;
}

const frug_delta_info *fgp_patch_header(const fgp_patch *patch) {
    return patch->count > 0 && patch->record[0].kind == FRUG_DELTA_HEADER ? &patch->record[0] : NULL;
}

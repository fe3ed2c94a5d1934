/* checkpoint_checksum.c - reading a checkpoint once and comparing its CRC-32C with the one at its end. */
#include "trainer/checkpoint/checkpoint_checksum.h"

#include "base/crc32c.h"
#include "io/error.h"
#include "trainer/checkpoint/checkpoint_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const fgio_tensor *last_tensor(const fgio_tensor_file *file) {
    return file->head.count == 0 ? NULL : &file->head.item[file->head.count - 1];
}

static bool is_checksum(const fgio_tensor *item) {
    return item != NULL && strcmp(item->name, FGT_CHECKSUM_NAME) == 0 && item->dtype == FGIO_U8 &&
           item->count == FGT_CHECKSUM_BYTES;
}

int fgt_checksum_verify(const fgio_tensor_file *file, unsigned char *chunk, int (*sync)(void *ctx), void *ctx) {
    const fgio_tensor *item = last_tensor(file);
    unsigned char stored[FGT_CHECKSUM_BYTES];
    uint32_t sum = 0, want = 0;
    if (!is_checksum(item))
        return fgio_error("%s: has no checksum (" FGT_CHECKSUM_NAME ", %d bytes, the last tensor)", file->path,
                          FGT_CHECKSUM_BYTES);
    for (uint64_t at = 0; at < item->offset;) {
        uint64_t left = item->offset - at;
        size_t some = left < FGT_CHUNK_BYTES ? (size_t)left : FGT_CHUNK_BYTES;
        if (fgio_tensor_file_read(file, at, chunk, some) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        sum = frugi_crc32c(sum, chunk, some);
        at += some;
        if (sync != NULL && at % FGT_SYNC_BYTES == 0 && sync(ctx) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    }
    if (fgio_tensor_file_read(file, item->offset, stored, sizeof stored) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    for (unsigned i = 0; i < sizeof stored; i++)
        want |= (uint32_t)stored[i] << 8 * i;
    return sum == want ? FGIO_EXIT_OK
                       : fgio_error("%s: is damaged: its checksum is %08" PRIx32 ", its bytes give %08" PRIx32,
                                    file->path, want, sum);
}

int fgt_weights_verify(const fgio_tensor_file *file) {
    if (!is_checksum(last_tensor(file)))
        return FGIO_EXIT_OK;
    unsigned char *chunk = malloc(FGT_CHUNK_BYTES);
    int code = chunk != NULL ? fgt_checksum_verify(file, chunk, NULL, NULL)
                             : fgio_error("%s: not enough memory to verify it", file->path);
    free(chunk);
    return code;
}

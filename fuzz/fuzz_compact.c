/*
 * fuzz_compact.c - untrusted compact files. The bytes are used unchanged, and once more as a record whose hash and
 * checksum were corrected, so that the checks after them are reached. A record that is accepted decodes and packs, and
 * what both give is the same.
 */
#include "base/crc32c.h"
#include "base/float_bits.h"
#include "delta/delta_hash.h"
#include "frugrad/compact.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT_MOST = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare_packed(const frug_compact_info *info, const float *dense) {
    frug_sparse *packed = NULL;
    float *row = malloc((size_t)info->cols * sizeof *row);
    if (row && frug_compact_pack(info, &packed) == FRUG_OK)
        for (uint32_t r = 0; r < info->rows; r++) {
            frug_sparse_unpack(packed, r, 1, row);
            for (uint64_t c = 0; c < info->cols; c++)
                if (row[c] != dense[info->input_first ? c * info->rows + r : r * info->cols + c])
                    abort();
        }
    frug_sparse_destroy(packed);
    free(row);
}

static void read_record(const unsigned char *bytes, size_t len) {
    frug_compact_info info = {.struct_size = sizeof info};
    if (frug_compact_read(bytes, len, &info) != FRUG_OK || info.code == FRUG_COMPACT_END || info.count > COUNT_MOST)
        return;
    float *dense = malloc((size_t)info.count * sizeof *dense);
    if (!dense)
        return;
    frug_compact_decode(&info, dense);
    if (info.ndim == 2)
        compare_packed(&info, dense);
    free(dense);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    frug_compact_totals totals;
    if (size > 0 && frug_compact_check(data, size, &totals) == FRUG_OK && totals.records > size)
        abort();
    read_record(data, size);
    if (size < FRUG_COMPACT_END_BYTES)
        return 0;
    unsigned char *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    uint64_t bytes = frugi_get64(copy + 8) <= size ? frugi_get64(copy + 8) : size;
    if (bytes < FRUG_COMPACT_END_BYTES)
        bytes = size;
    frugi_put64(copy + 8, bytes);
    frugi_put64(copy + 40,
                frugi_delta_hash_bytes(copy + FRUG_COMPACT_END_BYTES, (size_t)bytes - FRUG_COMPACT_END_BYTES));
    frugi_put32(copy + 20, 0);
    frugi_put32(copy + 20, frugi_crc32c(0, copy, (size_t)bytes));
    read_record(copy, size);
    free(copy);
    return 0;
}

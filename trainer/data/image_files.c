/*
 * image_files.c - parsing idx and CIFAR-10 files. idx: two zero bytes, the type (8: bytes), the number of dimensions,
 * their sizes as big-endian 32-bit numbers, the data. CIFAR-10: records without any header. Sizes must match the file
 * to the byte, so that a truncated or padded download is detected.
 */
#include "trainer/data/image_files.h"

enum { IDX_BYTES = 8, SIDE_MAX = 1 << 14, CIFAR_RECORD = FGT_CIFAR_PIXELS + 1 };

static uint32_t big_endian(const unsigned char *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

int fgt_idx_parse(const unsigned char *file, size_t len, uint32_t dims, fgt_idx *idx, fgio_reason *why) {
    size_t header = 4 + 4 * (size_t)dims;
    uint64_t size = 1;
    fgt_idx found = {.dims = dims, .shape = {1, 1, 1}, .data = file + header};
    if (len < 4 || file[0] != 0 || file[1] != 0 || file[2] != IDX_BYTES || file[3] != dims)
        return fgio_fail(why, "byte 0: expected 00 00 08 %02x, an idx file of bytes in %u dimension%s", dims, dims,
                         dims == 1 ? "" : "s");
    if (len < header)
        return fgio_fail(why, "byte %zu: the file ends; expected a header of %zu bytes", len, header);
    for (uint32_t i = 0; i < dims; i++) {
        found.shape[i] = big_endian(file + 4 + 4 * i);
        if (i > 0 && (found.shape[i] == 0 || found.shape[i] > SIDE_MAX))
            return fgio_fail(why, "byte %u: expected a side of 1 to %d pixels, found %u", 4 + 4 * i, SIDE_MAX,
                             found.shape[i]);
        size *= found.shape[i]; /* below 2^32 * 2^14 * 2^14 */
    }
    if (len - header != size)
        return fgio_fail(why, "byte %zu: the file ends; expected %llu bytes of data after the header of %zu", len,
                         (unsigned long long)size, header);
    *idx = found;
    return 0;
}

int fgt_cifar_parse(const unsigned char *file, size_t len, uint64_t *records, fgio_reason *why) {
    if (len == 0 || len % CIFAR_RECORD != 0)
        return fgio_fail(why, "byte %zu: the file ends; expected records of %d bytes", len, CIFAR_RECORD);
    for (size_t at = 0; at < len; at += CIFAR_RECORD)
        if (file[at] >= FGT_CIFAR_CLASSES)
            return fgio_fail(why, "byte %zu: expected a label of 0 to %d, found %u", at, FGT_CIFAR_CLASSES - 1,
                             file[at]);
    *records = len / CIFAR_RECORD;
    return 0;
}

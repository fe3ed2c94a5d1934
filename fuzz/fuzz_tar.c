/*
 * fuzz_tar.c - any bytes as a tar archive. Entries must lie in it, names must be terminated, and a refusal must have a
 * reason. Content of small entries is read, that of others is skipped.
 */
#include "io/tar.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct memory {
    const uint8_t *data;
    size_t left;
} memory;

static int read_memory(void *ctx, void *dst, size_t n, size_t *got, fgio_reason *why) {
    memory *from = ctx;
    (void)why;
    *got = n < from->left ? n : from->left;
    if (*got > 0)
        memcpy(dst, from->data, *got);
    from->data += *got;
    from->left -= *got;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char content[1 << 12];
    memory from = {data, size};
    fgio_tar tar;
    fgio_reason why = {""};
    int got;
    fgio_tar_open(&tar, read_memory, &from);
    while ((got = fgio_tar_next(&tar, &why)) > 0) {
        if (memchr(tar.name, 0, sizeof tar.name) == NULL || tar.offset + from.left != size)
            abort();
        if (tar.size <= sizeof content && fgio_tar_content(&tar, content, &why) != 0) {
            got = -1;
            break;
        }
    }
    if (got < 0 && why.text[0] == '\0')
        abort();
    return 0;
}

/*
 * fuzz_unpack.c - any bytes as a packed file; the first byte gives the kind. The output must respect the limit;
 * what is rejected must have an error text.
 */
#include "io/unpack_file.h"

#include <stdlib.h>

enum { LIMIT = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgio_reason why = {""};
    fgio_bytes bytes;
    if (size == 0)
        return 0;
    const fgio_bytes packed = {(unsigned char *)(uintptr_t)(data + 1), size - 1};
    if (fgio_unpack((fgio_packing)(data[0] % 3), &packed, LIMIT, &bytes, &why) == 0) {
        if (bytes.len > LIMIT)
            abort();
        fgio_bytes_free(&bytes);
    } else if (why.text[0] == '\0') {
        abort();
    }
    return 0;
}

/*
 * fuzz_delta.c - untrusted patches. The bytes are used unchanged, and once more as a record with a corrected checksum,
 * so that the checks after it are reached. Weights that a patch does not fit are never changed.
 */
#include "base/crc32c.h"
#include "base/float_bits.h"
#include "frugrad/delta.h"

#include <stdlib.h>

enum { N = 3000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Apply in place to weights of any width. */
static void apply(const unsigned char *bytes, size_t len) {
    static unsigned char weights[8 * N], kept[8 * N];
    frug_delta_info info = {.struct_size = sizeof info};
    if (frug_delta_read(bytes, len, &info) != FRUG_OK || info.kind != FRUG_DELTA_CHANGE || info.count > N)
        return;
    uint64_t *indices = malloc((info.entries + 1) * sizeof *indices);
    if (indices && frug_delta_indices(bytes, len, indices) == FRUG_OK)
        for (uint64_t i = 0; i < info.entries; i++)
            if (indices[i] >= info.count)
                abort();
    free(indices);
    memcpy(weights, kept, sizeof kept);
    if (frug_delta_apply(bytes, len, FRUG_DELTA_FORWARD, 1, weights, (size_t)(info.count * info.width), weights) ==
            FRUG_OK &&
        frug_delta_apply(bytes, len, FRUG_DELTA_BACK, 1, weights, (size_t)(info.count * info.width), weights) !=
            FRUG_OK)
        abort();
    if (memcmp(weights, kept, sizeof kept) != 0)
        abort();
}

static void apply_patch(const unsigned char *bytes, size_t len) {
    static unsigned char weights[2 * N];
    frug_delta_tensor tensor = FRUG_DELTA_TENSOR_INIT;
    tensor.name = "w";
    tensor.dtype = "BF16";
    tensor.width = 2;
    tensor.ndim = 1;
    tensor.shape[0] = N;
    tensor.after = weights;
    memset(weights, 0, sizeof weights);
    if (frug_delta_apply_all(bytes, len, FRUG_DELTA_FORWARD, &tensor, 1, 1) != FRUG_OK)
        for (size_t i = 0; i < sizeof weights; i++)
            if (weights[i])
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    apply(data, size);
    apply_patch(data, size);
    if (size < FRUG_DELTA_START)
        return 0;
    unsigned char *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    frugi_put64(copy + 8, size);
    frugi_put32(copy + 20, 0);
    frugi_put32(copy + 20, frugi_crc32c(0, copy, size));
    apply(copy, size);
    free(copy);
    return 0;
}

/*
 * fuzz_npy.c - any bytes into the .npy reader.
 *
 * What is accepted must convert within its bounds, and the header written for its shape must be read
 * back as that shape; what is rejected must have an error text.
 */
#include "program/compress/npy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const fgio_tensor *item) {
    float *numbers = malloc((size_t)item->count * sizeof *numbers + 1);
    if (numbers != NULL)
        fgio_tensor_to_f32(item, numbers);
    free(numbers);
}

static void check_written(const fgio_tensor *item) {
    fgio_tensor again;
    fgio_reason why;
    unsigned char header[FGP_NPY_HEADER_MAX];
    size_t length = fgp_npy_header(item->ndim, item->shape, header);
    unsigned char *file = calloc(1, length + (size_t)item->count * 4);
    if (file == NULL)
        return;
    memcpy(file, header, length);
    if (fgp_npy_parse(file, length + (size_t)item->count * 4, &again, &why) != 0 || again.ndim != item->ndim ||
        memcmp(again.shape, item->shape, item->ndim * sizeof *item->shape) != 0 || again.dtype != FGIO_F32)
        abort();
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgio_tensor item;
    fgio_reason why = {""};
    if (fgp_npy_parse(data, size, &item, &why) == 0) {
        check_accepted(&item);
        check_written(&item);
    } else if (why.text[0] == '\0') {
        abort();
    }
    return 0;
}

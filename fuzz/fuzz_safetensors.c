/*
 * fuzz_safetensors.c - any bytes into the safetensors reader and the payload reader.
 *
 * Each input is read twice: as a file, and as a header in front of a few bytes of data, so that the
 * fuzzer need not keep the length field valid. What is accepted must convert within its bounds and
 * be written to a header that reads back the same; what is rejected must have an error text.
 */
#include "program/compress/payload.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { DATA_BYTES = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_item(const fgio_tensor *item) {
    float *numbers = fgio_tensor_is_float(item) ? malloc((size_t)item->count * sizeof *numbers + 1) : NULL;
    if (numbers != NULL)
        fgio_tensor_to_f32(item, numbers);
    free(numbers);
}

/* Only F32 and U8 are written; a file of others is written as if it were one of them. */
static void check_written(fgio_safetensors *file) {
    fgio_safetensors again;
    fgio_bytes header;
    fgio_reason why;
    size_t bytes = 0;
    for (size_t i = 0; i < file->count; i++) {
        file->item[i].dtype = file->item[i].dtype == FGIO_U8 ? FGIO_U8 : FGIO_F32;
        bytes += (size_t)file->item[i].count * fgio_dtype_size(file->item[i].dtype);
    }
    if (fgio_safetensors_header(file->item, file->count, file->metadata, &header, &why) != 0)
        abort();
    unsigned char *copy = calloc(1, header.len + bytes);
    if (copy == NULL)
        abort();
    memcpy(copy, header.data, header.len);
    if (fgio_safetensors_parse(copy, header.len + bytes, &again, &why) != 0 || again.count != file->count ||
        (again.metadata == NULL) != (file->metadata == NULL))
        abort();
    fgio_safetensors_free(&again);
    fgio_bytes_free(&header);
    free(copy);
}

static void check_bytes(const unsigned char *bytes, size_t len) {
    fgio_safetensors file;
    fgp_payload payload;
    fgio_reason why = {""};
    if (fgio_safetensors_parse(bytes, len, &file, &why) == 0) {
        for (size_t i = 0; i < file.count; i++)
            check_item(&file.item[i]);
        check_written(&file);
        fgio_safetensors_free(&file);
    } else if (why.text[0] == '\0') {
        abort();
    }
    why.text[0] = '\0';
    if (fgp_payload_parse(bytes, len, &payload, &why) == 0) {
        if (payload.frame < bytes || payload.frame + payload.frame_len > bytes + len)
            abort();
        fgp_payload_free(&payload);
    } else if (why.text[0] == '\0') {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_bytes(data, size);
    unsigned char *file = calloc(1, 8 + size + DATA_BYTES);
    if (file == NULL)
        return 0;
    for (unsigned i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)size >> 8 * i);
    if (size > 0)
        memcpy(file + 8, data, size);
    check_bytes(file, 8 + size + DATA_BYTES);
    free(file);
    return 0;
}

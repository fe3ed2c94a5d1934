/*
 * gradient_file.c - files of gradients: raw f32, .npy and safetensors, to the flat f32 buffer that the compressor
 * takes.
 *
 * Everything is written back as f32 in C order: what the frame carries, without a second rounding.
 */
#include "program/compress/gradient_file.h"
#include "program/args/args.h"
#include "io/files.h"
#include "program/compress/npy.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

const char *const fgp_format_words[] = {"raw", "npy", "safetensors", "auto", NULL};

static int ends_with(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

static fgp_format find_format(const char *path, const fgio_bytes *bytes) {
    if (ends_with(path, ".npy"))
        return FGP_FORMAT_NPY;
    if (ends_with(path, ".safetensors"))
        return FGP_FORMAT_SAFETENSORS;
    if (ends_with(path, ".f32") || ends_with(path, ".raw"))
        return FGP_FORMAT_RAW;
    if (fgp_npy_is(bytes->data, bytes->len))
        return FGP_FORMAT_NPY;
    return fgio_safetensors_is(bytes->data, bytes->len) ? FGP_FORMAT_SAFETENSORS : FGP_FORMAT_RAW;
}

/* A file with one unnamed tensor, in the shape of one with several. */
static int single_item(fgio_tensor item, fgio_safetensors *file, fgio_reason *why) {
    item.name = strdup("gradient");
    file->item = malloc(sizeof *file->item);
    if (item.name == NULL || file->item == NULL) {
        free(item.name);
        free(file->item);
        return fgio_fail(why, "not enough memory");
    }
    file->item[0] = item;
    file->count = 1;
    return 0;
}

static int parse_raw(const fgio_bytes *bytes, fgio_tensor *item, fgio_reason *why) {
    if (bytes->len % 4 != 0)
        return fgio_fail(why, "%zu bytes are not a whole number of f32", bytes->len);
    *item = (fgio_tensor){.dtype = FGIO_F32, .ndim = 1, .shape = {bytes->len / 4}, .data = bytes->data};
    return fgio_tensor_set_count(item, why);
}

static int parse(fgp_format format, const fgio_bytes *bytes, fgio_safetensors *file, fgio_reason *why) {
    fgio_tensor item;
    if (format == FGP_FORMAT_SAFETENSORS)
        return fgio_safetensors_parse(bytes->data, bytes->len, file, why);
    int code =
        format == FGP_FORMAT_NPY ? fgp_npy_parse(bytes->data, bytes->len, &item, why) : parse_raw(bytes, &item, why);
    return code != 0 ? code : single_item(item, file, why);
}

static void describe_item(const fgio_tensor *item, int as_row, frug_tensor *tensor) {
    *tensor = (frug_tensor)FRUG_TENSOR_INIT;
    tensor->name = item->name;
    tensor->ndim = as_row ? 2 : item->ndim;
    memcpy(tensor->shape, item->shape, sizeof tensor->shape);
    if (as_row) {
        tensor->shape[0] = 1;
        tensor->shape[1] = item->count;
    }
}

static int add_tensors(const fgio_safetensors *file, fgp_heads heads, frug_tensor *tensors, fgp_gradient *gradient,
                       fgio_reason *why) {
    for (size_t i = 0; i < file->count; i++) {
        if (!fgio_tensor_is_float(&file->item[i]))
            return fgio_fail(why, "tensor '%.80s' holds no F32, F16, BF16 or F64 numbers", file->item[i].name);
        describe_item(&file->item[i], gradient->reshaped, &tensors[i]);
    }
    if (!gradient->reshaped && fgp_guess_tensors(tensors, file->count, heads) != 0)
        return fgio_fail(why, "not enough memory");
    for (size_t i = 0; i < file->count; i++)
        if (frug_layout_add(gradient->layout, &tensors[i]) != FRUG_OK)
            return fgio_fail(why, "tensor '%.80s': %s", tensors[i].name, frug_last_error());
    return 0;
}

static int build_layout(const fgio_safetensors *file, fgp_heads heads, fgp_gradient *gradient, fgio_reason *why) {
    gradient->reshaped = file->count == 1 && file->item[0].ndim < 2;
    if (gradient->reshaped) {
        gradient->ndim = file->item[0].ndim;
        memcpy(gradient->shape, file->item[0].shape, sizeof gradient->shape);
    }
    if (frug_layout_create(&gradient->layout) != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    frug_tensor *tensors = calloc(file->count + 1, sizeof *tensors);
    int code = tensors == NULL ? fgio_fail(why, "not enough memory") : add_tensors(file, heads, tensors, gradient, why);
    free(tensors);
    return code;
}

static int convert(const fgio_safetensors *file, fgp_gradient *gradient, fgio_reason *why) {
    uint64_t n = frug_layout_elements(gradient->layout), at = 0;
    if (n == 0)
        return fgio_fail(why, "holds no numbers");
    gradient->data = n > SIZE_MAX / sizeof(float) ? NULL : malloc((size_t)n * sizeof(float));
    if (gradient->data == NULL)
        return fgio_fail(why, "not enough memory for its numbers");
    for (size_t i = 0; i < file->count; i++) {
        fgio_tensor_to_f32(&file->item[i], gradient->data + at);
        at += file->item[i].count;
    }
    return 0;
}

int fgp_gradient_load(const char *path, fgp_format format, fgp_heads heads, fgp_gradient *gradient) {
    fgio_bytes bytes;
    fgio_reason why;
    fgio_safetensors file = {NULL, 0, NULL};
    fgp_gradient loaded = {.format = format};
    int code = fgio_file_read(path, &bytes);
    if (code != FGIO_EXIT_OK)
        return code;
    if (format == FGP_FORMAT_AUTO)
        loaded.format = find_format(path, &bytes);
    int bad = parse(loaded.format, &bytes, &file, &why) != 0 || build_layout(&file, heads, &loaded, &why) != 0 ||
              convert(&file, &loaded, &why) != 0;
    loaded.metadata = json_incref(file.metadata);
    fgio_safetensors_free(&file);
    fgio_bytes_free(&bytes);
    if (!bad) {
        *gradient = loaded;
        return FGIO_EXIT_OK;
    }
    fgp_gradient_free(&loaded);
    fgio_error("%s: %s", fgio_input_name(path), why.text);
    if (format == FGP_FORMAT_AUTO && loaded.format != FGP_FORMAT_SAFETENSORS)
        fgio_hint("it was read as %s; --format names another", fgp_format_words[loaded.format]);
    return FGIO_EXIT_FAIL;
}

/* The layout's tensor i with the shape of the file; the name stays the layout's. */
static void file_item(const fgp_gradient *gradient, size_t i, fgio_tensor *item) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    frug_layout_get(gradient->layout, i, &tensor);
    *item = (fgio_tensor){.dtype = FGIO_F32, .ndim = tensor.ndim};
    memcpy(item->shape, tensor.shape, sizeof item->shape);
    if (gradient->reshaped) {
        item->ndim = gradient->ndim;
        memcpy(item->shape, gradient->shape, sizeof item->shape);
    }
    item->count = 1;
    for (uint32_t d = 0; d < item->ndim; d++)
        item->count *= item->shape[d];
}

static int safetensors_header(const fgp_gradient *gradient, fgio_bytes *header, fgio_reason *why) {
    size_t count = frug_layout_count(gradient->layout);
    fgio_tensor *items = calloc(count + 1, sizeof *items);
    int code = items == NULL ? fgio_fail(why, "not enough memory") : 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_layout_get(gradient->layout, i, &tensor);
        file_item(gradient, i, &items[i]);
        items[i].name = strdup(tensor.name);
        if (items[i].name == NULL)
            code = fgio_fail(why, "not enough memory");
    }
    if (code == 0)
        code = fgio_safetensors_header(items, count, gradient->metadata, header, why);
    for (size_t i = 0; items != NULL && i < count; i++)
        free(items[i].name);
    free(items);
    return code;
}

static int make_header(const fgp_gradient *gradient, fgio_bytes *header, fgio_reason *why) {
    if (gradient->format == FGP_FORMAT_SAFETENSORS)
        return safetensors_header(gradient, header, why);
    *header = (fgio_bytes){NULL, 0};
    if (gradient->format == FGP_FORMAT_NPY) {
        fgio_tensor item;
        file_item(gradient, 0, &item);
        header->data = malloc(FGP_NPY_HEADER_MAX);
        if (header->data == NULL)
            return fgio_fail(why, "not enough memory");
        header->len = fgp_npy_header(item.ndim, item.shape, header->data);
    }
    return 0;
}

int fgp_gradient_store(const char *path, const fgp_gradient *gradient) {
    fgio_writer writer;
    fgio_bytes header;
    fgio_reason why;
    if (make_header(gradient, &header, &why) != 0)
        return fgio_error("%s: cannot write: %s", path, why.text);
    int code = fgio_writer_open(path, &writer);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put(&writer, header.data, header.len);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put_f32(&writer, gradient->data, (size_t)frug_layout_elements(gradient->layout));
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_commit(&writer);
    fgio_writer_abort(&writer);
    fgio_bytes_free(&header);
    return code;
}

void fgp_gradient_free(fgp_gradient *gradient) {
    frug_layout_destroy(gradient->layout);
    json_decref(gradient->metadata);
    free(gradient->data);
    gradient->layout = NULL;
    gradient->metadata = NULL;
    gradient->data = NULL;
}

/* model_weights.c - reads and writes the weights of a model; every tensor is in memory as f32. */
#include "program/deploy/model_weights.h"

#include "frugrad/compact.h"
#include "io/error.h"
#include "io/files.h"
#include "io/tensor_file.h"
#include "program/model/tensor_roles.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_checksum.h"

#include <stdlib.h>
#include <string.h>

size_t fgp_weights_size(const frug_tensor *tensor) {
    size_t size = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        size *= (size_t)tensor->shape[d];
    return size;
}

bool fgp_weights_is_matrix(const frug_tensor *tensor) {
    return tensor->ndim >= 2 && tensor->role != FRUG_ROLE_EMBEDDING;
}

fgp_matrix_view fgp_weights_view(const frug_tensor *tensor) {
    size_t size = fgp_weights_size(tensor), rows = tensor->ndim < 2 ? 1 : (size_t)tensor->shape[0];
    if (tensor->input_first)
        return (fgp_matrix_view){size / rows, rows, 1, size / rows};
    return (fgp_matrix_view){rows, size / rows, size / rows, 1};
}

/* ---- read --------------------------------------------------------------------------------------- */

static int read_tensor(const fgio_tensor_file *file, const fgio_tensor *item, fgp_weights *weights) {
    frug_tensor *tensor = &weights->tensor[weights->count];
    float *data = malloc((size_t)(item->count + 1) * sizeof *data);
    char *name = strdup(item->name);
    *tensor = (frug_tensor)FRUG_TENSOR_INIT;
    tensor->name = name;
    tensor->ndim = item->ndim;
    memcpy(tensor->shape, item->shape, sizeof tensor->shape);
    weights->data[weights->count++] = data;
    if (data == NULL || name == NULL)
        return fgio_error("%s: not enough memory for tensor '%s'", file->path, item->name);
    return fgio_tensor_file_read_f32(file, item, data);
}

static int read_tensors(const fgio_tensor_file *file, fgp_weights *weights) {
    int code = FGIO_EXIT_OK;
    weights->tensor = calloc(file->head.count + 1, sizeof *weights->tensor);
    weights->data = calloc(file->head.count + 1, sizeof *weights->data);
    if (weights->tensor == NULL || weights->data == NULL)
        return fgio_error("%s: not enough memory", file->path);
    for (size_t i = 0; i < file->head.count && code == FGIO_EXIT_OK; i++) {
        const fgio_tensor *item = &file->head.item[i];
        if (strncmp(item->name, "frugrad.", 8) != 0 && fgio_tensor_is_float(item) && item->count > 0)
            code = read_tensor(file, item, weights);
    }
    if (code == FGIO_EXIT_OK && weights->count == 0)
        code = fgio_error("%s: has no weights", file->path);
    if (code == FGIO_EXIT_OK && fgp_guess_tensors(weights->tensor, weights->count, (fgp_heads){0, 0}) != 0)
        code = fgio_error("%s: not enough memory", file->path);
    return code;
}

/* The option --model of a run whose checkpoint this is; other programs may mean something else by that key. */
static void read_model(const fgio_tensor_file *file, fgp_weights *weights) {
    const json_t *metadata = file->head.metadata;
    const char *model = json_string_value(json_object_get(metadata, "model"));
    if (json_object_get(metadata, "frugrad.format") != NULL && model != NULL && strlen(model) < sizeof weights->model)
        memcpy(weights->model, model, strlen(model) + 1);
}

int fgp_weights_read(const char *path, fgp_weights *weights) {
    fgio_tensor_file file = FGIO_TENSOR_FILE_CLOSED;
    *weights = (fgp_weights){0};
    int code = fgt_checkpoint_newest(path, weights->path, sizeof weights->path);
    if (code == FGIO_EXIT_OK)
        code = fgio_tensor_file_open(weights->path, &file);
    if (code == FGIO_EXIT_OK)
        code = fgt_weights_verify(&file);
    if (code == FGIO_EXIT_OK)
        code = read_tensors(&file, weights);
    if (code == FGIO_EXIT_OK)
        read_model(&file, weights);
    fgio_tensor_file_close(&file);
    return code;
}

int fgp_weights_check_output(const fgp_weights *weights, const char *out) {
    if (fgio_file_same(weights->path, out))
        return fgio_error("%s: is both input and output", out);
    if (fgt_checkpoint_has_name(out))
        return fgio_error("%s: has the name of a checkpoint, which a run may look for; choose another name", out);
    return FGIO_EXIT_OK;
}

void fgp_weights_free(fgp_weights *weights) {
    for (size_t i = 0; i < weights->count; i++) {
        free((char *)(uintptr_t)weights->tensor[i].name);
        free(weights->data[i]);
    }
    free(weights->tensor);
    free(weights->data);
}

/* ---- write -------------------------------------------------------------------------------------- */

static int put_safetensors(const fgp_weights *weights, const fgio_tensor *item, fgio_writer *writer) {
    fgio_bytes header = {NULL, 0};
    fgio_reason why;
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    int code = fgio_safetensors_header(item, weights->count, metadata, &header, &why) == 0
                   ? fgio_writer_put(writer, header.data, header.len)
                   : fgio_error("%s: %s", writer->path, why.text);
    for (size_t i = 0; i < weights->count && code == FGIO_EXIT_OK; i++)
        code = fgio_writer_put_f32(writer, weights->data[i], (size_t)item[i].count);
    fgio_bytes_free(&header);
    json_decref(metadata);
    return code == FGIO_EXIT_OK ? fgio_writer_commit(writer) : code;
}

int fgp_weights_write_safetensors(const fgp_weights *weights, const char *path) {
    fgio_writer writer = FGIO_WRITER_CLOSED;
    fgio_tensor *item = calloc(weights->count + 1, sizeof *item);
    if (item == NULL)
        return fgio_error("%s: not enough memory", path);
    for (size_t i = 0; i < weights->count; i++) {
        const frug_tensor *tensor = &weights->tensor[i];
        item[i] = (fgio_tensor){.name = (char *)(uintptr_t)tensor->name, .dtype = FGIO_F32, .ndim = tensor->ndim};
        memcpy(item[i].shape, tensor->shape, sizeof item[i].shape);
        item[i].count = fgp_weights_size(tensor);
    }
    int code = fgio_writer_open(path, &writer);
    if (code == FGIO_EXIT_OK)
        code = put_safetensors(weights, item, &writer);
    fgio_writer_abort(&writer);
    free(item);
    return code;
}

/* The code that needs the fewest bytes: a bitmap costs a bit for each weight. */
static frug_compact_code choose_code(const frug_tensor *tensor, const float *data, bool int8) {
    size_t size = fgp_weights_size(tensor), entries = 0, width = int8 ? 1 : 4;
    if (tensor->ndim < 2)
        return FRUG_COMPACT_F32;
    for (size_t i = 0; i < size; i++)
        entries += data[i] < 0.0f || data[i] > 0.0f;
    bool sparse = entries * width + size / 8 < size * width;
    return int8 ? (sparse ? FRUG_COMPACT_SPARSE_INT8 : FRUG_COMPACT_INT8)
                : (sparse ? FRUG_COMPACT_SPARSE_F32 : FRUG_COMPACT_F32);
}

static int put_record(const frug_tensor *from, const float *data, bool int8, frug_compact_totals *totals,
                      fgio_writer *writer, size_t *bytes) {
    frug_compact_tensor tensor = FRUG_COMPACT_TENSOR_INIT;
    frug_compact_info info = {.struct_size = sizeof info};
    size_t cap = 0, len = 0;
    tensor.name = from->name;
    tensor.code = choose_code(from, data, int8);
    tensor.input_first = from->input_first != 0;
    tensor.ndim = from->ndim;
    memcpy(tensor.shape, from->shape, sizeof tensor.shape);
    tensor.data = data;
    if (frug_compact_bound(&tensor, &cap) != FRUG_OK)
        return fgio_library_error(writer->path);
    unsigned char *record = malloc(cap);
    if (record == NULL)
        return fgio_error("%s: not enough memory for tensor '%s'", writer->path, from->name);
    int code = FGIO_EXIT_OK;
    if (frug_compact_write(&tensor, record, cap, &len) != FRUG_OK || frug_compact_read(record, len, &info) != FRUG_OK)
        code = fgio_library_error(writer->path);
    if (code == FGIO_EXIT_OK) {
        frug_compact_add(totals, &info);
        code = fgio_writer_put(writer, record, len);
    }
    *bytes += len;
    free(record);
    return code;
}

int fgp_weights_write_compact(const fgp_weights *weights, const char *path, bool int8, size_t *bytes) {
    fgio_writer writer = FGIO_WRITER_CLOSED;
    frug_compact_totals totals = {0, 0};
    unsigned char end[FRUG_COMPACT_END_BYTES];
    size_t len = 0;
    int code = fgio_writer_open(path, &writer);
    *bytes = 0;
    for (size_t i = 0; i < weights->count && code == FGIO_EXIT_OK; i++)
        code = put_record(&weights->tensor[i], weights->data[i], int8, &totals, &writer, bytes);
    if (code == FGIO_EXIT_OK && frug_compact_end(&totals, end, sizeof end, &len) != FRUG_OK)
        code = fgio_library_error(path);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put(&writer, end, len);
    *bytes += len;
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_commit(&writer);
    fgio_writer_abort(&writer);
    return code;
}

/* compact_weights.c - the weights of a record of a compact file: encoded, decoded, or packed row by row. */
#include "sparse/compact_record.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/status.h"
#include "base/struct_size.h"
#include "sparse/sparse_matrix.h"

#include <string.h>

/* ---- encode ------------------------------------------------------------------------------------- */

static frug_status describe(const frug_compact_tensor *tensor, frug_compact_tensor *t, frug_compact_info *info) {
    *t = (frug_compact_tensor)FRUG_COMPACT_TENSOR_INIT;
    FRUG_FAIL_IF(!frugi_struct_valid(tensor), FRUG_ERR_ARG, "compact: no tensor, or struct_size is not set");
    frugi_struct_read(t, tensor);
    FRUG_FAIL_IF(!t->name || !*t->name || strlen(t->name) > 65535, FRUG_ERR_ARG,
                 "compact: the name of a tensor is missing or longer than 65535 bytes");
    FRUG_FAIL_IF(t->code < FRUG_COMPACT_F32 || t->code > FRUG_COMPACT_SPARSE_INT8 || t->ndim > FRUG_MAX_DIMS,
                 FRUG_ERR_ARG, "compact: tensor '%.80s' has an unknown code, or too many dimensions", t->name);
    *info = (frug_compact_info){.struct_size = sizeof *info,
                                .code = t->code,
                                .input_first = t->input_first != 0,
                                .name = t->name,
                                .name_len = strlen(t->name),
                                .ndim = t->ndim};
    memcpy(info->shape, t->shape, sizeof info->shape);
    FRUG_FAIL_IF(!frugi_compact_set_sizes(info), FRUG_ERR_ARG,
                 "compact: tensor '%.80s' is empty, too large, or has its input first without being a matrix", t->name);
    info->entries = info->count;
    return FRUG_OK;
}

frug_status frug_compact_bound(const frug_compact_tensor *tensor, size_t *bytes) {
    frug_compact_tensor t;
    frug_compact_info info;
    FRUG_FAIL_IF(!bytes, FRUG_ERR_ARG, "frug_compact_bound: an argument is NULL");
    FRUG_TRY(describe(tensor, &t, &info));
    *bytes = frugi_compact_record_bytes(frugi_compact_body_offset(info.ndim, info.name_len),
                                        frugi_compact_layout(&info).len);
    return FRUG_OK;
}

/* Row r of the matrix; of int8 as integers. Returns the scale. */
static float read_weights(const frug_compact_tensor *t, const frug_compact_info *info, uint64_t r, float *dst) {
    const size_t stride = info->input_first ? (size_t)info->rows : 1;
    const float *w = t->data + (info->input_first ? r : r * info->cols);
    bool int8 = frugi_compact_is_int8(t->code);
    float scale = int8 ? frugi_int8_scale(w, (uint32_t)info->cols, stride) : 1.0f;
    for (uint64_t c = 0; c < info->cols; c++)
        dst[c] = int8 ? frugi_int8_round(w[c * stride], scale) : w[c * stride];
    return scale;
}

static uint64_t put_row(const frug_compact_info *info, const frugi_compact_body *layout, uint64_t r, const float *row,
                        unsigned char *body, uint64_t at) {
    unsigned char *marks = body + layout->bitmap + r * layout->row_marks, *value = body + layout->values;
    for (uint64_t c = 0; c < info->cols; c++) {
        if (layout->row_marks) {
            if (row[c] == 0.0f)
                continue;
            marks[c / 8] |= (unsigned char)(1u << c % 8);
        }
        if (layout->width == 1)
            value[at++] = (unsigned char)(int8_t)row[c];
        else
            frugi_put32(value + 4 * at++, frugi_f32_bits(row[c]));
    }
    return at;
}

static frug_status put_weights(const frug_compact_tensor *t, frug_compact_info *info, unsigned char *body, float *row) {
    frugi_compact_body layout = frugi_compact_layout(info);
    uint64_t at = 0;
    memset(body, 0, (size_t)layout.values);
    for (uint64_t r = 0; r < info->rows; r++) {
        float scale = read_weights(t, info, r, row);
        FRUG_FAIL_IF(!frugi_all_finite(row, (uint32_t)info->cols), FRUG_ERR_ARG,
                     "compact: tensor '%.80s' has a NaN or an infinity", t->name);
        if (frugi_compact_is_int8(info->code))
            frugi_put32(body + 4 * r, frugi_f32_bits(scale));
        at = put_row(info, &layout, r, row, body, at);
    }
    info->entries = at;
    return FRUG_OK;
}

frug_status frug_compact_write(const frug_compact_tensor *tensor, void *dst, size_t cap, size_t *len) {
    frug_compact_tensor t;
    frug_compact_info info;
    size_t bound = 0;
    FRUG_FAIL_IF(!dst || !len, FRUG_ERR_ARG, "frug_compact_write: an argument is NULL");
    FRUG_TRY(describe(tensor, &t, &info));
    FRUG_TRY(frug_compact_bound(tensor, &bound));
    FRUG_FAIL_IF(!t.data, FRUG_ERR_ARG, "compact: tensor '%.80s' has no data", t.name);
    FRUG_FAIL_IF(cap < bound, FRUG_ERR_SHORT_BUFFER, "compact: tensor '%.80s' may need %zu bytes", t.name, bound);
    unsigned char *body = (unsigned char *)dst + frugi_compact_body_offset(info.ndim, info.name_len);
    if (info.code == FRUG_COMPACT_F32) {
        memcpy(body, t.data, (size_t)info.count * sizeof *t.data);
    } else {
        float *row = frugi_malloc((size_t)info.cols * sizeof *row);
        frug_status status =
            row ? put_weights(&t, &info, body, row) : frugi_fail(FRUG_ERR_MEMORY, "no memory for a row of weights");
        frugi_free(row);
        FRUG_TRY(status);
    }
    info.body_len = frugi_compact_layout(&info).len;
    *len = frugi_compact_seal(&info, dst);
    return FRUG_OK;
}

/* ---- decode ------------------------------------------------------------------------------------- */

/* Reads the rows of a record in their order: a sparse row begins where the one before it ended. */
typedef struct row_reader {
    const frug_compact_info *info;
    frugi_compact_body layout;
    uint64_t next, at; /* the next row, and its first value */
} row_reader;

static float stored_value(const row_reader *reader, uint64_t at) {
    const unsigned char *value = (const unsigned char *)reader->info->body + reader->layout.values;
    return reader->layout.width == 1 ? (float)(int8_t)value[at] : frugi_bits_f32(frugi_get32(value + 4 * at));
}

static float row_scale(const frug_compact_info *info, uint64_t r) {
    return frugi_compact_is_int8(info->code) ? frugi_bits_f32(frugi_get32((const unsigned char *)info->body + 4 * r))
                                             : 1.0f;
}

/* Write the next row times a factor, `stride` floats from one column to the next. */
static void read_row(row_reader *reader, float factor, size_t stride, float *dst) {
    const frug_compact_info *info = reader->info;
    const frugi_compact_body *layout = &reader->layout;
    const uint64_t r = reader->next++;
    const unsigned char *marks = (const unsigned char *)info->body + layout->bitmap + r * layout->row_marks;
    const bool transposed = info->code == FRUG_COMPACT_F32 && info->input_first;
    for (uint64_t c = 0; c < info->cols; c++) {
        bool stored = layout->row_marks == 0 || (marks[c / 8] >> c % 8 & 1) != 0;
        uint64_t at = transposed ? c * info->rows + r : reader->at;
        dst[c * stride] = stored ? stored_value(reader, at) * factor : 0.0f;
        reader->at += stored;
    }
}

void frug_compact_decode(const frug_compact_info *info, float *dst) {
    row_reader reader = {.info = info, .layout = frugi_compact_layout(info)};
    if (info->code == FRUG_COMPACT_F32) {
        memcpy(dst, info->body, (size_t)info->count * sizeof *dst);
        return;
    }
    for (uint64_t r = 0; r < info->rows; r++)
        read_row(&reader, row_scale(info, r), info->input_first ? (size_t)info->rows : 1,
                 dst + (info->input_first ? r : r * info->cols));
}

/* ---- pack --------------------------------------------------------------------------------------- */

/* Rows are read from the first to the last, and then once more. */
static float read_for_packing(void *ctx, uint32_t row, float *dst) {
    row_reader *reader = ctx;
    if (row == 0)
        reader->next = reader->at = 0;
    read_row(reader, 1.0f, 1, dst);
    return row_scale(reader->info, row);
}

frug_status frug_compact_pack(const frug_compact_info *info, frug_sparse **matrix) {
    FRUG_FAIL_IF(!frugi_struct_valid(info) || !matrix, FRUG_ERR_ARG, "frug_compact_pack: an argument is NULL or empty");
    FRUG_FAIL_IF(info->ndim != 2 || info->cols > FRUGI_SPARSE_COLUMNS, FRUG_ERR_ARG,
                 "compact: only a matrix of at most %u columns can be packed", FRUGI_SPARSE_COLUMNS);
    const frugi_sparse_kernel *kernel = NULL;
    FRUG_TRY(frugi_sparse_kernel_chosen(&kernel));
    row_reader reader = {.info = info, .layout = frugi_compact_layout(info)};
    return frugi_sparse_build(&(frugi_row_source){&reader, read_for_packing}, (uint32_t)info->rows,
                              (uint32_t)info->cols,
                              frugi_compact_is_int8(info->code) ? FRUG_SPARSE_INT8 : FRUG_SPARSE_F32, kernel, matrix);
}

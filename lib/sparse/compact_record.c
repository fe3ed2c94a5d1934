/* compact_record.c - records of a compact file: lengths, checksum, hash, and the check of what others wrote. */
#include "sparse/compact_record.h"

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/float_bits.h"
#include "base/status.h"
#include "base/struct_size.h"
#include "delta/delta_hash.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "FGC1"

enum { FIXED = FRUG_COMPACT_END_BYTES, CHECKSUM_AT = 20, NAME_MOST = 65535, RECORDS_MOST = 65536 };
#define ELEMENTS_MOST (UINT64_C(1) << 48)
#define ROWS_MOST     UINT64_C(0xffffffff)

size_t frugi_compact_body_offset(uint32_t ndim, size_t name_len) {
    return (FIXED + 8 * (size_t)ndim + name_len + 7) / 8 * 8;
}

size_t frugi_compact_record_bytes(size_t body_offset, uint64_t body_len) {
    return (body_offset + (size_t)body_len + 7) / 8 * 8;
}

bool frugi_compact_set_sizes(frug_compact_info *info) {
    info->count = 1;
    for (uint32_t d = 0; d < info->ndim; d++) {
        if (info->shape[d] == 0 || info->shape[d] > ELEMENTS_MOST / info->count)
            return false;
        info->count *= info->shape[d];
    }
    info->rows = info->ndim < 2 ? 1 : info->shape[info->input_first ? info->ndim - 1 : 0];
    info->cols = info->count / info->rows;
    return info->rows <= ROWS_MOST && info->cols <= ROWS_MOST && (info->ndim == 2 || !info->input_first);
}

frugi_compact_body frugi_compact_layout(const frug_compact_info *info) {
    bool int8 = frugi_compact_is_int8(info->code), sparse = frugi_compact_is_sparse(info->code);
    frugi_compact_body body = {.row_marks = sparse ? (info->cols + 7) / 8 : 0, .width = int8 ? 1 : 4};
    body.bitmap = int8 ? 4 * info->rows : 0;
    body.values = (body.bitmap + info->rows * body.row_marks + 3) / 4 * 4;
    body.len = body.values + info->entries * body.width;
    return body;
}

/* The checksum of a record as if the field that holds it were zero. */
static uint32_t checksum(const unsigned char *record, size_t bytes) {
    static const unsigned char zero[4];
    uint32_t crc = frugi_crc32c(0, record, CHECKSUM_AT);
    crc = frugi_crc32c(crc, zero, sizeof zero);
    return frugi_crc32c(crc, record + CHECKSUM_AT + 4, bytes - CHECKSUM_AT - 4);
}

size_t frugi_compact_seal(const frug_compact_info *info, unsigned char *record) {
    size_t offset = frugi_compact_body_offset(info->ndim, info->name_len);
    size_t bytes = frugi_compact_record_bytes(offset, info->body_len), end = offset + (size_t)info->body_len;
    memset(record, 0, offset);
    memset(record + end, 0, bytes - end);
    memcpy(record, MAGIC, 4);
    record[4] = (unsigned char)info->code;
    record[5] = (unsigned char)info->ndim;
    record[6] = info->input_first != 0;
    frugi_put64(record + 8, bytes);
    frugi_put32(record + 16, (uint32_t)info->name_len);
    frugi_put64(record + 24, info->entries);
    frugi_put64(record + 32, info->body_len);
    for (uint32_t d = 0; d < info->ndim; d++)
        frugi_put64(record + FIXED + 8 * d, info->shape[d]);
    if (info->name_len > 0)
        memcpy(record + FIXED + 8 * info->ndim, info->name, info->name_len);
    frugi_put64(record + 40,
                info->code == FRUG_COMPACT_END ? info->hash : frugi_delta_hash_bytes(record + FIXED, bytes - FIXED));
    frugi_put32(record + CHECKSUM_AT, checksum(record, bytes));
    return bytes;
}

/* ---- check -------------------------------------------------------------------------------------- */

int frug_compact_is(const void *bytes, size_t len) {
    return len >= 4 && memcmp(bytes, MAGIC, 3) == 0;
}

static frug_status check_beginning(const unsigned char *p, size_t len) {
    FRUG_FAIL_IF(!frug_compact_is(p, len), FRUG_ERR_FORMAT,
                 "compact: is no compact file, or not at the beginning of a record");
    FRUG_FAIL_IF(p[3] != MAGIC[3], FRUG_ERR_VERSION, "compact: has version '%c', and this release reads version '%c'",
                 p[3] > ' ' && p[3] < 127 ? p[3] : '?', MAGIC[3]);
    FRUG_FAIL_IF(len < FIXED || frugi_get64(p + 8) < FIXED || frugi_get64(p + 8) > len, FRUG_ERR_FORMAT,
                 "compact: ends inside a record");
    FRUG_FAIL_IF(frugi_get32(p + CHECKSUM_AT) != checksum(p, (size_t)frugi_get64(p + 8)), FRUG_ERR_CHECKSUM,
                 "compact: a record is damaged, its checksum is wrong");
    return FRUG_OK;
}

static bool all_zero(const unsigned char *p, size_t len) {
    unsigned char any = 0;
    for (size_t i = 0; i < len; i++)
        any |= p[i];
    return any == 0;
}

/* Read the fields, and check that the lengths fit. */
static frug_status read_fields(const unsigned char *p, frug_compact_info *info) {
    info->code = (frug_compact_code)p[4];
    info->ndim = p[5];
    info->input_first = p[6];
    info->bytes = frugi_get64(p + 8);
    info->name_len = frugi_get32(p + 16);
    info->entries = frugi_get64(p + 24);
    info->body_len = frugi_get64(p + 32);
    info->hash = frugi_get64(p + 40);
    bool end = info->code == FRUG_COMPACT_END;
    FRUG_FAIL_IF(p[4] > FRUG_COMPACT_SPARSE_INT8 && !end, FRUG_ERR_FORMAT, "compact: a record has code %u", p[4]);
    FRUG_FAIL_IF(info->ndim > FRUG_MAX_DIMS || p[6] > 1 || info->name_len > NAME_MOST, FRUG_ERR_FORMAT,
                 "compact: a record has %u dimensions, unknown flags or too long a name", info->ndim);
    FRUG_FAIL_IF(end && (info->ndim || info->input_first || info->name_len || info->body_len), FRUG_ERR_FORMAT,
                 "compact: the end is no end");
    FRUG_FAIL_IF(!end && info->name_len == 0, FRUG_ERR_FORMAT, "compact: a tensor has no name");
    size_t offset = frugi_compact_body_offset(info->ndim, info->name_len);
    FRUG_FAIL_IF(info->body_len > info->bytes || frugi_compact_record_bytes(offset, info->body_len) != info->bytes ||
                     !all_zero(p + 48, FIXED - 48) || p[7] != 0 ||
                     !all_zero(p + offset + info->body_len, (size_t)(info->bytes - offset - info->body_len)),
                 FRUG_ERR_FORMAT, "compact: the lengths of a record contradict each other");
    for (uint32_t d = 0; d < info->ndim; d++)
        info->shape[d] = frugi_get64(p + FIXED + 8 * d);
    info->name = (const char *)p + FIXED + 8 * info->ndim;
    FRUG_FAIL_IF(memchr(info->name, 0, info->name_len), FRUG_ERR_FORMAT, "compact: a name has a zero byte");
    info->body = p + offset;
    return FRUG_OK;
}

/* One bit for each entry, and none behind the last column of a row. */
static bool bitmap_is_valid(const frug_compact_info *info, const frugi_compact_body *layout, const unsigned char *map) {
    unsigned char unused = info->cols % 8 ? (unsigned char)(0xffu << info->cols % 8) : 0;
    uint64_t ones = 0;
    for (uint64_t r = 0; r < info->rows; r++, map += layout->row_marks) {
        for (uint64_t i = 0; i < layout->row_marks; i++)
            ones += (uint64_t)__builtin_popcount(map[i]);
        if (map[layout->row_marks - 1] & unused)
            return false;
    }
    return ones == info->entries;
}

static bool scales_are_valid(const frug_compact_info *info, const unsigned char *p) {
    for (uint64_t r = 0; r < info->rows; r++)
        if (frugi_get32(p + 4 * r) >= FRUGI_INF_BITS)
            return false;
    return true;
}

/* Stored weights of a sparse tensor are finite and not zero; int8 is never -128. */
static bool values_are_valid(const frug_compact_info *info, const unsigned char *p) {
    bool sparse = frugi_compact_is_sparse(info->code);
    for (uint64_t i = 0; i < info->entries; i++) {
        if (frugi_compact_is_int8(info->code)
                ? p[i] == 0x80 || (sparse && p[i] == 0)
                : sparse && (frugi_get32(p + 4 * i) & FRUGI_ABS_MASK) - 1u >= FRUGI_INF_BITS - 1u)
            return false;
    }
    return true;
}

static frug_status check_body(const frug_compact_info *info) {
    const unsigned char *body = info->body;
    int shown = (int)(info->name_len < 80 ? info->name_len : 80);
    bool sparse = frugi_compact_is_sparse(info->code);
    frugi_compact_body layout = frugi_compact_layout(info);
    FRUG_FAIL_IF(sparse ? info->entries > info->count : info->entries != info->count, FRUG_ERR_FORMAT,
                 "compact: tensor '%.*s' has the wrong number of entries", shown, info->name);
    FRUG_FAIL_IF(layout.len != info->body_len, FRUG_ERR_FORMAT, "compact: tensor '%.*s' has the wrong length", shown,
                 info->name);
    uint64_t marked = layout.bitmap + info->rows * layout.row_marks;
    FRUG_FAIL_IF(!all_zero(body + marked, (size_t)(layout.values - marked)) ||
                     (sparse && !bitmap_is_valid(info, &layout, body + layout.bitmap)),
                 FRUG_ERR_FORMAT, "compact: the bitmap of tensor '%.*s' does not fit its entries", shown, info->name);
    FRUG_FAIL_IF(frugi_compact_is_int8(info->code) && !scales_are_valid(info, body), FRUG_ERR_FORMAT,
                 "compact: a scale of tensor '%.*s' is negative or not finite", shown, info->name);
    FRUG_FAIL_IF(!values_are_valid(info, body + layout.values), FRUG_ERR_FORMAT,
                 "compact: tensor '%.*s' has a value that is zero, not finite or out of range", shown, info->name);
    return FRUG_OK;
}

frug_status frug_compact_read(const void *bytes, size_t len, frug_compact_info *info) {
    FRUG_FAIL_IF(!bytes || !frugi_struct_valid(info), FRUG_ERR_ARG, "frug_compact_read: an argument is NULL or empty");
    frug_compact_info read = {.struct_size = sizeof read};
    FRUG_TRY(check_beginning(bytes, len));
    FRUG_TRY(read_fields(bytes, &read));
    if (read.code != FRUG_COMPACT_END) {
        FRUG_FAIL_IF(!frugi_compact_set_sizes(&read), FRUG_ERR_FORMAT,
                     "compact: tensor '%.*s' has a shape that is refused",
                     (int)(read.name_len < 80 ? read.name_len : 80), read.name);
        FRUG_FAIL_IF(frugi_delta_hash_bytes((const unsigned char *)bytes + FIXED, (size_t)read.bytes - FIXED) !=
                         read.hash,
                     FRUG_ERR_CHECKSUM, "compact: a record is damaged, its hash is wrong");
        FRUG_TRY(check_body(&read));
    }
    frugi_struct_write(info, &read);
    return FRUG_OK;
}

/* ---- files -------------------------------------------------------------------------------------- */

void frug_compact_add(frug_compact_totals *totals, const frug_compact_info *info) {
    totals->records++;
    totals->hash = frugi_delta_hash_word(totals->hash, info->hash);
}

frug_status frug_compact_end(const frug_compact_totals *totals, void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!totals || !dst || !len, FRUG_ERR_ARG, "frug_compact_end: an argument is NULL");
    FRUG_FAIL_IF(totals->records > RECORDS_MOST, FRUG_ERR_ARG, "compact: a file has at most %d tensors", RECORDS_MOST);
    FRUG_FAIL_IF(cap < FIXED, FRUG_ERR_SHORT_BUFFER, "compact: an end has %d bytes", FIXED);
    *len = frugi_compact_seal(
        &(frug_compact_info){.code = FRUG_COMPACT_END, .entries = totals->records, .hash = totals->hash}, dst);
    return FRUG_OK;
}

static int compare_names(const void *a, const void *b) {
    const unsigned char *x = *(const unsigned char *const *)a, *y = *(const unsigned char *const *)b;
    uint32_t x_len = frugi_get32(x + 16), y_len = frugi_get32(y + 16);
    if (x_len != y_len)
        return x_len < y_len ? -1 : 1;
    return memcmp(x + FIXED + 8 * (size_t)x[5], y + FIXED + 8 * (size_t)y[5], x_len);
}

/* No two of the records, which were read, have one name. */
static frug_status check_names(const unsigned char *file, size_t count) {
    const unsigned char **record = frugi_malloc((count + 1) * sizeof *record);
    FRUG_FAIL_IF(!record, FRUG_ERR_MEMORY, "compact: not enough memory for the names");
    for (size_t i = 0; i < count; i++, file += frugi_get64(file + 8))
        record[i] = file;
    qsort(record, count, sizeof *record, compare_names);
    frug_status status = FRUG_OK;
    for (size_t i = 1; i < count && status == FRUG_OK; i++)
        if (compare_names(&record[i - 1], &record[i]) == 0)
            status = frugi_fail(FRUG_ERR_FORMAT, "compact: two tensors have one name");
    frugi_free(record);
    return status;
}

frug_status frug_compact_check(const void *file, size_t len, frug_compact_totals *totals) {
    frug_compact_totals sums = {0, 0};
    FRUG_FAIL_IF(!file || !totals, FRUG_ERR_ARG, "frug_compact_check: an argument is NULL");
    for (size_t at = 0;;) {
        frug_compact_info info = {.struct_size = sizeof info};
        FRUG_FAIL_IF(at == len, FRUG_ERR_FORMAT, "compact: the file has no end, it was cut off");
        FRUG_TRY(frug_compact_read((const unsigned char *)file + at, len - at, &info));
        if (info.code == FRUG_COMPACT_END) {
            FRUG_FAIL_IF(at + info.bytes != len, FRUG_ERR_FORMAT, "compact: there are bytes behind the end");
            FRUG_FAIL_IF(info.entries != sums.records || info.hash != sums.hash, FRUG_ERR_FORMAT,
                         "compact: records of the file are missing or from another one");
            FRUG_TRY(check_names(file, (size_t)sums.records));
            *totals = sums;
            return FRUG_OK;
        }
        FRUG_FAIL_IF(sums.records == RECORDS_MOST, FRUG_ERR_FORMAT, "compact: the file has more than %d tensors",
                     RECORDS_MOST);
        frug_compact_add(&sums, &info);
        at += (size_t)info.bytes;
    }
}

/*
 * delta_record.c - write, check and describe records.
 *
 * Every length of a received record is checked against the bytes that are there before anything else of it is used.
 */
#include "delta/delta_record.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "base/struct_size.h"
#include "delta/delta_hash.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#define MAGIC "FGD1"

enum { FIXED = FRUG_DELTA_START, CHECKSUM_AT = 20, NAME_MOST = 65535, DTYPE_MOST = 15 };

#define ELEMENTS_MOST ((uint64_t)1 << 48)

int frugi_delta_threads(int given, uint64_t chunks) {
#ifdef _OPENMP
    uint64_t threads = (uint64_t)(given > 0 ? given : omp_get_max_threads());
#else
    uint64_t threads = (uint64_t)(given > 0);
#endif
    return (int)(threads < chunks ? threads : chunks ? chunks : 1);
}

frug_status frugi_delta_kernel_chosen(const frugi_delta_kernel **kernel) {
    frugi_isa isa = frugi_isa_chosen();
    FRUG_FAIL_IF(isa == FRUGI_ISA_COUNT, FRUG_ERR_CONFIG, "FRUG_ISA names a variant that this CPU does not support");
    *kernel = frugi_delta_kernel_for(isa);
    return FRUG_OK;
}

/* The number of elements; false for more than 2^48. */
static bool count_elements(uint32_t ndim, const uint64_t *shape, uint64_t *count) {
    *count = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        if (shape[d] > ELEMENTS_MOST || (*count > 0 && shape[d] > ELEMENTS_MOST / *count))
            return false;
        *count *= shape[d];
    }
    return true;
}

static bool is_width(uint32_t width) {
    return width == 1 || width == 2 || width == 4 || width == 8;
}

frug_status frugi_delta_check_tensor(const frug_delta_tensor *t, uint64_t *count) {
    FRUG_FAIL_IF(!t->name || !*t->name || strlen(t->name) > NAME_MOST, FRUG_ERR_ARG,
                 "delta: the name of a tensor is missing or longer than %d bytes", NAME_MOST);
    FRUG_FAIL_IF(!t->dtype || !*t->dtype || strlen(t->dtype) > DTYPE_MOST, FRUG_ERR_ARG,
                 "delta: the dtype of tensor '%.80s' is missing or longer than %d bytes", t->name, DTYPE_MOST);
    FRUG_FAIL_IF(!is_width(t->width), FRUG_ERR_ARG, "delta: tensor '%.80s' has elements of %u bytes, not 1, 2, 4 or 8",
                 t->name, t->width);
    FRUG_FAIL_IF(t->ndim > FRUG_MAX_DIMS || !count_elements(t->ndim, t->shape, count), FRUG_ERR_ARG,
                 "delta: tensor '%.80s' has more than %d dimensions or 2^48 elements", t->name, FRUG_MAX_DIMS);
    return FRUG_OK;
}

size_t frugi_delta_body_offset(uint32_t ndim, size_t dtype_len, size_t name_len) {
    return (FIXED + 8 * (size_t)ndim + dtype_len + name_len + 7) / 8 * 8;
}

size_t frugi_delta_record_bytes(size_t body_offset, uint64_t body_len) {
    return (body_offset + body_len + FRUGI_DELTA_SLACK + 7) / 8 * 8;
}

/* The checksum of a record as if the field that holds it were zero. */
static uint32_t checksum(const unsigned char *record, size_t bytes) {
    static const unsigned char zero[4];
    uint32_t crc = frugi_crc32c(0, record, CHECKSUM_AT);
    crc = frugi_crc32c(crc, zero, sizeof zero);
    return frugi_crc32c(crc, record + CHECKSUM_AT + 4, bytes - CHECKSUM_AT - 4);
}

static void put_description(const frug_delta_tensor *t, unsigned char *at) {
    for (uint32_t d = 0; d < t->ndim; d++, at += 8)
        frugi_put64(at, t->shape[d]);
    memcpy(at, t->dtype, strlen(t->dtype));
    memcpy(at + strlen(t->dtype), t->name, strlen(t->name));
}

size_t frugi_delta_seal(const frug_delta_tensor *t, const frug_delta_info *info, unsigned char *record) {
    size_t dtype_len = t ? strlen(t->dtype) : 0, name_len = t ? strlen(t->name) : 0;
    size_t offset = frugi_delta_body_offset(t ? t->ndim : 0, dtype_len, name_len);
    size_t bytes = frugi_delta_record_bytes(offset, info->body_len), end = offset + (size_t)info->body_len;
    memset(record, 0, offset);
    memset(record + end, 0, bytes - end);
    memcpy(record, MAGIC, 4);
    record[4] = (unsigned char)info->kind;
    record[5] = (unsigned char)(t ? t->width : 0);
    record[6] = (unsigned char)(t ? t->ndim : 0);
    record[7] = (unsigned char)dtype_len;
    frugi_put64(record + 8, bytes);
    frugi_put32(record + 16, (uint32_t)name_len);
    frugi_put64(record + 24, info->base);
    frugi_put64(record + 32, info->result);
    frugi_put64(record + 40, info->entries);
    frugi_put64(record + 48, info->body_len);
    if (t)
        put_description(t, record + FIXED);
    frugi_put32(record + CHECKSUM_AT, checksum(record, bytes));
    return bytes;
}

uint64_t frug_delta_length(const void *bytes, size_t len) {
    return len >= FIXED && memcmp(bytes, MAGIC, 4) == 0 ? frugi_get64((const unsigned char *)bytes + 8) : 0;
}

static frug_status check_beginning(const unsigned char *p, size_t len) {
    FRUG_FAIL_IF(len < FIXED, FRUG_ERR_FORMAT, "delta: ends inside a record");
    FRUG_FAIL_IF(memcmp(p, MAGIC, 3) != 0, FRUG_ERR_FORMAT,
                 "delta: is not a patch, or not at the beginning of a record");
    FRUG_FAIL_IF(p[3] != MAGIC[3], FRUG_ERR_VERSION, "delta: has version '%c', and this release reads version '%c'",
                 p[3] > ' ' && p[3] < 127 ? p[3] : '?', MAGIC[3]);
    FRUG_FAIL_IF(frugi_get64(p + 8) > len, FRUG_ERR_FORMAT, "delta: ends inside a record");
    return FRUG_OK;
}

/* Check the fields of a record against its length; the body's place and length are set. */
static frug_status check_lengths(const unsigned char *p, frug_delta_info *info) {
    uint64_t bytes = info->bytes;
    size_t dtype_len = p[7], name_len = frugi_get32(p + 16);
    size_t offset = frugi_delta_body_offset(p[6], dtype_len, name_len);
    FRUG_FAIL_IF(p[4] < FRUG_DELTA_CHANGE || p[4] > FRUG_DELTA_END, FRUG_ERR_FORMAT, "delta: a record has kind %u",
                 p[4]);
    FRUG_FAIL_IF(p[6] > FRUG_MAX_DIMS || dtype_len > DTYPE_MOST || name_len > NAME_MOST, FRUG_ERR_FORMAT,
                 "delta: a record has %u dimensions, or too long a name", p[6]);
    info->body_len = frugi_get64(p + 48);
    FRUG_FAIL_IF(info->body_len > bytes || bytes > SIZE_MAX ||
                     frugi_delta_record_bytes(offset, info->body_len) != bytes,
                 FRUG_ERR_FORMAT, "delta: the lengths of a record contradict each other");
    FRUG_FAIL_IF(frugi_get32(p + CHECKSUM_AT) != checksum(p, (size_t)bytes), FRUG_ERR_CHECKSUM,
                 "delta: a record is damaged, its checksum is wrong");
    info->body = p + offset;
    info->name = (const char *)p + FIXED + 8 * (size_t)p[6] + dtype_len;
    info->name_len = name_len;
    memcpy(info->dtype, info->name - dtype_len, dtype_len);
    return FRUG_OK;
}

/* What a tensor's record has to fulfil beside its lengths. */
static frug_status check_content(frug_delta_info *info) {
    bool tensor = info->kind <= FRUG_DELTA_REMOVED;
    FRUG_FAIL_IF(tensor != (info->name_len > 0) || tensor != is_width(info->width) || tensor != (*info->dtype != 0),
                 FRUG_ERR_FORMAT, "delta: a record of kind %u has a wrong description of its tensor", info->kind);
    FRUG_FAIL_IF(!count_elements(info->ndim, info->shape, &info->count) ||
                     (tensor && memchr(info->name, 0, info->name_len)),
                 FRUG_ERR_FORMAT, "delta: the shape or the name of a tensor is invalid");
    uint64_t table = FRUGI_DELTA_CODE_BYTES * frugi_delta_chunks(info->count), all = info->count * info->width;
    bool valid = info->kind == FRUG_DELTA_CHANGE   ? info->body_len >= table && info->entries <= info->count
                 : info->kind == FRUG_DELTA_FULL   ? info->body_len == all && info->entries == info->count
                 : info->kind == FRUG_DELTA_HEADER ? info->entries == (info->body_len > 0)
                                                   : info->body_len == 0;
    FRUG_FAIL_IF(!valid, FRUG_ERR_FORMAT, "delta: the body of a record of kind %u has a wrong length", info->kind);
    return FRUG_OK;
}

frug_status frug_delta_read(const void *bytes, size_t len, frug_delta_info *info) {
    const unsigned char *p = bytes;
    FRUG_FAIL_IF(!bytes || !frugi_struct_valid(info), FRUG_ERR_ARG,
                 "frug_delta_read: an argument is NULL or has no size");
    FRUG_TRY(check_beginning(p, len));
    frug_delta_info read = {.struct_size = sizeof read,
                            .kind = (frug_delta_kind)p[4],
                            .bytes = frugi_get64(p + 8),
                            .width = p[5],
                            .ndim = p[6],
                            .base = frugi_get64(p + 24),
                            .result = frugi_get64(p + 32),
                            .entries = frugi_get64(p + 40)};
    FRUG_FAIL_IF(read.bytes < FIXED, FRUG_ERR_FORMAT, "delta: a record has a length of %u", (unsigned)read.bytes);
    FRUG_TRY(check_lengths(p, &read));
    for (uint32_t d = 0; d < read.ndim; d++)
        read.shape[d] = frugi_get64(p + FIXED + 8 * d);
    FRUG_TRY(check_content(&read));
    frugi_struct_write(info, &read);
    return FRUG_OK;
}

/* One number for a tensor with its name, or for the header of a file, in one version. */
static uint64_t identity(const frug_delta_info *info, uint64_t hash) {
    hash = frugi_delta_hash_word(hash, frugi_delta_hash_bytes(info->name, info->name_len));
    hash = frugi_delta_hash_word(hash, frugi_delta_hash_bytes(info->dtype, strlen(info->dtype)));
    for (uint32_t d = 0; d < info->ndim; d++)
        hash = frugi_delta_hash_word(hash, info->shape[d]);
    return hash;
}

void frug_delta_add(frug_delta_totals *totals, const frug_delta_info *info) {
    totals->records++;
    if (info->kind == FRUG_DELTA_CHANGE || info->kind == FRUG_DELTA_REMOVED)
        totals->base += identity(info, info->base);
    if (info->kind == FRUG_DELTA_CHANGE || info->kind == FRUG_DELTA_FULL)
        totals->result += identity(info, info->result);
}

/*
 * tensor_file.c - safetensors files in chunks: the header is read and checked whole, the data by pread() on demand.
 * Compact files are read and checked whole.
 *
 * Mapping the file would be shorter, but a mapped file that is truncated by another process kills this one.
 */
#include "io/tensor_file.h"

#include "frugrad/compact.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, PACKED_COLUMNS_MOST = 65536 /* of frug_sparse_create() */ };

static int read_bytes(const fgio_tensor_file *file, uint64_t offset, void *dst, size_t bytes) {
    unsigned char *to = dst;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fgio_error("%s: cannot read: %s", file->path, strerror(errno));
        if (got == 0)
            return fgio_error("%s: ends at byte %" PRIu64 ", %zu bytes early", file->path, offset, bytes);
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return FGIO_EXIT_OK;
}

int fgio_tensor_file_read(const fgio_tensor_file *file, uint64_t offset, void *dst, size_t bytes) {
    if (file->compact.data != NULL) {
        fgio_error("%s: is a compact file, where a safetensors file is needed", file->path);
        fgio_hint("frugrad export %s -o FILE.safetensors makes one of it", file->path);
        return FGIO_EXIT_FAIL;
    }
    return read_bytes(file, offset, dst, bytes);
}

/* ---- compact files ------------------------------------------------------------------------------ */

static frug_compact_info read_record(const fgio_tensor_file *file, uint64_t offset) {
    frug_compact_info info = {.struct_size = sizeof info};
    if (frug_compact_read(file->compact.data + offset, file->compact.len - (size_t)offset, &info) != FRUG_OK)
        info.bytes = 0; /* not possible: the file was checked */
    return info;
}

/* The items, in the order of the records. */
static int list_records(fgio_tensor_file *file, size_t count) {
    uint64_t at = 0;
    file->head.item = calloc(count + 1, sizeof *file->head.item);
    file->out_of_memory = file->head.item == NULL;
    for (size_t i = 0; i < count && !file->out_of_memory; i++) {
        frug_compact_info info = read_record(file, at);
        fgio_tensor *item = &file->head.item[i];
        *item = (fgio_tensor){.dtype = FGIO_F32, .word = "F32", .ndim = info.ndim, .count = info.count, .offset = at};
        memcpy(item->shape, info.shape, sizeof item->shape);
        item->name = strndup(info.name, info.name_len);
        file->out_of_memory = item->name == NULL;
        file->head.count++;
        at += info.bytes;
    }
    return file->out_of_memory ? fgio_error("%s: not enough memory", file->path) : FGIO_EXIT_OK;
}

static int read_compact(fgio_tensor_file *file) {
    frug_compact_totals totals;
    file->compact.data = malloc((size_t)file->len);
    file->compact.len = (size_t)file->len;
    file->out_of_memory = file->compact.data == NULL;
    if (file->out_of_memory)
        return fgio_error("%s: not enough memory for its %" PRIu64 " bytes", file->path, file->len);
    int code = read_bytes(file, 0, file->compact.data, file->compact.len);
    if (code == FGIO_EXIT_OK && frug_compact_check(file->compact.data, file->compact.len, &totals) != FRUG_OK)
        code = fgio_library_error(file->path);
    return code == FGIO_EXIT_OK ? list_records(file, (size_t)totals.records) : code;
}

int fgio_tensor_file_pack(const fgio_tensor_file *file, const fgio_tensor *item, bool input_first,
                          frug_sparse **matrix) {
    *matrix = NULL;
    if (file->compact.data == NULL)
        return FGIO_EXIT_OK;
    frug_compact_info info = read_record(file, item->offset);
    if (info.code == FRUG_COMPACT_F32 || info.ndim != 2 || (info.input_first != 0) != input_first ||
        info.cols > PACKED_COLUMNS_MOST)
        return FGIO_EXIT_OK;
    return frug_compact_pack(&info, matrix) == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error(file->path);
}

/* ---- safetensors -------------------------------------------------------------------------------- */

static int read_header(fgio_tensor_file *file) {
    unsigned char length[FGIO_SAFETENSORS_LENGTH] = {0};
    fgio_reason why;
    size_t known = file->len < sizeof length ? (size_t)file->len : sizeof length;
    int code = read_bytes(file, 0, length, known);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_compact_is(length, known))
        return read_compact(file);
    file->data = fgio_safetensors_head_bytes(length, known, file->len, &why);
    if (file->data == 0)
        return fgio_error("%s: %s", file->path, why.text);
    unsigned char *bytes = malloc((size_t)file->data);
    file->out_of_memory = bytes == NULL;
    if (bytes == NULL)
        return fgio_error("%s: not enough memory for its header", file->path);
    code = read_bytes(file, 0, bytes, (size_t)file->data);
    int bad =
        code == FGIO_EXIT_OK ? fgio_safetensors_parse_head(bytes, (size_t)file->data, file->len, &file->head, &why) : 0;
    file->out_of_memory = bad == FGIO_SAFETENSORS_NO_MEMORY;
    if (bad)
        code = fgio_error("%s: %s", file->path, why.text);
    free(bytes);
    return code;
}

static int open_path(const char *path, fgio_tensor_file *file) {
    struct stat st;
    file->path = strdup(path);
    file->out_of_memory = file->path == NULL;
    if (file->path == NULL)
        return fgio_error("%s: out of memory", path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a pipe, which is rejected below */
    if (file->fd < 0 || fstat(file->fd, &st) != 0)
        return fgio_error("%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) {
        fgio_error("%s: is %s, not a safetensors file", path, S_ISDIR(st.st_mode) ? "a directory" : "no plain file");
        if (S_ISDIR(st.st_mode))
            fgio_hint("--weights takes a file; --resume takes a directory of checkpoints as well");
        return FGIO_EXIT_FAIL;
    }
    file->len = (uint64_t)st.st_size;
    return read_header(file);
}

int fgio_tensor_file_open(const char *path, fgio_tensor_file *file) {
    *file = (fgio_tensor_file)FGIO_TENSOR_FILE_CLOSED;
    int code = open_path(path, file);
    if (code != FGIO_EXIT_OK) {
        bool out_of_memory = file->out_of_memory;
        fgio_tensor_file_close(file);
        file->out_of_memory = out_of_memory;
    }
    return code;
}

void fgio_tensor_file_close(fgio_tensor_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    fgio_safetensors_free(&file->head);
    fgio_bytes_free(&file->compact);
    *file = (fgio_tensor_file)FGIO_TENSOR_FILE_CLOSED;
}

/* The first elements of a tensor: a model for shorter texts has fewer positions. */
static int read_part(const fgio_tensor_file *file, const frug_compact_info *info, uint64_t count, float *dst) {
    float *all = malloc((size_t)info->count * sizeof *all);
    if (all == NULL)
        return fgio_error("%s: not enough memory", file->path);
    frug_compact_decode(info, all);
    memcpy(dst, all, (size_t)count * sizeof *dst);
    free(all);
    return FGIO_EXIT_OK;
}

int fgio_tensor_file_read_f32(const fgio_tensor_file *file, const fgio_tensor *item, float *dst) {
    unsigned char bytes[CHUNK];
    size_t size = fgio_dtype_size(item->dtype);
    if (file->compact.data != NULL) {
        frug_compact_info info = read_record(file, item->offset);
        if (item->count == info.count) {
            frug_compact_decode(&info, dst);
            return FGIO_EXIT_OK;
        }
        return read_part(file, &info, item->count, dst);
    }
    for (uint64_t at = 0; at < item->count;) {
        uint64_t some = item->count - at < CHUNK / size ? item->count - at : CHUNK / size;
        fgio_tensor chunk = {.dtype = item->dtype, .ndim = 1, .shape = {some}, .count = some, .data = bytes};
        int code = fgio_tensor_file_read(file, item->offset + at * size, bytes, (size_t)some * size);
        if (code != FGIO_EXIT_OK)
            return code;
        fgio_tensor_to_f32(&chunk, dst + at);
        at += some;
    }
    return FGIO_EXIT_OK;
}

/*
 * Safetensors files piece by piece: the header is read and checked whole, the data by pread() where it is wanted.
 * Mapping the file would be shorter, but a mapped file that shrinks under us kills the program.
 */
#include "io/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

int frugi_tensor_file_read(const frugi_tensor_file *file, uint64_t place, void *dst, size_t bytes) {
    unsigned char *to = dst;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)place);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return frugi_error("%s: cannot read: %s", file->path, strerror(errno));
        if (got == 0)
            return frugi_error("%s: ends at byte %" PRIu64 ", %zu bytes early", file->path, place, bytes);
        to += got;
        place += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return FRUGI_EXIT_OK;
}

static int read_head(frugi_tensor_file *file) {
    unsigned char length[FRUGI_SAFETENSORS_LENGTH] = {0};
    frugi_why why;
    size_t known = file->len < sizeof length ? (size_t)file->len : sizeof length;
    int code = frugi_tensor_file_read(file, 0, length, known);
    if (code != FRUGI_EXIT_OK)
        return code;
    file->data = frugi_safetensors_head_bytes(length, known, file->len, &why);
    if (file->data == 0)
        return frugi_error("%s: %s", file->path, why.text);
    unsigned char *bytes = malloc((size_t)file->data);
    if (bytes == NULL)
        return frugi_error("%s: not enough memory for its header", file->path);
    code = frugi_tensor_file_read(file, 0, bytes, (size_t)file->data);
    if (code == FRUGI_EXIT_OK &&
        frugi_safetensors_parse_head(bytes, (size_t)file->data, file->len, &file->head, &why) != 0)
        code = frugi_error("%s: %s", file->path, why.text);
    free(bytes);
    return code;
}

static int open_path(const char *path, frugi_tensor_file *file) {
    struct stat st;
    file->path = strdup(path);
    if (file->path == NULL)
        return frugi_error("%s: out of memory", path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused below instead of waited for */
    if (file->fd < 0 || fstat(file->fd, &st) != 0)
        return frugi_error("%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) {
        frugi_error("%s: is %s, not a safetensors file", path, S_ISDIR(st.st_mode) ? "a directory" : "no plain file");
        if (S_ISDIR(st.st_mode))
            frugi_hint("--weights takes a file; --resume takes a directory of checkpoints as well");
        return FRUGI_EXIT_FAIL;
    }
    file->len = (uint64_t)st.st_size;
    return read_head(file);
}

int frugi_tensor_file_open(const char *path, frugi_tensor_file *file) {
    *file = (frugi_tensor_file)FRUGI_TENSOR_FILE_CLOSED;
    int code = open_path(path, file);
    if (code != FRUGI_EXIT_OK)
        frugi_tensor_file_close(file);
    return code;
}

void frugi_tensor_file_close(frugi_tensor_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    frugi_safetensors_free(&file->head);
    *file = (frugi_tensor_file)FRUGI_TENSOR_FILE_CLOSED;
}

int frugi_tensor_file_floats(const frugi_tensor_file *file, const frugi_item *item, float *dst) {
    unsigned char bytes[PIECE];
    size_t size = frugi_dtype_size(item->dtype);
    for (uint64_t at = 0; at < item->count;) {
        uint64_t some = item->count - at < PIECE / size ? item->count - at : PIECE / size;
        frugi_item piece = {.dtype = item->dtype, .ndim = 1, .shape = {some}, .count = some, .data = bytes};
        int code = frugi_tensor_file_read(file, item->place + at * size, bytes, (size_t)some * size);
        if (code != FRUGI_EXIT_OK)
            return code;
        frugi_item_to_f32(&piece, dst + at);
        at += some;
    }
    return FRUGI_EXIT_OK;
}

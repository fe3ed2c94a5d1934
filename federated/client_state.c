/* client_state.c - a client's residual and its update in flight, on disk. */
#include "federated/client_state.h"

#include "base/crc32c.h"
#include "base/float_bits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int path_of(const char *dir, const char *name, char *path, fgio_reason *why) {
    int length = snprintf(path, FGF_PATH_MAX, "%s/%s", dir, name);
    return length < FGF_PATH_MAX ? 0 : fgio_fail(why, "the name of the directory is too long");
}

void fgf_client_file_free(fgf_client_file *file) {
    fgio_bytes_free(&file->bytes);
    *file = (fgf_client_file){0};
}

int fgf_client_file_read(const char *dir, const char *name, const fgf_run_id *run, fgf_client_file *file,
                         fgio_reason *why) {
    char path[FGF_PATH_MAX];
    fgf_client_file f = {0};
    fgio_reason detail;
    if (path_of(dir, name, path, why) != 0)
        return -1;
    if (!fgio_file_exists(path))
        return 0;
    if (fgio_file_read(path, &f.bytes) != FGIO_EXIT_OK)
        return fgio_fail(why, "%s cannot be read", path);
    int status = fgf_update_parse(f.bytes.data, f.bytes.len, &f.update, &detail);
    if (status == 0 && f.update.bytes > f.bytes.len - FGF_UPDATE_HEADER)
        status = fgio_fail(&detail, "it ends early");
    if (status != 0)
        fgio_fail(why, "%s: %s", path, detail.text);
    else if (memcmp(&f.update.run, run, sizeof *run) == 0)
        status = 1;
    if (status != 1) {
        fgf_client_file_free(&f);
        return status;
    }
    f.frame = (fgf_span){f.bytes.data + FGF_UPDATE_HEADER, f.update.bytes};
    f.residual = (fgf_span){f.frame.data + f.frame.len, f.bytes.len - FGF_UPDATE_HEADER - f.frame.len};
    *file = f;
    return 1;
}

int fgf_client_pending_write(const char *dir, const fgf_update *update, const void *frame, const void *residual,
                             size_t residual_len, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    unsigned char header[FGF_UPDATE_HEADER];
    fgio_writer writer = FGIO_WRITER_CLOSED;
    if (path_of(dir, "pending", path, why) != 0)
        return -1;
    fgf_update_encode(update, header);
    int status = fgio_writer_open(path, &writer);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, header, sizeof header);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, frame, update->bytes);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, residual, residual_len);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_commit(&writer);
    else
        fgio_writer_abort(&writer);
    return status == FGIO_EXIT_OK
               ? 0
               : fgio_fail(why, "%s cannot be written: when there is room on the disk, join again", path);
}

/* Header: magic, run, version, CRC-32C of the weights, CRC-32C of what is before. */
#define WEIGHTS_HEADER 40u
static const char weights_magic[8] = {'F', 'R', 'U', 'G', 'W', 'T', 'S', '1'};

bool fgf_client_weights_read(const char *dir, const fgf_run_id *run, uint64_t count, uint64_t *version,
                             float *weights) {
    char path[FGF_PATH_MAX];
    fgio_bytes file = {0};
    fgio_reason why;
    if (path_of(dir, "weights", path, &why) != 0 || !fgio_file_exists(path) ||
        fgio_file_read(path, &file) != FGIO_EXIT_OK)
        return false;
    const unsigned char *h = file.data;
    size_t len = count * sizeof *weights;
    bool fits = file.len == WEIGHTS_HEADER + len && memcmp(h, weights_magic, sizeof weights_magic) == 0 &&
                memcmp(h + 8, run, sizeof *run) == 0 && frugi_get32(h + 36) == frugi_crc32c(0, h, 36) &&
                frugi_get32(h + 32) == frugi_crc32c(0, h + WEIGHTS_HEADER, len);
    if (fits) {
        *version = frugi_get64(h + 24);
        memcpy(weights, h + WEIGHTS_HEADER, len);
    }
    fgio_bytes_free(&file);
    return fits;
}

void fgf_client_weights_write(const char *dir, const fgf_run_id *run, uint64_t count, uint64_t version,
                              const float *weights) {
    char path[FGF_PATH_MAX];
    unsigned char h[WEIGHTS_HEADER];
    fgio_writer writer = FGIO_WRITER_CLOSED;
    fgio_reason why;
    size_t len = count * sizeof *weights;
    if (path_of(dir, "weights", path, &why) != 0)
        return;
    memcpy(h, weights_magic, sizeof weights_magic);
    memcpy(h + 8, run, sizeof *run);
    frugi_put64(h + 24, version);
    frugi_put32(h + 32, frugi_crc32c(0, weights, len));
    frugi_put32(h + 36, frugi_crc32c(0, h, 36));
    if (fgio_writer_open(path, &writer) == FGIO_EXIT_OK && fgio_writer_put(&writer, h, sizeof h) == FGIO_EXIT_OK &&
        fgio_writer_put(&writer, weights, len) == FGIO_EXIT_OK)
        fgio_writer_commit(&writer);
    else
        fgio_writer_abort(&writer);
}

static int sync_directory(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = fd >= 0 ? fsync(fd) : -1;
    if (fd >= 0)
        close(fd);
    return status;
}

int fgf_client_pending_confirm(const char *dir, fgio_reason *why) {
    char from[FGF_PATH_MAX], to[FGF_PATH_MAX];
    if (path_of(dir, "pending", from, why) != 0 || path_of(dir, "confirmed", to, why) != 0)
        return -1;
    if (rename(from, to) != 0 || sync_directory(dir) != 0)
        return fgio_fail(why, "%s: %s", to, strerror(errno));
    return 0;
}

int fgf_client_pending_drop(const char *dir, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    if (path_of(dir, "pending", path, why) != 0)
        return -1;
    if ((unlink(path) != 0 && errno != ENOENT) || sync_directory(dir) != 0)
        return fgio_fail(why, "%s: %s", path, strerror(errno));
    return 0;
}

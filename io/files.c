/*
 * files.c - reading and writing whole files.
 *
 * Reading copies instead of mapping: a mapped file that is truncated by another process would kill this one. Writing
 * goes through a temporary file and rename(), so that a full disk, an error found late or an interrupt never leaves
 * half a file under the user's name.
 */
#include "io/files.h"
#include "io/end_signals.h"
#include "io/error.h"
#include "io/progress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY_PREFIX ".frugrad-"

enum { SLOTS = 1024, CHUNK = 1 << 26, FIRST_READ = 1 << 16, LARGE = 1 << 24 };

#define LOCK_TRIES    40 /* two seconds */
#define LOCK_PAUSE_NS 50000000

/* Temporary files in use, by any thread. The signal handler reads them, so they are static and never freed; memory that
 * was never used costs nothing. */
static char slot_path[SLOTS][PATH_MAX];
enum { SLOT_FREE, SLOT_TAKEN, SLOT_NAMED }; /* taken: its name is being written */
static _Atomic int slot_state[SLOTS];

static void remove_temporaries(int signal_number) {
    for (int i = 0; i < SLOTS; i++)
        if (atomic_load(&slot_state[i]) == SLOT_NAMED)
            unlink(slot_path[i]);
    signal(signal_number, SIG_DFL);
    raise(signal_number); /* end with the signal, as the sender expects */
}

void fgio_files_init(void) {
    const struct sigaction action = {.sa_handler = remove_temporaries};
    struct sigaction before[FGIO_END_SIGNALS];
    fgio_end_signals_catch(&action, before);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

void fgio_bytes_free(fgio_bytes *bytes) {
    free(bytes->data);
    *bytes = (fgio_bytes){NULL, 0};
}

static int is_stdio(const char *path) {
    return strcmp(path, "-") == 0;
}

const char *fgio_input_name(const char *path) {
    return is_stdio(path) ? "standard input" : path;
}

/* Read to the end of fd into a buffer that starts with room for the expected size. */
static int read_bytes(int fd, const char *name, size_t expected, fgio_progress *meter, fgio_bytes *bytes) {
    size_t cap = expected + 1, len = 0; /* one more byte, so that end of file is seen without growing */
    unsigned char *data = malloc(cap);
    while (data != NULL) {
        fgio_progress_update(meter, len);
        ssize_t got = read(fd, data + len, cap - len < CHUNK ? cap - len : CHUNK);
        if (got == 0) {
            *bytes = (fgio_bytes){data, len};
            return FGIO_EXIT_OK;
        }
        if (got < 0) {
            if (errno == EINTR)
                continue;
            free(data);
            return fgio_error("%s: cannot read: %s", name, strerror(errno));
        }
        len += (size_t)got;
        if (len == cap) {
            unsigned char *grown = cap > SIZE_MAX / 2 ? NULL : realloc(data, 2 * cap);
            if (grown == NULL)
                free(data);
            data = grown;
            cap *= 2;
        }
    }
    return fgio_error("%s: not enough memory to read it (over %zu bytes)", name, cap - 1);
}

static int read_all(int fd, const char *name, size_t expected, fgio_bytes *bytes) {
    int known = expected != FIRST_READ;
    fgio_progress *meter =
        known && expected < LARGE ? NULL : fgio_progress_begin(known ? expected : 0, "reading %s", name);
    int code = read_bytes(fd, name, expected, meter, bytes);
    fgio_progress_end(meter);
    return code;
}

int fgio_file_read(const char *path, fgio_bytes *bytes) {
    struct stat st;
    if (is_stdio(path))
        return read_all(STDIN_FILENO, fgio_input_name(path), FIRST_READ, bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fgio_error("%s: cannot open: %s", path, strerror(errno));
    int code;
    if (fstat(fd, &st) != 0)
        code = fgio_error("%s: cannot open: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode))
        code = fgio_error("%s: is a directory", path);
    else
        code = read_all(fd, path, st.st_size > 0 ? (size_t)st.st_size : FIRST_READ, bytes);
    close(fd);
    return code;
}

int fgio_file_exists(const char *path) {
    struct stat st;
    return !is_stdio(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int fgio_file_same(const char *a, const char *b) {
    struct stat sa, sb;
    if (is_stdio(a) || is_stdio(b) || stat(a, &sa) != 0 || stat(b, &sb) != 0)
        return 0;
    return S_ISREG(sa.st_mode) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* A slot of this thread; SLOTS: there is none. */
static int take_slot(void) {
    for (int slot = 0; slot < SLOTS; slot++) {
        int expected = SLOT_FREE;
        if (atomic_compare_exchange_strong(&slot_state[slot], &expected, SLOT_TAKEN))
            return slot;
    }
    return SLOTS;
}

/* Make the temporary file beside the target. The name is in its slot before the file exists, for the signal handler. */
static int open_temporary(fgio_writer *writer, mode_t mode) {
    int slot = take_slot();
    if (slot == SLOTS)
        return fgio_error("%s: too many files open for writing", writer->path);
    const char *slash = strrchr(writer->target, '/');
    int folder = slash == NULL ? 0 : (int)(slash - writer->target) + 1;
    int length = snprintf(slot_path[slot], PATH_MAX, "%.*s" TEMPORARY_PREFIX "XXXXXX", folder, writer->target);
    if (length < 0 || length >= PATH_MAX) {
        atomic_store(&slot_state[slot], SLOT_FREE);
        return fgio_error("%s: cannot write: %s", writer->path, strerror(ENAMETOOLONG));
    }
    atomic_store(&slot_state[slot], SLOT_NAMED);
    writer->fd = mkstemp(slot_path[slot]);
    if (writer->fd < 0) {
        int cause = errno;
        atomic_store(&slot_state[slot], SLOT_FREE);
        return fgio_error("%s: cannot write: %s", writer->path, strerror(cause));
    }
    writer->tmp = slot_path[slot];
    flock(writer->fd, LOCK_EX | LOCK_NB); /* released when the process ends: see fgio_directory_clean() */
    fchmod(writer->fd, mode);             /* mkstemp makes private files */
    return FGIO_EXIT_OK;
}

static void release_slot(fgio_writer *writer) {
    atomic_store(&slot_state[(writer->tmp - slot_path[0]) / PATH_MAX], SLOT_FREE);
    writer->tmp = NULL;
}

static int open_direct(fgio_writer *writer) {
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC);
    if (writer->fd < 0)
        return fgio_error("%s: cannot write: %s", writer->path, strerror(errno));
    return FGIO_EXIT_OK;
}

static int open_path(fgio_writer *writer) {
    struct stat st;
    if (stat(writer->path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return fgio_error("%s: cannot write: is a directory", writer->path);
        if (!S_ISREG(st.st_mode))
            return open_direct(writer);
        writer->target = realpath(writer->path, NULL); /* replace the target of a link, not the link */
        st.st_mode &= 0777;
    } else {
        mode_t mask = umask(0);
        umask(mask);
        st.st_mode = 0666 & ~mask;
        writer->target = strdup(writer->path);
    }
    if (writer->target == NULL)
        return fgio_error("%s: cannot write: %s", writer->path, strerror(errno));
    return open_temporary(writer, st.st_mode);
}

int fgio_writer_open(const char *path, fgio_writer *writer) {
    *writer = (fgio_writer)FGIO_WRITER_CLOSED;
    if (is_stdio(path)) {
        writer->path = strdup("standard output");
        writer->fd = STDOUT_FILENO;
        return FGIO_EXIT_OK;
    }
    writer->path = strdup(path);
    int code = writer->path == NULL ? fgio_error("%s: out of memory", path) : open_path(writer);
    if (code != FGIO_EXIT_OK)
        fgio_writer_abort(writer);
    return code;
}

int fgio_writer_put(fgio_writer *writer, const void *data, size_t len) {
    const unsigned char *at = data;
    while (len > 0) {
        ssize_t put = write(writer->fd, at, len < CHUNK ? len : CHUNK);
        if (put < 0 && errno != EINTR)
            return fgio_error("%s: cannot write: %s", writer->path, strerror(errno));
        if (put > 0) {
            at += put;
            len -= (size_t)put;
        }
    }
    return FGIO_EXIT_OK;
}

int fgio_writer_put_f32(fgio_writer *writer, const float *data, size_t count) {
    unsigned char buffer[1 << 16];
    while (count > 0) {
        size_t some = count < sizeof buffer / 4 ? count : sizeof buffer / 4;
        for (size_t i = 0; i < some; i++) {
            uint32_t bits;
            memcpy(&bits, data + i, 4);
            for (unsigned b = 0; b < 4; b++)
                buffer[4 * i + b] = (unsigned char)(bits >> 8 * b);
        }
        int code = fgio_writer_put(writer, buffer, 4 * some);
        if (code != FGIO_EXIT_OK)
            return code;
        data += some;
        count -= some;
    }
    return FGIO_EXIT_OK;
}

int fgio_writer_sync(fgio_writer *writer) {
    if (writer->tmp != NULL && fsync(writer->fd) != 0)
        return fgio_error("%s: cannot write: %s", writer->path, strerror(errno));
    return FGIO_EXIT_OK;
}

/* fsync() the directory of a path, so that a rename is durable. Errors are ignored: some file systems do not support
 * it. */
static void sync_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char *folder = slash == NULL ? strdup(".") : strndup(path, length);
    int fd = folder == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

int fgio_writer_commit(fgio_writer *writer) {
    int code = fgio_writer_sync(writer);
    if (code == FGIO_EXIT_OK && writer->fd != STDOUT_FILENO) {
        int fd = writer->fd;
        writer->fd = -1;
        if (close(fd) != 0)
            code = fgio_error("%s: cannot write: %s", writer->path, strerror(errno));
    }
    if (code == FGIO_EXIT_OK && writer->tmp != NULL) {
        if (rename(writer->tmp, writer->target) != 0)
            code = fgio_error("%s: cannot write: %s", writer->path, strerror(errno));
        else {
            release_slot(writer);
            sync_folder_of(writer->target);
        }
    }
    fgio_writer_abort(writer);
    return code;
}

void fgio_writer_abort(fgio_writer *writer) {
    if (writer->fd >= 0 && writer->fd != STDOUT_FILENO)
        close(writer->fd);
    if (writer->tmp != NULL) {
        unlink(writer->tmp);
        release_slot(writer);
    }
    free(writer->path);
    free(writer->target);
    *writer = (fgio_writer)FGIO_WRITER_CLOSED;
}

int fgio_file_write(const char *path, const void *data, size_t len) {
    fgio_writer writer;
    int code = fgio_writer_open(path, &writer);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_put(&writer, data, len);
    if (code == FGIO_EXIT_OK)
        code = fgio_writer_commit(&writer);
    fgio_writer_abort(&writer);
    return code;
}

int fgio_directory_make(const char *path) {
    struct stat st;
    char *part = strdup(path);
    if (part == NULL)
        return fgio_error("%s: out of memory", path);
    int error = 0;
    for (char *p = part + (*part == '/'); !error; p++) {
        char end = *p;
        if (end != '/' && end != '\0')
            continue;
        *p = '\0';
        if (mkdir(part, 0777) == 0)
            sync_folder_of(part);
        else if (errno != EEXIST)
            error = errno;
        *p = end;
        if (end == '\0')
            break;
    }
    free(part);
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        error = ENOTDIR;
    return error ? fgio_error("%s: cannot make the directory: %s", path, strerror(error)) : FGIO_EXIT_OK;
}

int fgio_lock(int fd) {
    int status = flock(fd, LOCK_EX | LOCK_NB);
    for (int i = 0; status != 0 && errno == EWOULDBLOCK && i < LOCK_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
        status = flock(fd, LOCK_EX | LOCK_NB);
    }
    return status;
}

/* Whether no process holds the lock of a temporary file. */
static int is_abandoned(int folder, const char *name) {
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;
    int unlocked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return unlocked;
}

void fgio_directory_clean(const char *path) {
    const size_t prefix = sizeof TEMPORARY_PREFIX - 1, random_letters = 6;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, TEMPORARY_PREFIX, prefix) == 0 && strlen(entry->d_name) == prefix + random_letters &&
            is_abandoned(dirfd(folder), entry->d_name))
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

/* update_file.c - updates of clients on disk. */
#include "federated/update_file.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "io/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'F', 'R', 'U', 'G', 'U', 'P', 'D', '1'};
#define CHECKED (FGF_UPDATE_HEADER - 4u)

void fgf_update_encode(const fgf_update *u, unsigned char header[FGF_UPDATE_HEADER]) {
    memset(header, 0, FGF_UPDATE_HEADER);
    memcpy(header, magic, sizeof magic);
    memcpy(header + 8, u->run.bytes, FGF_RUN_ID);
    memcpy(header + 24, u->client.bytes, FGF_PUBLIC_BYTES);
    const uint64_t numbers[] = {u->base, u->upload, u->examples, u->bytes, u->entries, u->checksum};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        frugi_put64(header + 56 + 8 * i, numbers[i]);
    memcpy(header + 104, &u->loss, 8);
    memcpy(header + 112, &u->norm, 8);
    frugi_put32(header + CHECKED, frugi_crc32c(0, header, CHECKED));
}

int fgf_update_parse(const unsigned char *header, size_t len, fgf_update *u, fgio_reason *why) {
    if (len < FGF_UPDATE_HEADER || memcmp(header, magic, sizeof magic) != 0)
        return fgio_fail(why, "this is no update");
    if (frugi_get32(header + CHECKED) != frugi_crc32c(0, header, CHECKED))
        return fgio_fail(why, "the header of the update is damaged");
    memcpy(u->run.bytes, header + 8, FGF_RUN_ID);
    memcpy(u->client.bytes, header + 24, FGF_PUBLIC_BYTES);
    u->base = frugi_get64(header + 56);
    u->upload = frugi_get64(header + 64);
    u->examples = frugi_get64(header + 72);
    u->bytes = frugi_get64(header + 80);
    u->entries = frugi_get64(header + 88);
    u->checksum = (uint32_t)frugi_get64(header + 96);
    memcpy(&u->loss, header + 104, 8);
    memcpy(&u->norm, header + 112, 8);
    return 0;
}

static void hex_of(const fgf_public_key *key, char *dst) {
    for (int i = 0; i < FGF_PUBLIC_BYTES; i++)
        sprintf(dst + 2 * i, "%02x", key->bytes[i]);
}

static int part_path(const char *dir, const fgf_public_key *client, char *path) {
    char hex[2 * FGF_PUBLIC_BYTES + 1];
    hex_of(client, hex);
    return snprintf(path, FGF_PATH_MAX, "%s/incoming/%s.part", dir, hex);
}

static int final_path(const char *dir, uint64_t round, const fgf_update *u, char *path) {
    char hex[2 * FGF_PUBLIC_BYTES + 1];
    hex_of(&u->client, hex);
    return snprintf(path, FGF_PATH_MAX, "%s/round-%llu/%s-%llu.update", dir, (unsigned long long)round, hex,
                    (unsigned long long)u->base);
}

/* The name of an entry of a directory; false where it is too long. */
static bool entry_path(const char *dir, const char *name, char *path) {
    int length = snprintf(path, FGF_PATH_MAX, "%s/%s", dir, name);
    return length > 0 && length < FGF_PATH_MAX;
}

static int read_header(int fd, fgf_update *u, fgio_reason *why) {
    unsigned char header[FGF_UPDATE_HEADER];
    ssize_t got = pread(fd, header, sizeof header, 0);
    return fgf_update_parse(header, got < 0 ? 0 : (size_t)got, u, why);
}

static bool is_same_update(const fgf_update *a, const fgf_update *b) {
    return memcmp(&a->run, &b->run, sizeof a->run) == 0 && a->base == b->base && a->upload == b->upload &&
           a->bytes == b->bytes && a->checksum == b->checksum;
}

static int write_at(int fd, const void *data, size_t len, uint64_t at) {
    const unsigned char *from = data;
    while (len > 0) {
        ssize_t put = pwrite(fd, from, len, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        from += put;
        at += (uint64_t)put;
        len -= (size_t)put;
    }
    return 0;
}

int fgf_update_begin(const char *dir, const fgf_update *update, uint64_t *have, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    unsigned char header[FGF_UPDATE_HEADER];
    fgf_update old;
    struct stat info;
    part_path(dir, &update->client, path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &info) != 0) {
        fgio_fail(why, "%s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    uint64_t size = (uint64_t)info.st_size;
    if (size >= FGF_UPDATE_HEADER && size <= FGF_UPDATE_HEADER + update->bytes && read_header(fd, &old, why) == 0 &&
        is_same_update(&old, update)) {
        *have = size - FGF_UPDATE_HEADER;
        return fd;
    }
    fgf_update_encode(update, header);
    if (ftruncate(fd, 0) != 0 || write_at(fd, header, sizeof header, 0) != 0) {
        fgio_fail(why, "%s", strerror(errno));
        close(fd);
        unlink(path);
        return -1;
    }
    *have = 0;
    return fd;
}

int fgf_update_write(int fd, uint64_t offset, const void *data, size_t len, fgio_reason *why) {
    return write_at(fd, data, len, FGF_UPDATE_HEADER + offset) == 0 ? 0 : fgio_fail(why, "%s", strerror(errno));
}

int fgf_update_read(int fd, const fgf_update *update, void *dst, fgio_reason *why) {
    unsigned char *to = dst;
    for (uint64_t at = 0; at < update->bytes;) {
        ssize_t got = pread(fd, to + at, update->bytes - at, (off_t)(FGF_UPDATE_HEADER + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fgio_fail(why, "an update cannot be read: %s", got < 0 ? strerror(errno) : "it ends early");
        at += (uint64_t)got;
    }
    return 0;
}

static int sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = fd >= 0 ? fsync(fd) : -1;
    if (fd >= 0)
        close(fd);
    return status;
}

/* Both the new directory and the entry of the file in it must be on disk before the client is told. */
int fgf_update_finish(const char *dir, int fd, const fgf_update *update, uint64_t round, fgio_reason *why) {
    char from[FGF_PATH_MAX], to[FGF_PATH_MAX], folder[FGF_PATH_MAX];
    unsigned char header[FGF_UPDATE_HEADER];
    part_path(dir, &update->client, from);
    final_path(dir, round, update, to);
    snprintf(folder, sizeof folder, "%s/round-%llu", dir, (unsigned long long)round);
    fgf_update_encode(update, header);
    bool made = mkdir(folder, 0700) == 0;
    if ((!made && errno != EEXIST) || (made && sync_directory(dir) != 0) ||
        write_at(fd, header, sizeof header, 0) != 0 || fsync(fd) != 0 || rename(from, to) != 0 ||
        sync_directory(folder) != 0)
        return fgio_fail(why, "%s", strerror(errno));
    return 0;
}

void fgf_update_abandon(const char *dir, const fgf_public_key *client) {
    char path[FGF_PATH_MAX];
    part_path(dir, client, path);
    unlink(path);
}

int fgf_update_open(const char *dir, uint64_t round, const fgf_update *update, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    final_path(dir, round, update, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd : fgio_fail(why, "%s: %s", path, strerror(errno));
}

int fgf_update_take_back(const char *dir, uint64_t round, fgio_reason *why) {
    char from[FGF_PATH_MAX], to[FGF_PATH_MAX], old_path[FGF_PATH_MAX], new_path[FGF_PATH_MAX];
    struct dirent *entry;
    int status = 0;
    snprintf(from, sizeof from, "%s/round-%llu", dir, (unsigned long long)round + 1);
    snprintf(to, sizeof to, "%s/round-%llu", dir, (unsigned long long)round);
    DIR *folder = opendir(from);
    if (!folder)
        return 0;
    if (mkdir(to, 0700) != 0 && errno != EEXIST)
        status = fgio_fail(why, "%s: %s", to, strerror(errno));
    while (status == 0 && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && entry_path(from, entry->d_name, old_path) &&
            entry_path(to, entry->d_name, new_path) && rename(old_path, new_path) != 0)
            status = fgio_fail(why, "%s: %s", new_path, strerror(errno));
    closedir(folder);
    return status == 0 && sync_directory(to) != 0 ? fgio_fail(why, "%s: %s", to, strerror(errno)) : status;
}

static int compare_updates(const void *x, const void *y) {
    const fgf_update *a = x, *b = y;
    int order = memcmp(a->client.bytes, b->client.bytes, FGF_PUBLIC_BYTES);
    return order ? order : (a->base > b->base) - (a->base < b->base);
}

/* Reads one file of a round; those that cannot be counted are removed. */
static bool load_update(const char *folder, const char *name, const fgf_run_id *run, fgf_update *update) {
    char path[FGF_PATH_MAX];
    struct stat info;
    fgio_reason why;
    size_t length = strlen(name);
    if (length < 8 || strcmp(name + length - 7, ".update") != 0 || !entry_path(folder, name, path))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool usable = fd >= 0 && read_header(fd, update, &why) == 0 && fstat(fd, &info) == 0 &&
                  (uint64_t)info.st_size == FGF_UPDATE_HEADER + update->bytes &&
                  memcmp(&update->run, run, sizeof *run) == 0;
    if (fd >= 0)
        close(fd);
    if (!usable)
        unlink(path);
    return usable;
}

int fgf_update_list(const char *dir, uint64_t round, const fgf_run_id *run, fgf_update **out, size_t *out_count,
                    fgio_reason *why) {
    char folder[FGF_PATH_MAX];
    fgf_update *list = NULL;
    size_t count = 0, capacity = 0;
    struct dirent *entry;
    snprintf(folder, sizeof folder, "%s/round-%llu", dir, (unsigned long long)round);
    DIR *open_folder = opendir(folder);
    while (open_folder && (entry = readdir(open_folder)) != NULL) {
        if (count == capacity) {
            capacity = 2 * capacity + 16;
            fgf_update *grown = realloc(list, capacity * sizeof *list);
            if (!grown) {
                free(list);
                closedir(open_folder);
                return fgio_fail(why, "not enough memory");
            }
            list = grown;
        }
        count += load_update(folder, entry->d_name, run, &list[count]);
    }
    if (open_folder)
        closedir(open_folder);
    if (count)
        qsort(list, count, sizeof *list, compare_updates);
    *out = list;
    *out_count = count;
    return 0;
}

static void remove_folder(const char *path) {
    char file[FGF_PATH_MAX];
    struct dirent *entry;
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && entry_path(path, entry->d_name, file))
            unlink(file);
    if (folder)
        closedir(folder);
    rmdir(path);
}

void fgf_update_remove_before(const char *dir, uint64_t round) {
    char path[FGF_PATH_MAX];
    struct dirent *entry;
    DIR *folder = opendir(dir);
    while (folder && (entry = readdir(folder)) != NULL) {
        char *end = NULL;
        if (strncmp(entry->d_name, "round-", 6) != 0)
            continue;
        unsigned long long number = strtoull(entry->d_name + 6, &end, 10);
        if (*end == '\0' && number < round && entry_path(dir, entry->d_name, path))
            remove_folder(path);
    }
    if (folder)
        closedir(folder);
}

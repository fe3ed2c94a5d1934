/*
 * fault_injection.c - for LD_PRELOAD: a full disk and a clock that jumps, as files in $FAULTS say. federated_faults.py
 * compiles it.
 *
 *   $FAULTS/full    while it exists, regular files cannot grow: every other write is short, the others fail
 *   $FAULTS/clock   seconds that the clock of the day is ahead, or behind; the monotonic clock is as it is
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *path_of(const char *name, char path[512]) {
    const char *dir = getenv("FAULTS");
    snprintf(path, 512, "%s/%s", dir ? dir : "/nonexistent", name);
    return path;
}

/* The bytes of a write that fit: all, some, or -1 with errno. */
static ssize_t room(int fd, size_t len) {
    static atomic_uint calls;
    char path[512];
    struct stat info;
    if (access(path_of("full", path), F_OK) != 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return (ssize_t)len;
    if (len > 1 && atomic_fetch_add(&calls, 1) % 2 == 0)
        return (ssize_t)(len / 2);
    errno = ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *data, size_t len) {
    ssize_t fits = room(fd, len);
    return fits < 0 ? -1 : syscall(SYS_write, fd, data, (size_t)fits);
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at) {
    ssize_t fits = room(fd, len);
    return fits < 0 ? -1 : syscall(SYS_pwrite64, fd, data, (size_t)fits, at);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off_t at) {
    return pwrite(fd, data, len, at);
}

static time_t seconds_ahead(void) {
    char path[512];
    long seconds = 0;
    FILE *file = fopen(path_of("clock", path), "r");
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1)
            seconds = 0;
        fclose(file);
    }
    return (time_t)seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += seconds_ahead();
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    int status = (int)syscall(SYS_gettimeofday, now, zone);
    if (status == 0)
        now->tv_sec += seconds_ahead();
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

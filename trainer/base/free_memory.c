/*
 * free_memory.c - the minimum of what Linux reports: MemAvailable of the machine, and for every cgroup of this process
 * (version 2 or 1) its limit minus its usage; page cache that can be dropped does not count as used.
 */
#include "trainer/base/free_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE = 512, PATH = 1024 };

/* The number that follows a key at the beginning of a line; fallback where there is none. */
static uint64_t read_number_after(const char *path, const char *key, uint64_t fallback) {
    FILE *file = fopen(path, "r");
    char line[LINE];
    uint64_t number = fallback;
    while (file && fgets(line, sizeof line, file)) {
        char *end = line;
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        uint64_t read = strtoull(line + strlen(key), &end, 10);
        number = end != line + strlen(key) ? read : fallback; /* "max": no limit */
        break;
    }
    if (file)
        fclose(file);
    return number;
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/** File names of a version of cgroups. */
typedef struct cgroup_files {
    const char *root, *limit, *used, *cached;
} cgroup_files;

static uint64_t free_in_group(const cgroup_files *c, const char *group) {
    char path[PATH];
    snprintf(path, sizeof path, "%s%s/%s", c->root, group, c->limit);
    uint64_t limit = read_number_after(path, "", UINT64_MAX);
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s/%s", c->root, group, c->used);
    uint64_t used = read_number_after(path, "", 0);
    snprintf(path, sizeof path, "%s%s/memory.stat", c->root, group);
    uint64_t cached = read_number_after(path, c->cached, 0);
    used -= min_u64(used, cached);
    return limit - min_u64(limit, used);
}

/* A group and all its ancestors; inside a container only the outermost may be visible. */
static uint64_t free_in_ancestors(const cgroup_files *c, char *group) {
    uint64_t free_bytes = UINT64_MAX;
    group[strcspn(group, "\n")] = '\0';
    for (char *slash = group; slash;) {
        free_bytes = min_u64(free_bytes, free_in_group(c, group));
        slash = strrchr(group, '/');
        if (slash)
            *slash = '\0';
    }
    return free_bytes;
}

static uint64_t free_in_cgroups(void) {
    static const cgroup_files v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
                              v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                    "total_inactive_file "};
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[LINE];
    uint64_t free_bytes = UINT64_MAX;
    while (file && fgets(line, sizeof line, file)) { /* 0::/a/b, or 7:memory:/a/b */
        char *name = strchr(line, ':'), *group = name ? strchr(name + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (name[1] == '\0')
            free_bytes = min_u64(free_bytes, free_in_ancestors(&v2, group));
        else if (strcmp(name + 1, "memory") == 0)
            free_bytes = min_u64(free_bytes, free_in_ancestors(&v1, group));
    }
    if (file)
        fclose(file);
    return free_bytes;
}

uint64_t fgt_free_memory_machine(void) {
    uint64_t kilobytes = read_number_after("/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024);
    return min_u64(kilobytes >= UINT64_MAX / 1024 ? UINT64_MAX : kilobytes * 1024, free_in_cgroups());
}

uint64_t fgt_free_memory_process(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t used = read_number_after("/proc/self/statm", "", 0) * (uint64_t)sysconf(_SC_PAGESIZE);
    return (uint64_t)limit.rlim_cur - min_u64((uint64_t)limit.rlim_cur, used);
}

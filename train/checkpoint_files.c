/*
 * The files of a directory of checkpoints. What order they have is their step's, which stands in the name: times of
 * files change when a directory is copied.
 */
#include "checkpoint_parts.h"

#include "say.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 64 };

static void name_of_step(uint64_t step, char *dst) {
    snprintf(dst, NAME_MAX_BYTES, "step-%09" PRIu64 ".safetensors", step);
}

bool frugi_checkpoint_name(const char *directory, uint64_t step, char *dst, size_t cap) {
    char name[NAME_MAX_BYTES];
    name_of_step(step, name);
    int length = snprintf(dst, cap, "%s/%s", directory, name);
    return length >= 0 && (size_t)length < cap;
}

bool frugi_checkpoint_name_step(const char *name, uint64_t *step) {
    char again[NAME_MAX_BYTES];
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    uint64_t number = strtoull(name + 5, NULL, 10);
    name_of_step(number, again); /* what is not spelled as we spell it is not ours */
    if (strcmp(again, name) != 0)
        return false;
    *step = number;
    return true;
}

static int latest_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

int frugi_checkpoint_list(const char *directory, uint64_t **steps, size_t *count) {
    DIR *folder = opendir(directory);
    uint64_t *list = NULL;
    size_t have = 0, room = 0;
    if (folder == NULL)
        return frugi_error("%s: cannot open: %s", directory, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        uint64_t step;
        if (!frugi_checkpoint_name_step(entry->d_name, &step))
            continue;
        if (have == room) {
            room = 2 * room + 16;
            uint64_t *grown = realloc(list, room * sizeof *list);
            if (grown == NULL) {
                free(list);
                closedir(folder);
                return frugi_error("%s: out of memory", directory);
            }
            list = grown;
        }
        list[have++] = step;
    }
    closedir(folder);
    if (have > 1)
        qsort(list, have, sizeof *list, latest_first);
    *steps = list;
    *count = have;
    return FRUGI_EXIT_OK;
}

void frugi_checkpoint_prune(const char *directory, uint32_t keep, uint64_t step) {
    uint64_t *steps = NULL;
    size_t count = 0;
    uint32_t kept = 0;
    char path[PATH_MAX];
    if (frugi_checkpoint_list(directory, &steps, &count) != FRUGI_EXIT_OK)
        return;
    if (count > 0 && steps[0] > step)
        frugi_error("%s: has a checkpoint of step %" PRIu64 ", later than step %" PRIu64
                    " just written: of another run? Resuming takes the latest",
                    directory, steps[0], step);
    for (size_t i = 0; i < count && keep > 0; i++) {
        if (steps[i] > step || kept++ < keep)
            continue;
        if (frugi_checkpoint_name(directory, steps[i], path, sizeof path) && unlink(path) != 0 && errno != ENOENT)
            frugi_error("%s: cannot remove: %s", path, strerror(errno));
    }
    free(steps);
}

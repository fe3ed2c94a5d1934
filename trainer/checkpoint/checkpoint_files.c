/*
 * checkpoint_files.c - the files of a directory of checkpoints, and which of them is the newest. File times do not
 * tell, because they change when a directory is copied, and steps alone do not, because a run that continues with
 * another number of workers renumbers its steps. So the metadata has a generation, which is incremented whenever the
 * step decreases; within a generation the highest step is the newest. Files without that key, of a first run or of
 * earlier versions, are of generation 0.
 */
#include "trainer/checkpoint/checkpoint_parts.h"

#include "io/error.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 64, MAX_DIGITS = 20 };

static void format_name(uint64_t step, char *dst) {
    snprintf(dst, NAME_MAX_BYTES, "step-%09" PRIu64 ".safetensors", step);
}

bool fgt_checkpoint_name(const char *directory, uint64_t step, char *dst, size_t cap) {
    char name[NAME_MAX_BYTES];
    format_name(step, name);
    int length = snprintf(dst, cap, "%s/%s", directory, name);
    return length >= 0 && (size_t)length < cap;
}

bool fgt_checkpoint_name_step(const char *name, uint64_t *step) {
    char again[NAME_MAX_BYTES];
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    uint64_t number = strtoull(name + 5, NULL, 10);
    format_name(number, again); /* only names in exactly this format are checkpoints */
    if (strcmp(again, name) != 0)
        return false;
    *step = number;
    return true;
}

bool fgt_checkpoint_number(const json_t *metadata, const char *key, uint64_t most, uint64_t *number) {
    const char *text = json_string_value(json_object_get(metadata, key));
    uint64_t value = 0;
    if (text == NULL || *text == '\0' || strlen(text) > MAX_DIGITS)
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || value > (most - (uint64_t)(*text - '0')) / 10)
            return false;
        value = 10 * value + (uint64_t)(*text - '0');
    }
    *number = value;
    return true;
}

static bool is_newer(const fgt_checkpoint_entry *a, const fgt_checkpoint_entry *b) {
    return a->generation != b->generation ? a->generation > b->generation : a->step > b->step;
}

/* Unreadable files come first, so that opening the newest one reports and skips them. */
static int compare_newest_first(const void *a, const void *b) {
    const fgt_checkpoint_entry *x = a, *y = b;
    if (x->readable != y->readable)
        return x->readable ? 1 : -1;
    return is_newer(x, y) ? -1 : is_newer(y, x) ? 1 : 0;
}

bool fgt_checkpoint_generation(const json_t *metadata, uint64_t *generation) {
    *generation = 0;
    return json_object_get(metadata, FGT_KEY_GENERATION) == NULL ||
           fgt_checkpoint_number(metadata, FGT_KEY_GENERATION, FGT_GENERATION_MAX, generation);
}

/* The generation is in the header; errors of a file are reported when it is opened for use. Returns false without
 * memory: the file may be good, so the order of the files is unknown. */
static bool read_generation(const char *directory, fgt_checkpoint_entry *entry) {
    char path[PATH_MAX];
    fgio_tensor_file file = FGIO_TENSOR_FILE_CLOSED;
    fgio_errors_mute(1);
    entry->readable = fgt_checkpoint_name(directory, entry->step, path, sizeof path) &&
                      fgio_tensor_file_open(path, &file) == FGIO_EXIT_OK &&
                      fgt_checkpoint_generation(file.head.metadata, &entry->generation);
    fgio_errors_mute(0);
    bool known = !file.out_of_memory;
    fgio_tensor_file_close(&file);
    return known;
}

int fgt_checkpoint_list(const char *directory, fgt_checkpoint_entry **entries, size_t *count) {
    DIR *dir = opendir(directory);
    fgt_checkpoint_entry *list = NULL;
    size_t have = 0, capacity = 0;
    if (dir == NULL)
        return fgio_error("%s: cannot open: %s", directory, strerror(errno));
    bool known = true;
    for (struct dirent *entry; known && (entry = readdir(dir)) != NULL;) {
        uint64_t step;
        if (!fgt_checkpoint_name_step(entry->d_name, &step))
            continue;
        if (have == capacity) {
            fgt_checkpoint_entry *grown = realloc(list, (2 * capacity + 16) * sizeof *list);
            known = grown != NULL;
            capacity = known ? 2 * capacity + 16 : capacity;
            list = known ? grown : list;
        }
        if (known) {
            list[have] = (fgt_checkpoint_entry){.step = step};
            known = read_generation(directory, &list[have++]);
        }
    }
    closedir(dir);
    if (!known) {
        free(list);
        return fgio_error("%s: out of memory", directory);
    }
    if (have > 1)
        qsort(list, have, sizeof *list, compare_newest_first);
    *entries = list;
    *count = have;
    return FGIO_EXIT_OK;
}

bool fgt_checkpoint_in_directory(const char *directory) {
    DIR *dir = opendir(directory);
    bool found = false;
    uint64_t step;
    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;)
        found = fgt_checkpoint_name_step(entry->d_name, &step);
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* Whether an open file is the one of that step in a directory. */
static bool is_file_of(const char *directory, uint64_t step, int fd) {
    char path[PATH_MAX];
    struct stat ours, theirs;
    return fgt_checkpoint_name(directory, step, path, sizeof path) && stat(path, &ours) == 0 &&
           fstat(fd, &theirs) == 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

int fgt_checkpoint_next_generation(const char *directory, const fgt_checkpoint *from, uint64_t at,
                                   uint64_t *generation) {
    fgt_checkpoint_entry *entry = NULL;
    size_t count = 0, first = 0;
    struct stat st;
    *generation = 0;
    if (stat(directory, &st) != 0) /* it is created when the first one is written */
        return FGIO_EXIT_OK;
    int code = fgt_checkpoint_list(directory, &entry, &count);
    while (first < count && !entry[first].readable)
        first++;
    if (first < count) {
        bool continues =
            from != NULL && at >= entry[first].step && is_file_of(directory, entry[first].step, from->file.fd);
        *generation = entry[first].generation + !continues;
    }
    free(entry);
    return code;
}

/* Prints a hint, once, when the step has decreased and files with later steps remain. */
static void warn_of_later_steps(const char *directory, const fgt_checkpoint_entry *entry, size_t count,
                                const fgt_checkpoint_entry *written) {
    size_t ours = 0;
    uint64_t latest = 0;
    for (size_t i = 0; i < count; i++) {
        ours += entry[i].readable && entry[i].generation == written->generation;
        latest = entry[i].step > latest ? entry[i].step : latest;
    }
    if (ours == 1 && latest > written->step)
        fgio_hint("%s: checkpoints of an earlier run up to step %" PRIu64
                  " are kept; --resume continues from the one written last, now step %" PRIu64,
                  directory, latest, written->step);
}

void fgt_checkpoint_prune(const char *directory, uint32_t keep, uint64_t generation, uint64_t step) {
    fgt_checkpoint_entry *entry = NULL, written = {.generation = generation, .step = step};
    size_t count = 0, first = 0;
    uint32_t kept = 0;
    char path[PATH_MAX];
    if (fgt_checkpoint_list(directory, &entry, &count) != FGIO_EXIT_OK)
        return;
    warn_of_later_steps(directory, entry, count, &written);
    while (first < count && !entry[first].readable)
        first++;
    for (size_t i = 0; i < count && keep > 0; i++) {
        const fgt_checkpoint_entry *e = &entry[(first + i) % count]; /* the unreadable ones last */
        if (e->step > step || kept++ < keep)
            continue;
        if (fgt_checkpoint_name(directory, e->step, path, sizeof path) && unlink(path) != 0 && errno != ENOENT)
            fgio_error("%s: cannot remove: %s", path, strerror(errno));
    }
    free(entry);
}

void fgt_checkpoint_hint_skipped(const fgt_checkpoint_entry *entry, size_t count, size_t at) {
    if (at + 1 < count)
        fgio_hint("skipped; using the checkpoint before it, of step %" PRIu64, entry[at + 1].step);
}

/* Opens a file that could not be read when the directory was, so that the reason is printed. */
static void report_unreadable(const char *directory, const fgt_checkpoint_entry *entry, size_t count, size_t at) {
    char path[PATH_MAX];
    uint64_t generation;
    fgio_tensor_file file = FGIO_TENSOR_FILE_CLOSED;
    if (!fgt_checkpoint_name(directory, entry[at].step, path, sizeof path))
        fgio_error("%s: the name is too long", directory);
    else if (fgio_tensor_file_open(path, &file) == FGIO_EXIT_OK &&
             !fgt_checkpoint_generation(file.head.metadata, &generation))
        fgio_error("%s: " FGT_INVALID_GENERATION, path);
    fgio_tensor_file_close(&file);
    fgt_checkpoint_hint_skipped(entry, count, at);
}

int fgt_checkpoint_newest(const char *path, char *dst, size_t cap) {
    struct stat st;
    fgt_checkpoint_entry *entry = NULL;
    size_t count = 0, first = 0;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return snprintf(dst, cap, "%s", path) < (int)cap ? FGIO_EXIT_OK : fgio_error("%s: too long a name", path);
    int status = fgt_checkpoint_list(path, &entry, &count);
    while (status == FGIO_EXIT_OK && first < count && !entry[first].readable)
        report_unreadable(path, entry, count, first++);
    if (status == FGIO_EXIT_OK && count == 0)
        status = fgio_error("%s: " FGT_NO_CHECKPOINT, path);
    else if (status == FGIO_EXIT_OK && (first == count || !fgt_checkpoint_name(path, entry[first].step, dst, cap)))
        status = FGIO_EXIT_FAIL; /* after the error message of each file */
    free(entry);
    return status;
}

bool fgt_checkpoint_has_name(const char *path) {
    const char *slash = strrchr(path, '/');
    uint64_t step;
    return fgt_checkpoint_name_step(slash ? slash + 1 : path, &step);
}

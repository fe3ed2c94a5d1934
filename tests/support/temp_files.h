/* temp_files.h - for tests of data sets: files in a temporary directory, location of real data. */
#ifndef FRUG_TEST_TEMP_FILES_H
#define FRUG_TEST_TEMP_FILES_H

#include "support/stderr_capture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMP_PATH_MAX = 512 };

/** Create a directory `name` inside a new temporary directory. */
static inline void temp_dir_create(char directory[TEMP_PATH_MAX], const char *name) {
    char root[] = "/tmp/frugrad-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    snprintf(directory, TEMP_PATH_MAX, "%s/%s", root, name);
    assert_int_equal(mkdir(directory, 0700), 0);
}

static inline void temp_dir_write(const char *directory, const char *name, const void *data, size_t len) {
    char path[2 * TEMP_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static inline void temp_dir_write_text(const char *directory, const char *name, const char *text) {
    temp_dir_write(directory, name, text, strlen(text));
}

/** Remove the directory, the files in it and its parent. */
static inline void temp_dir_remove(char directory[TEMP_PATH_MAX]) {
    char path[2 * TEMP_PATH_MAX];
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    closedir(dir);
    rmdir(directory);
    *strrchr(directory, '/') = '\0';
    rmdir(directory);
}

/** A path below the folder that FRUGRAD_DATA names, or NULL (with a message) if it is not there. */
static inline const char *real_data(const char *below, char path[TEMP_PATH_MAX]) {
    const char *root = getenv("FRUGRAD_DATA");
    snprintf(path, TEMP_PATH_MAX, "%s/%s", root != NULL ? root : "", below);
    if (root != NULL && access(path, R_OK) == 0)
        return path;
    print_message("not here: %s below FRUGRAD_DATA\n", below);
    return NULL;
}

#endif

/*
 * replay.c - the main of all fuzz targets where there is no libFuzzer.
 *
 * Feeds every file of CORPUS/<name> to the target of that name, so that each seed and each input that once broke
 * something is run by every compiler and sanitizer, in every test run. A target without a file is a failure: a corpus
 * that went missing must not look like success. One program for all, because a search for leaks takes seconds at the
 * end of every process on 64-bit ARM.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef int fuzz_target(const uint8_t *data, size_t size);

#define TARGET(name) fuzz_target fuzz_##name;
#include "targets.inc"
#undef TARGET

#define TARGET(name) {#name, fuzz_##name},
static const struct {
    const char *name;
    fuzz_target *run;
} targets[] = {
#include "targets.inc"
};

static int run_file(fuzz_target *run, const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    int bad = !file || !data || fread(data, 1, size, file) != size;
    if (!bad)
        run(data, size);
    free(data);
    if (file)
        fclose(file);
    return bad;
}

static int run_directory(fuzz_target *run, const char *name, int *files) {
    DIR *dir = opendir(name);
    int bad = !dir;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096];
        struct stat st;
        int len = snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
        if (len < 0 || (size_t)len >= sizeof path || stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        if (run_file(run, path, (size_t)st.st_size)) {
            fprintf(stderr, "replay: cannot read %s\n", path);
            bad = 1;
        }
        (*files)++;
    }
    if (dir)
        closedir(dir);
    else
        fprintf(stderr, "replay: cannot open %s\n", name);
    return bad;
}

int main(int argc, char **argv) {
    int bad = argc != 2;
    for (size_t i = 0; i < sizeof targets / sizeof *targets && argc == 2; i++) {
        char folder[4096];
        int files = 0, len = snprintf(folder, sizeof folder, "%s/%s", argv[1], targets[i].name);
        printf("replay: %s: ", targets[i].name);
        fflush(stdout); /* a target that crashes is named */
        bad |= len < 0 || (size_t)len >= sizeof folder || run_directory(targets[i].run, folder, &files) || files == 0;
        printf("%d files\n", files);
    }
    return bad;
}

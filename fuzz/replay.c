/*
 * replay.c - the main of a fuzz target where there is no libFuzzer.
 *
 * Feeds every file of the directories given to LLVMFuzzerTestOneInput(), so that each seed and each
 * input that once broke something is run by every compiler and sanitizer, in every test run. Running
 * no file at all is a failure: a corpus that went missing must not look like success.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    int bad = !file || !data || fread(data, 1, size, file) != size;
    if (!bad)
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    if (file)
        fclose(file);
    return bad;
}

static int run_directory(const char *name, int *files) {
    DIR *dir = opendir(name);
    int bad = !dir;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096];
        struct stat st;
        int len = snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
        if (len < 0 || (size_t)len >= sizeof path || stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        if (run_file(path, (size_t)st.st_size)) {
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
    int files = 0, bad = 0;
    for (int i = 1; i < argc; i++)
        bad |= run_directory(argv[i], &files);
    printf("replay: %d files\n", files);
    return bad || files == 0;
}
